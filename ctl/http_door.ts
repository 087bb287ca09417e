/**
 * The HTTP API of a running service, as commands ask it: which one and who asks is said by options, and
 * what cannot be asked ends in {@linkcode CannotRunError} with the reason. Answers are bounded.
 */
import { type AskHttp, HttpAskError, type HttpQuestion, readWhole } from "@sluice/shared/runtime";
import { type Input, type Option, UsageError, type World } from "./command.ts";
import { CannotRunError } from "./data/folder.ts";

const CONNECT_MS_MAX = 5_000;
const TOKEN_BYTES_MAX = 16_384;
const SHOWN_CHARACTERS_MAX = 200;

/** How long an answer may take, and how large it may be. */
export interface AnswerBounds {
  readonly timeoutMs: number;
  readonly bodyBytesMax: number;
}

/** What a service answered, whatever its status. */
export interface DoorAnswer {
  readonly status: number;
  readonly body: Uint8Array;
}

/** The options that say who asks `service`. */
export function tokenOptions(service: string): Readonly<Record<string, Option>> {
  return {
    "token-file": { value: "FILE", help: `a file with the token, where the ${service} wants one` },
    token: { value: "TOKEN", help: "the token itself; others see it in the list of processes" },
  };
}

/** See the module. */
export class HttpDoor {
  readonly #ask: AskHttp;
  readonly #origin: string;
  readonly #headers: Readonly<Record<string, string>>;

  private constructor(
    readonly address: string,
    ask: AskHttp,
    origin: string,
    headers: Readonly<Record<string, string>>,
  ) {
    this.#ask = ask;
    this.#origin = origin;
    this.#headers = headers;
  }

  /**
   * The door at the address in `option`, with a token if there is one. Nothing is asked yet. Rejects
   * with {@linkcode UsageError}.
   */
  static async of(input: Input, world: World, option: string): Promise<HttpDoor> {
    const address = input.text(option);
    if (address === null) throw new UsageError(`--${option} is missing`);
    const origin = /^https?:\/\//.test(address) ? address.replace(/\/+$/, "") : `http://${address}`;
    if (!URL.canParse(origin)) {
      throw new UsageError(`--${option} takes HOST:PORT, not "${address}"`);
    }
    if (world.askHttp === undefined) throw new CannotRunError("there is no network");
    const token = await tokenOf(input, world);
    const headers: Record<string, string> = {};
    if (token !== null) headers["Authorization"] = `Bearer ${token}`;
    return new HttpDoor(address, world.askHttp, origin, headers);
  }

  async ask(
    question: Pick<HttpQuestion, "method" | "body">,
    path: string,
    bounds: AnswerBounds,
  ): Promise<DoorAnswer> {
    const url = `${this.#origin}${path}`;
    try {
      return await this.#ask(
        { ...question, url, headers: this.#headers },
        { connectTimeoutMs: CONNECT_MS_MAX, ...bounds },
      );
    } catch (error) {
      if (!(error instanceof HttpAskError)) throw error;
      throw new CannotRunError(`Cannot ask ${this.address}: ${error.message}`);
    }
  }

  /** For an answer that is not what was asked for. */
  cannotUse({ status, body }: DoorAnswer): CannotRunError {
    const text = new TextDecoder().decode(body).slice(0, SHOWN_CHARACTERS_MAX);
    return new CannotRunError(`${this.address} answers ${status}: ${seen(text)}`);
  }
}

/** An answer that is a JSON object; null when it is none. */
export function jsonObject(body: Uint8Array): Readonly<Record<string, unknown>> | null {
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(body));
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}

/** Whether a field of an answer has fields itself. */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Text as it can be shown: nothing that a terminal would act on. */
export function seen(text: string): string {
  return text.replace(/[\p{C}\u2028\u2029]/gu, (character) => {
    return `\\u{${character.codePointAt(0)!.toString(16)}}`;
  });
}

async function tokenOf(input: Input, { disk }: World): Promise<string | null> {
  const token = input.text("token");
  const path = input.text("token-file");
  if (token !== null && path !== null) {
    throw new UsageError("--token and --token-file are one too many");
  }
  if (path === null) return token;
  return new TextDecoder().decode(await readWhole(disk, path, TOKEN_BYTES_MAX)).trim();
}
