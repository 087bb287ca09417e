/**
 * The HTTP API of a running broker, as commands ask it. What the broker refuses ends in
 * {@linkcode RefusedByBroker}; what cannot be asked, or is no answer of a broker, in
 * {@linkcode CannotRunError}. Answers are bounded, and nothing in them is trusted.
 */
import { HttpAskError, type HttpQuestion, readWhole } from "@sluice/shared/runtime";
import { type Input, type Option, UsageError, type World } from "./command.ts";
import { CannotRunError } from "./data/folder.ts";

/** The broker refused: nothing was done. */
export const EXIT_REFUSED = 1;
/** For the help of commands. */
export const ADMIN_EXIT_CODES = "0 done, 1 refused by the broker, 2 cannot run";

const BOUNDS = { connectTimeoutMs: 5_000, timeoutMs: 60_000, bodyBytesMax: 256 * 2 ** 20 };
const TOKEN_BYTES_MAX = 16_384;
const SHOWN_CHARACTERS_MAX = 200;

/** The options that say which broker, who asks, and how to tell the answer. */
export const DOOR_OPTIONS: Readonly<Record<string, Option>> = {
  "http-address": { value: "HOST:PORT", help: "the broker's HTTP; a URL for HTTPS" },
  "token-file": { value: "FILE", help: "a file with the token, where the broker wants one" },
  json: { help: "the answer as JSON" },
};
/** For examples. */
export const ADDRESS = "--http-address=127.0.0.1:4151";

/** A JSON object of somebody else. */
export type Answer = Readonly<Record<string, unknown>>;

/** What the broker does not want to do. */
export class RefusedByBroker extends Error {
  override name = "RefusedByBroker";
}

/** See the module. */
export class BrokerDoor {
  readonly #world: World;
  readonly #address: string;
  readonly #origin: string;
  readonly #headers: Readonly<Record<string, string>>;

  private constructor(
    world: World,
    address: string,
    origin: string,
    headers: Readonly<Record<string, string>>,
  ) {
    this.#world = world;
    this.#address = address;
    this.#origin = origin;
    this.#headers = headers;
  }

  /** The door that the options name. Nothing is asked yet. */
  static async of(input: Input, world: World): Promise<BrokerDoor> {
    const address = input.text("http-address");
    if (address === null) throw new UsageError("--http-address is missing");
    const origin = /^https?:\/\//.test(address) ? address.replace(/\/+$/, "") : `http://${address}`;
    if (!URL.canParse(origin)) {
      throw new UsageError(`--http-address takes HOST:PORT, not "${address}"`);
    }
    const path = input.text("token-file");
    if (path === null) return new BrokerDoor(world, address, origin, {});
    const token = new TextDecoder().decode(await readWhole(world.disk, path, TOKEN_BYTES_MAX));
    return new BrokerDoor(world, address, origin, { Authorization: `Bearer ${token.trim()}` });
  }

  /** Asks for what is there. */
  get(path: string): Promise<Answer> {
    return this.#ask({ method: "GET" }, path);
  }

  post(path: string, wanted: object): Promise<Answer> {
    const body = new TextEncoder().encode(JSON.stringify(wanted));
    return this.#ask({ method: "POST", body }, path);
  }

  delete(path: string): Promise<Answer> {
    return this.#ask({ method: "DELETE" }, path);
  }

  async #ask(question: Pick<HttpQuestion, "method" | "body">, path: string): Promise<Answer> {
    const { askHttp } = this.#world;
    if (askHttp === undefined) throw new CannotRunError("there is no network");
    const url = `${this.#origin}${path}`;
    let answer;
    try {
      answer = await askHttp({ ...question, url, headers: this.#headers }, BOUNDS);
    } catch (error) {
      if (!(error instanceof HttpAskError)) throw error;
      throw new CannotRunError(`Cannot ask ${this.#address}: ${error.message}`);
    }
    const text = new TextDecoder().decode(answer.body);
    const value = parsed(text);
    if (answer.status === 200 && value !== null) return value;
    if (answer.status >= 400 && answer.status < 500 && typeof value?.["message"] === "string") {
      throw new RefusedByBroker(refusalText(this.#address, value));
    }
    throw new CannotRunError(
      `${this.#address} answers ${answer.status}: ${seen(text.slice(0, SHOWN_CHARACTERS_MAX))}`,
    );
  }
}

/** A field that is an object; empty when it is none. */
export function objectOf(value: unknown): Answer {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? value as Answer
    : {};
}

/** A field that is a list of objects; empty when it is none. */
export function listOf(value: unknown): readonly Answer[] {
  return Array.isArray(value) ? value.map(objectOf) : [];
}

/** What a person is shown of a field: `-` for none, and nothing that a terminal would act on. */
export function shown(value: unknown): string {
  if (value === null || value === undefined || value === "") return "-";
  if (typeof value === "object") return String(JSON.stringify(value));
  return seen(String(value));
}

/** Text as it can be shown. */
export function seen(text: string): string {
  return text.replace(/[\p{C}\u2028\u2029]/gu, (character) => {
    return `\\u{${character.codePointAt(0)!.toString(16)}}`;
  });
}

function refusalText(address: string, answer: Answer): string {
  const { message, detail, instance, revision } = answer;
  const more = detail !== undefined
    ? `: ${shown(detail)}`
    : revision !== undefined
    ? `: the registry is at ${shown(instance)} ${shown(revision)}`
    : "";
  return `${address} refuses: ${shown(message)}${more}`;
}

function parsed(text: string): Answer | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? value as Answer
      : null;
  } catch {
    return null;
  }
}
