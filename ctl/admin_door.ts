/**
 * The HTTP API of a running broker, as commands ask it. What the broker refuses ends in
 * {@linkcode RefusedByBroker}; what cannot be asked, or is no answer of a broker, in
 * {@linkcode CannotRunError}. Answers are bounded, and nothing in them is trusted.
 */
import type { HttpQuestion } from "@sluice/shared/runtime";
import type { Input, Option, World } from "./command.ts";
import { HttpDoor, isObject, jsonObject, seen, tokenOptions } from "./http_door.ts";

/** The broker refused: nothing was done. */
export const EXIT_REFUSED = 1;
/** For the help of commands. */
export const ADMIN_EXIT_CODES = "0 done, 1 refused by the broker, 2 cannot run";

const BOUNDS = { timeoutMs: 60_000, bodyBytesMax: 256 * 2 ** 20 };

/** The options that say which broker, who asks, and how to tell the answer. */
export const DOOR_OPTIONS: Readonly<Record<string, Option>> = {
  "http-address": { value: "HOST:PORT", help: "the broker's HTTP; a URL for HTTPS" },
  ...tokenOptions("broker"),
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
  readonly #door: HttpDoor;

  private constructor(door: HttpDoor) {
    this.#door = door;
  }

  /** The door that the options name. Nothing is asked yet. */
  static async of(input: Input, world: World): Promise<BrokerDoor> {
    return new BrokerDoor(await HttpDoor.of(input, world, "http-address"));
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
    const answer = await this.#door.ask(question, path, BOUNDS);
    const value = jsonObject(answer.body);
    if (answer.status === 200 && value !== null) return value;
    if (answer.status >= 400 && answer.status < 500 && typeof value?.["message"] === "string") {
      throw new RefusedByBroker(refusalText(this.#door.address, value));
    }
    throw this.#door.cannotUse(answer);
  }
}

/** A field that is an object; empty when it is none. */
export function objectOf(value: unknown): Answer {
  return isObject(value) ? value : {};
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

function refusalText(address: string, answer: Answer): string {
  const { message, detail, instance, revision } = answer;
  const more = detail !== undefined
    ? `: ${shown(detail)}`
    : revision !== undefined
    ? `: the registry is at ${shown(instance)} ${shown(revision)}`
    : "";
  return `${address} refuses: ${shown(message)}${more}`;
}
