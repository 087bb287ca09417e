/**
 * Reads a sidecar entry by entry: for tools that compare it with its file. The grammar is in
 * `sidecar.ts`.
 */
import { decodeSidecar } from "./sidecar.ts";
import { MISSING, MISSING_WORD } from "./index_word.ts";

/** One offset of a topic, in order: the position of its record or {@linkcode MISSING}, its due time or 0. */
export interface SidecarVisit {
  (topic: number, offset: number, position: number, dueMs: number): void;
}

/** Visits every entry; false when the bytes are of another format or do not add up. */
export function walkSidecar(bytes: Uint8Array, fileStart: number, visit: SidecarVisit): boolean {
  const runs = decodeSidecar(bytes, fileStart);
  if (runs === null) return false;
  for (const { topic, run: { words, count, firstOffset, due } } of runs) {
    let pair = 0;
    for (let index = 0; index < count; index++) {
      const word = words![index]!;
      let dueMs = 0;
      if (due[pair] === index) {
        dueMs = due[pair + 1]!;
        pair += 2;
      }
      visit(topic, firstOffset + index, word === MISSING_WORD ? MISSING : fileStart + word, dueMs);
    }
    // A due time of no message, or out of order.
    if (pair !== due.length) return false;
  }
  return true;
}
