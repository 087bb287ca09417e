/**
 * What a test of crashes knows for sure: what was sent, confirmed, finished on which channel, not to
 * come before which time, and which id each was seen under. Every body is sent once, so a body
 * belongs to one id and an id to one body.
 *
 *     body = name SP padding          ; name = topic SP number SP bytes-of-padding
 *
 * Only names are kept, and a body that arrives must be as long as its name says. A broken promise is
 * noted where it is seen, and the run goes on.
 */
import type { Delivery } from "./raw_client.ts";

import { createHash } from "node:crypto";

/** How a promise can be broken. */
export type ProblemKind =
  | "unknown body"
  | "id repeated"
  | "resurrected"
  | "early"
  | "missing"
  | "twice"
  | "undone"
  | "refused";

/** The most problems that are told in words. */
const PROBLEMS_MAX = 100;

/** What is known about one channel, by names of bodies. */
export class ChannelLedger {
  /** A FIN was sent; whether it counted is not known. */
  readonly finished = new Set<string>();
  /** Its FIN is known to be on disk: it must not come again. */
  readonly finishedDurably = new Set<string>();
  /** Requeued until a wall-clock time, known to be on disk. */
  readonly requeuedUntil = new Map<string, number>();
}

/** See the module. Everything is named by the name of its body. */
export class Ledger {
  /** Confirmed, and not given up since. */
  readonly confirmed = new Set<string>();
  confirmedCount = 0;
  /** Of those the ones that go in parts. */
  largeCount = 0;
  /** Broken promises, in words, as they were seen. */
  readonly problems: string[] = [];
  readonly counts = new Map<ProblemKind, number>();
  delivered = 0;
  readonly #sent = new Set<string>();
  /** Of large bodies, which are not padded with dots. */
  readonly #hashes = new Map<string, string>();
  readonly #dueMs = new Map<string, number>();
  readonly #channels = new Map<string, ChannelLedger>();
  readonly #nameOfId = new Map<string, string>();
  readonly #idOfName = new Map<string, string>();

  get idCount(): number {
    return this.#nameOfId.size;
  }

  /** What is known of a channel, by `topic/channel`. */
  channel(key: string): ChannelLedger {
    let found = this.#channels.get(key);
    if (found === undefined) this.#channels.set(key, found = new ChannelLedger());
    return found;
  }

  /** Bodies that were never used before, with so many bytes of padding each, noted as sent. */
  newBodies(topic: string, count: number, paddingBytes: number, deferMs = 0): string[] {
    return Array.from({ length: count }, () => {
      const name = `${topic} ${this.#sent.size} ${paddingBytes}`;
      this.#sent.add(name);
      if (deferMs > 0) this.#dueMs.set(name, Date.now() + deferMs);
      return `${name} ${".".repeat(paddingBytes)}`;
    });
  }

  /** A body of so many bytes that was never used before, no two parts of which are alike. */
  newLargeBody(topic: string, paddingBytes: number): string {
    const name = `${topic} ${this.#sent.size} ${paddingBytes}`;
    this.#sent.add(name);
    let word = this.#sent.size;
    const next = () => (word = Math.imul(word, 0x01000193) + 0x6d2b79f5 | 0) >>> 8 & 63;
    const padding = Uint8Array.from({ length: paddingBytes }, () => 48 + next());
    const body = `${name} ${new TextDecoder().decode(padding)}`;
    this.#hashes.set(name, hashOf(body));
    return body;
  }

  confirm(bodies: readonly string[]): void {
    for (const body of bodies) this.confirmed.add(nameOf(body));
    this.confirmedCount += bodies.length;
  }

  /** Notes a delivery on the channel `topic/channel` and returns its name. */
  deliver({ id, body }: Delivery, key: string): string {
    const name = nameOf(body);
    const nowMs = Date.now();
    this.delivered++;
    const paddingBytes = Number(name.split(" ")[2]);
    if (!this.#sent.has(name) || body.length !== name.length + 1 + paddingBytes) {
      this.problem("unknown body", `"${name}" of ${body.length} bytes was never sent`);
    }
    const hash = this.#hashes.get(name);
    if (hash !== undefined && hash !== hashOf(body)) {
      this.problem("unknown body", `"${name}" is not what was sent under that name`);
    }
    this.#pair(this.#nameOfId, id, name);
    this.#pair(this.#idOfName, name, id);
    const channel = this.channel(key);
    if (channel.finishedDurably.has(name)) {
      this.problem("resurrected", `"${name}" was finished on ${key}, and came again`);
    }
    const dueMs = Math.max(this.#dueMs.get(name) ?? 0, channel.requeuedUntil.get(name) ?? 0);
    if (dueMs > nowMs) {
      this.problem("early", `"${name}" came on ${key} ${dueMs - nowMs} ms before it was due`);
    }
    channel.requeuedUntil.delete(name);
    return name;
  }

  /** Which confirmed messages of a topic were never finished on its channel: they are lost. */
  missing(topic: string, channel: string): string[] {
    const { finished } = this.channel(`${topic}/${channel}`);
    const lost = [...this.confirmed]
      .filter((name) => name.startsWith(`${topic} `) && !finished.has(name));
    for (const name of lost) this.problem("missing", `"${name}" is lost on ${topic}/${channel}`);
    return lost;
  }

  /** What was confirmed of a topic was given up on purpose. */
  giveUp(topic: string): void {
    for (const name of this.confirmed) {
      if (name.startsWith(`${topic} `)) this.confirmed.delete(name);
    }
  }

  problem(kind: ProblemKind, words: string): void {
    this.counts.set(kind, (this.counts.get(kind) ?? 0) + 1);
    if (this.problems.length < PROBLEMS_MAX) this.problems.push(`${kind}: ${words}`);
  }

  #pair(known: Map<string, string>, key: string, value: string): void {
    const before = known.get(key);
    if (before === undefined) known.set(key, value);
    else if (before !== value) {
      this.problem("id repeated", `"${key}" belongs to "${before}" and to "${value}"`);
    }
  }
}

function hashOf(body: string): string {
  return createHash("sha1").update(body).digest("hex");
}

/** The name of a body. */
export function nameOf(body: string): string {
  return body.split(" ", 3).join(" ");
}
