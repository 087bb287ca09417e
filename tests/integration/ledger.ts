/**
 * What a test of crashes knows for sure: what was sent, confirmed, finished, and which id each was
 * seen under. Every body is sent once, so a body belongs to one id and an id to one body.
 *
 *     body = name SP padding          ; name = topic SP number SP bytes-of-padding
 *
 * Only names are kept, and a body that arrives must be as long as its name says.
 */
import type { Delivery } from "./raw_client.ts";

/** See the module. Everything is named by the name of its body. */
export class Ledger {
  readonly confirmed = new Set<string>();
  /** A FIN was sent; whether it counted is not known. */
  readonly finished = new Set<string>();
  /** Its FIN is known to be on disk: it must not come again. */
  readonly finishedDurably = new Set<string>();
  /** Broken promises that were seen while they happened. */
  readonly problems: string[] = [];
  readonly #sent = new Set<string>();
  readonly #nameOfId = new Map<string, string>();
  readonly #idOfName = new Map<string, string>();

  get idCount(): number {
    return this.#nameOfId.size;
  }

  /** Bodies that were never used before, with so many bytes of padding each, noted as sent. */
  newBodies(topic: string, count: number, paddingBytes: number): string[] {
    return Array.from({ length: count }, () => {
      const name = `${topic} ${this.#sent.size} ${paddingBytes}`;
      this.#sent.add(name);
      return `${name} ${".".repeat(paddingBytes)}`;
    });
  }

  confirm(bodies: readonly string[]): void {
    for (const body of bodies) this.confirmed.add(nameOf(body));
  }

  finish(name: string): void {
    this.finished.add(name);
  }

  finishDurably(names: readonly string[]): void {
    for (const name of names) this.finishedDurably.add(name);
  }

  /**
   * Notes a delivery and returns its name; `worksOff` tells whether it is on the channel where
   * messages are finished.
   */
  deliver({ id, body }: Delivery, worksOff: boolean): string {
    const name = nameOf(body);
    const paddingBytes = Number(name.split(" ")[2]);
    if (!this.#sent.has(name) || body.length !== name.length + 1 + paddingBytes) {
      this.problems.push(`"${name}" of ${body.length} bytes was never sent`);
    }
    this.#pair(this.#nameOfId, id, name);
    this.#pair(this.#idOfName, name, id);
    if (worksOff && this.finishedDurably.has(name)) {
      this.problems.push(`"${name}" was finished, and came again`);
    }
    return name;
  }

  #pair(known: Map<string, string>, key: string, value: string): void {
    const before = known.get(key);
    if (before === undefined) known.set(key, value);
    else if (before !== value) {
      this.problems.push(`"${key}" belongs to "${before}" and to "${value}"`);
    }
  }
}

function nameOf(body: string): string {
  return body.split(" ", 3).join(" ");
}
