/** Names of topics out of records: the same few again and again, without a decoding for each. */
import { textOf } from "./records.ts";

/** Remembers the last name. */
export class TopicNames {
  #bytes: Uint8Array = new Uint8Array(0);
  #name = "";

  /** The name in `bytes[start, end)`. */
  at(bytes: Uint8Array, start: number, end: number): string {
    const known = this.#bytes;
    let same = known.length === end - start && known.length > 0;
    for (let index = 0; same && index < known.length; index++) {
      same = known[index] === bytes[start + index];
    }
    if (same) return this.#name;
    this.#bytes = bytes.slice(start, end);
    return this.#name = textOf(this.#bytes);
  }
}
