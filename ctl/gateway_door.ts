/**
 * The quarantine of a running gateway over its HTTP API. What is no answer of a gateway, or cannot be
 * asked, ends in {@linkcode CannotRunError} with the reason. Its words are bounded, and judged.
 */
import type { HttpQuestion } from "@sluice/shared/runtime";
import type { Input, Option, World } from "./command.ts";
import { CannotRunError } from "./data/folder.ts";
import { HttpDoor, isObject, jsonObject, tokenOptions } from "./http_door.ts";

/** Entries that are asked for at a time. */
export const PAGE_ENTRIES_MAX = 500;

const ANSWER_MS_MAX = 30_000;
const PAGE_BYTES_MAX = 4 * 2 ** 20;
/** The largest body of a command that a gateway takes. */
const BODY_BYTES_MAX = 129 * 2 ** 20;

/** The options that say which gateway, and who asks. */
export const DOOR_OPTIONS: Readonly<Record<string, Option>> = {
  "gateway-http-address": { value: "HOST:PORT", help: "the gateway's HTTP; a URL for HTTPS" },
  ...tokenOptions("gateway"),
};

/** A publish in quarantine. */
export interface QuarantinedPublish {
  readonly id: number;
  /** Empty when it is damaged on disk. */
  readonly topic: string;
  readonly messages: number;
  readonly bytes: number;
  readonly reason: string;
  /** When it came into the spool; null when that cannot be read. */
  readonly spooled: string | null;
  readonly broker: string | null;
}

/** Some of them, and the id at which it goes on. */
export interface QuarantinePage {
  readonly entries: readonly QuarantinedPublish[];
  readonly next: number | null;
}

/** See the module. */
export class GatewayDoor {
  readonly #door: HttpDoor;

  private constructor(door: HttpDoor) {
    this.#door = door;
  }

  /** The door that the options name. Nothing is asked yet. */
  static async of(input: Input, world: World): Promise<GatewayDoor> {
    return new GatewayDoor(await HttpDoor.of(input, world, "gateway-http-address"));
  }

  /** Entries from an id on, the lowest first, and where it goes on, which is always further. */
  async page(from: number, limit: number): Promise<QuarantinePage> {
    const body = await this.#send("GET", `?from=${from}&limit=${limit}`, PAGE_BYTES_MAX);
    const page = body === null ? null : pageOf(body);
    if (page !== null && (page.next === null || page.next > from)) return page;
    throw new CannotRunError(`${this.#door.address} answers what is no list of a quarantine`);
  }

  /** All entries from an id on. What comes in meanwhile may be among them. */
  async *all(): AsyncIterable<QuarantinedPublish> {
    for (let from: number | null = 0; from !== null;) {
      const page: QuarantinePage = await this.page(from, PAGE_ENTRIES_MAX);
      yield* page.entries;
      from = page.next;
    }
  }

  /** Null when there is none of that id. */
  async entry(id: number): Promise<QuarantinedPublish | null> {
    const { entries } = await this.page(id, 1);
    return entries[0]?.id === id ? entries[0] : null;
  }

  /** Null when there is none of that id, or it cannot be read. */
  body(id: number): Promise<Uint8Array | null> {
    return this.#send("GET", `/${id}/body`, BODY_BYTES_MAX);
  }

  /** Returns whether there was one of that id that can be read. */
  async retry(id: number): Promise<boolean> {
    return await this.#send("POST", `/${id}/retry`, PAGE_BYTES_MAX) !== null;
  }

  /** Returns whether there was one of that id. */
  async drop(id: number): Promise<boolean> {
    return await this.#send("DELETE", `/${id}`, PAGE_BYTES_MAX) !== null;
  }

  /** The body of the answer; null when it is not in quarantine. */
  async #send(
    method: HttpQuestion["method"],
    path: string,
    bodyBytesMax: number,
  ): Promise<Uint8Array | null> {
    const bounds = { timeoutMs: ANSWER_MS_MAX, bodyBytesMax };
    const answer = await this.#door.ask({ method }, `/v1/quarantine${path}`, bounds);
    if (answer.status === 200) return answer.body;
    const isGone = answer.status === 404 &&
      new TextDecoder().decode(answer.body).includes("NOT_IN_QUARANTINE");
    if (isGone) return null;
    throw this.#door.cannotUse(answer);
  }
}

function pageOf(body: Uint8Array): QuarantinePage | null {
  const value = jsonObject(body);
  if (value === null) return null;
  const { entries, next } = value;
  if (!Array.isArray(entries) || !entries.every(isEntry)) return null;
  return next === null || isId(next) ? { entries, next } : null;
}

function isEntry(value: unknown): value is QuarantinedPublish {
  if (!isObject(value)) return false;
  const isText = (name: string) => typeof value[name] === "string";
  const isTextOrNull = (name: string) => value[name] === null || isText(name);
  return isId(value["id"]) && isId(value["messages"]) && isId(value["bytes"]) &&
    isText("topic") && isText("reason") && isTextOrNull("spooled") && isTextOrNull("broker");
}

function isId(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
