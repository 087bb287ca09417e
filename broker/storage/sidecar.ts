/**
 * The sidecar of a sealed log file: where each topic's messages are in it. It saves reading the file
 * at start; a missing or damaged one is rebuilt.
 *
 * ```
 * sidecar = format:u32 runs:u32 *run                                ; little endian
 * run     = topic:u32 count:u32 first_offset:u64 due_count:u32 0:u32 count*word due_count*due
 * word    = u32            ; position of the record from the file's start, 0xffffffff: missing
 * due     = index:u32 0:u32 due_ms:u64
 * ```
 */
import { readU64, writeU64 } from "@sluice/shared/log";
import { IndexRun } from "./topic_index.ts";

const FORMAT = 1;
const HEADER_BYTES = 8;
const RUN_HEADER_BYTES = 24;
const DUE_BYTES = 16;

/** One topic's part of a sidecar. */
export interface SidecarRun {
  readonly topic: number;
  readonly run: IndexRun;
}

/** The bytes of a sidecar with these runs. */
export function encodeSidecar(runs: readonly SidecarRun[]): Uint8Array {
  let bytes = HEADER_BYTES;
  for (const { run } of runs) {
    bytes += RUN_HEADER_BYTES + run.count * 4 + (run.due.length / 2) * DUE_BYTES;
  }
  const into = new Uint8Array(bytes);
  const view = new DataView(into.buffer);
  view.setUint32(0, FORMAT, true);
  view.setUint32(4, runs.length, true);
  let at = HEADER_BYTES;
  for (const { topic, run } of runs) {
    view.setUint32(at, topic, true);
    view.setUint32(at + 4, run.count, true);
    writeU64(view, at + 8, run.firstOffset);
    view.setUint32(at + 16, run.due.length / 2, true);
    at += RUN_HEADER_BYTES;
    for (let index = 0; index < run.count; index++, at += 4) {
      view.setUint32(at, run.words[index]!, true);
    }
    for (let pair = 0; pair < run.due.length; pair += 2, at += DUE_BYTES) {
      view.setUint32(at, run.due[pair]!, true);
      writeU64(view, at + 8, run.due[pair + 1]!);
    }
  }
  return into;
}

/** The runs, or null when the bytes are of another format or do not add up. */
export function decodeSidecar(bytes: Uint8Array, fileStart: number): SidecarRun[] | null {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < HEADER_BYTES || view.getUint32(0, true) !== FORMAT) return null;
  const count = view.getUint32(4, true);
  const runs: SidecarRun[] = [];
  let at = HEADER_BYTES;
  for (let number = 0; number < count; number++) {
    if (at + RUN_HEADER_BYTES > bytes.length) return null;
    const topic = view.getUint32(at, true);
    const messages = view.getUint32(at + 4, true);
    const firstOffset = readU64(view, at + 8);
    const dueCount = view.getUint32(at + 16, true);
    at += RUN_HEADER_BYTES;
    if (at + messages * 4 + dueCount * DUE_BYTES > bytes.length) return null;
    const words = new Uint32Array(messages);
    for (let index = 0; index < messages; index++, at += 4) words[index] = view.getUint32(at, true);
    const run = new IndexRun(fileStart, firstOffset, words);
    for (let index = 0; index < dueCount; index++, at += DUE_BYTES) {
      run.due.push(view.getUint32(at, true), readU64(view, at + 8));
    }
    runs.push({ topic, run });
  }
  return at === bytes.length ? runs : null;
}
