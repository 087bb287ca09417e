/** What the tests of this folder share: blocks made by hand, and a visitor that keeps what it is shown. */
import { crc32 } from "node:zlib";
import {
  BLOCK_HEADER_BYTES,
  type BlockHeader,
  recordBytes,
  recordCrc,
  recordWord,
  writeBlockHeader,
} from "./block.ts";
import type { CommitLogOwner } from "./commit_log.ts";
import type { LogError, LogFileInfo, LogStore, RecoveryVisitor } from "./log_store.ts";

/** A record to write, or one that was read. */
export interface TestRecord {
  readonly kind: number;
  readonly payload: Uint8Array;
}

/** A record of kind 1 that holds `text`. */
export function textRecord(text: string): TestRecord {
  return { kind: 1, payload: new TextEncoder().encode(text) };
}

/** The bytes of a block of these records; what the header does not say is 0, the epoch 1. */
export function buildBlock(
  header: Partial<BlockHeader>,
  records: readonly TestRecord[],
): Uint8Array<ArrayBuffer> {
  const recordsBytes = records.reduce((sum, { payload }) => sum + recordBytes(payload.length), 0);
  const bytes = new Uint8Array(BLOCK_HEADER_BYTES + recordsBytes);
  const view = new DataView(bytes.buffer);
  let at = BLOCK_HEADER_BYTES;
  for (const { kind, payload } of records) {
    const word = recordWord(kind, payload.length);
    view.setUint32(at, word, true);
    view.setUint32(at + 4, kind === 0 ? 0 : recordCrc(word, payload), true);
    bytes.set(payload, at + 8);
    at += recordBytes(payload.length);
  }
  writeBlockHeader(view, 0, {
    epoch: 1,
    position: 0,
    synced: 0,
    firstSequence: 0,
    recordsBytes,
    recordCount: records.length,
    recordsCrc: crc32(bytes.subarray(BLOCK_HEADER_BYTES)),
    ...header,
  });
  return bytes;
}

/** Puts byte arrays behind each other. */
export function concat(...parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Keeps copies of all it is shown. */
export class Collector implements RecoveryVisitor {
  readonly headers: BlockHeader[] = [];
  readonly records: (TestRecord & { readonly position: number })[] = [];

  block(header: BlockHeader): void {
    this.headers.push(header);
  }

  record(kind: number, bytes: Uint8Array, start: number, end: number, position: number): void {
    this.records.push({ kind, payload: bytes.slice(start, end), position });
  }

  /** The payloads as text. */
  get texts(): string[] {
    return this.records.map(({ payload }) => new TextDecoder().decode(payload));
  }
}

/** Keeps what a log reports, and adds what `onClosing` adds. */
export class TestOwner implements CommitLogOwner {
  sequence = 1;
  readonly writtenEnds: number[] = [];
  readonly durableEnds: number[] = [];
  readonly sealedFiles: LogFileInfo[] = [];
  readonly errors: Error[] = [];
  onClosing: () => void = () => {};
  onWritten: (end: number) => void = () => {};
  onDurable: (end: number) => void = () => {};
  onStalled: (error: LogError) => Promise<void> = (error) => Promise.reject(error);

  closing(): void {
    this.onClosing();
  }

  firstSequence(): number {
    return this.sequence;
  }

  written(end: number): void {
    this.writtenEnds.push(end);
    this.onWritten(end);
  }

  durable(end: number): void {
    this.durableEnds.push(end);
    this.onDurable(end);
  }

  sealed(file: LogFileInfo): void {
    this.sealedFiles.push(file);
  }

  stalled(error: LogError): Promise<void> {
    return this.onStalled(error);
  }

  failed(error: Error): void {
    this.errors.push(error);
  }
}

/** Chunks for a checkpoint, one after the other. */
export async function* chunksOf(...chunks: Uint8Array[]): AsyncGenerator<Uint8Array> {
  // Some time passes, as with a disk.
  await Promise.resolve();
  yield* chunks;
}

/** All that comes, copied, since it is borrowed. */
export async function gathered(chunks: AsyncIterable<Uint8Array>): Promise<Uint8Array[]> {
  const copies: Uint8Array[] = [];
  for await (const chunk of chunks) copies.push(chunk.slice());
  return copies;
}

/** Has a block on disk. */
export async function appendTo(
  store: LogStore,
  parts: readonly Uint8Array[],
  roll = false,
): Promise<void> {
  await store.write(parts, roll);
  await store.sync();
}
