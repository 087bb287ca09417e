/**
 * Builds the state of a spool from its log, and nothing else: there are no checkpoints.
 *
 * Why that is right, although old files are removed: a file goes when every publish in it and before it
 * is settled, durably, or was written once more behind it, durably. A decision stands behind the publish
 * it is about, so
 *
 * - a decision in a file that is gone was about a publish that is gone, and is not missed;
 * - a decision about a publish that is gone may still be there; its settling stands behind it, or it was
 *   kept, and a keep record says all that was decided before. So it is undone, or repeated, by the time
 *   the replay is at its end. (Where damage has taken the settling, it is dropped there.)
 *
 * The figures of the backlog are what was published less what was settled. A settle record does not say
 * of what topics its publishes are: the files that have some of them are read once more at the end. A
 * backlog that was worked off in order has one or two such files.
 */
import {
  type BlockHeader,
  type Damage,
  LogError,
  type LogStore,
  type RecoveryVisitor,
} from "@sluice/shared/log";
import {
  ASSIGN_KIND,
  decodeAssign,
  decodeKeep,
  decodeQuarantine,
  decodeRetry,
  decodeSettle,
  emptyPublishHeader,
  FREE_LANE,
  KEEP_KIND,
  PUBLISH_KIND,
  QUARANTINE_KIND,
  readPublish,
  RETRY_KIND,
  SETTLE_KIND,
  textOf,
} from "./records.ts";
import { SpoolState } from "./spool_state.ts";
import { TopicNames } from "./topic_names.ts";
import type { PublishFacts } from "./tracked_entry.ts";

/** A recovered state and how it was reached. */
export interface ReplayedSpool {
  readonly state: SpoolState;
  /** Where a block stands before which nothing is in the backlog. */
  readonly scanFrom: number;
  readonly end: number;
  /** Start of the file that takes appends. */
  readonly fileStart: number;
  readonly tornBytes: number;
  readonly damage: readonly Damage[];
  /** Entries that were dropped because their publish is gone. */
  readonly droppedCount: number;
}

/** Reads all of the log. Rejects with {@linkcode LogError} when going on could lose a publish. */
export async function replaySpool(store: LogStore, sliceMs: number): Promise<ReplayedSpool> {
  const state = new SpoolState(sliceMs);
  const first = store.files[0]?.start ?? 0;
  const replay = new Replay(state, store);
  const found = await store.recover(first, replay);
  for (const file of store.files) {
    const numbers = replay.numbers.get(file.start);
    if (numbers === undefined || !state.settled.hasAny(numbers.start, numbers.end)) continue;
    await store.scan(file, new Uncount(state));
  }
  const firstPosition = store.files[0]?.start ?? found.end;
  const droppedCount = state.replayed(firstPosition, (position) => fileStartOf(store, position));
  state.isDoubtful ||= found.damage.length > 0;
  return {
    state,
    scanFrom: scanFrom(store, state, replay) ?? found.end,
    end: found.end,
    fileStart: store.files.at(-1)?.start ?? found.end,
    tornBytes: found.tornBytes,
    damage: found.damage,
    droppedCount,
  };
}

/** The first file that has anything of the free lane which is not settled; null for none. */
function scanFrom(store: LogStore, state: SpoolState, replay: Replay): number | null {
  let expected = replay.firstNumber ?? state.nextNumber[FREE_LANE];
  let from: number | null = null;
  for (const { start } of store.files) {
    const numbers = replay.numbers.get(start);
    if (numbers === undefined) continue;
    const isSettled = numbers.start === expected &&
      state.settled.nextMissing(expected) >= numbers.end;
    if (!isSettled) {
      from = start;
      break;
    }
    expected = numbers.end;
  }
  state.scanned(expected);
  return from;
}

/** Start of the file that holds a position. */
export function fileStartOf(store: LogStore, position: number): number {
  const { files } = store;
  let low = 0;
  let high = files.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (files[middle]!.start <= position) low = middle + 1;
    else high = middle;
  }
  return files[low - 1]?.start ?? 0;
}

/** Numbers `[start, end)` of the free lane. */
interface FileNumbers {
  readonly start: number;
  end: number;
}

/** Reads the facts of publish records. */
class FactsReader {
  readonly header = emptyPublishHeader();
  readonly #topics = new TopicNames();
  #buffer: ArrayBufferLike | null = null;
  #view: DataView = new DataView(new ArrayBuffer(0));

  /** Null when it is no publish. */
  read(bytes: Uint8Array, start: number, end: number, id: number): PublishFacts | null {
    const { header } = this;
    if (this.#buffer !== bytes.buffer) {
      this.#buffer = bytes.buffer;
      this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    }
    if (!readPublish(this.#view, start, end, header)) return null;
    return {
      lane: header.lane,
      number: header.number,
      id,
      topic: this.#topics.at(bytes, header.topicStart, header.brokerStart),
      bodyBytes: end - header.bodyStart,
      messageCount: header.messageCount,
      spooledWallMs: header.spooledWallMs,
    };
  }
}

/** Applies all records in their order. */
class Replay implements RecoveryVisitor {
  /** The number at which the free lane begins. */
  firstNumber: number | null = null;
  /** What numbers of the free lane a file has, by its start. */
  readonly numbers = new Map<number, FileNumbers>();
  readonly #state: SpoolState;
  readonly #store: LogStore;
  readonly #facts = new FactsReader();
  #fileStart = -1;

  constructor(state: SpoolState, store: LogStore) {
    this.#state = state;
    this.#store = store;
  }

  block(header: BlockHeader): void {
    const { nextNumber } = this.#state;
    nextNumber[FREE_LANE] = Math.max(nextNumber[FREE_LANE], header.firstSequence);
    this.firstNumber ??= header.firstSequence;
    this.#fileStart = fileStartOf(this.#store, header.position);
  }

  record(kind: number, bytes: Uint8Array, start: number, end: number, position: number): void {
    switch (kind) {
      case PUBLISH_KIND:
        return this.#published(bytes, start, end, position);
      case ASSIGN_KIND:
        return this.#assigned(bytes.subarray(start, end), position);
      case SETTLE_KIND:
        return this.#settled(bytes.subarray(start, end), position);
      case QUARANTINE_KIND:
        return this.#quarantined(bytes.subarray(start, end), position);
      case RETRY_KIND:
        return this.#retried(bytes.subarray(start, end), position);
      case KEEP_KIND:
        return this.#kept(bytes, start, end, position);
      default:
        throw new LogError(
          "newer_format",
          `Cannot open the spool: the record at ${position} is of a kind that this release does not know`,
        );
    }
  }

  #published(bytes: Uint8Array, start: number, end: number, position: number): void {
    const facts = this.#facts.read(bytes, start, end, position);
    if (facts === null) throw unreadable(position);
    const { header } = this.#facts;
    const broker = header.bodyStart === header.brokerStart
      ? null
      : textOf(bytes.subarray(header.brokerStart, header.bodyStart));
    if (facts.lane === FREE_LANE) {
      this.#state.announce(facts.topic);
      this.#note(facts.number);
    }
    this.#state.published(facts, broker, -1);
  }

  #assigned(payload: Uint8Array, position: number): void {
    const assignment = decodeAssign(payload);
    if (assignment === null) throw unreadable(position);
    for (const name of assignment.entries) {
      const entry = this.#state.replayNamed(name);
      if (entry === null) continue;
      entry.broker = assignment.broker;
      entry.assignedWallMs = assignment.assignedWallMs;
    }
  }

  #settled(payload: Uint8Array, position: number): void {
    const runs = decodeSettle(payload);
    if (runs === null) throw unreadable(position);
    for (const { lane, start, end } of runs) this.#state.replaySettled(lane, start, end);
  }

  #quarantined(payload: Uint8Array, position: number): void {
    const fields = decodeQuarantine(payload);
    if (fields === null) throw unreadable(position);
    const entry = this.#state.replayNamed(fields);
    if (entry === null) return;
    entry.setFacts(fields);
    entry.reason = fields.reason;
    entry.isDamaged = fields.isDamaged;
    entry.broker = fields.broker;
    entry.assignedWallMs = fields.assignedWallMs;
  }

  #retried(payload: Uint8Array, position: number): void {
    const name = decodeRetry(payload);
    if (name === null) throw unreadable(position);
    const entry = this.#state.replayNamed(name);
    if (entry !== null) entry.reason = null;
  }

  #kept(bytes: Uint8Array, start: number, end: number, position: number): void {
    const fields = decodeKeep(bytes, start, end);
    const facts = fields === null
      ? null
      : this.#facts.read(bytes, fields.publishStart, end, fields.id);
    if (fields === null || facts === null) throw unreadable(position);
    const entry = this.#state.replayKept(facts, position);
    entry.broker = fields.broker;
    entry.assignedWallMs = fields.assignedWallMs;
    entry.reason = fields.reason;
  }

  #note(number: number): void {
    const known = this.numbers.get(this.#fileStart);
    if (known === undefined) this.numbers.set(this.#fileStart, { start: number, end: number + 1 });
    else known.end = number + 1;
  }
}

/** Takes what is settled out of the figures. */
class Uncount implements RecoveryVisitor {
  readonly #state: SpoolState;
  readonly #facts = new FactsReader();

  constructor(state: SpoolState) {
    this.#state = state;
  }

  block(): void {}

  record(kind: number, bytes: Uint8Array, start: number, end: number, position: number): void {
    if (kind !== PUBLISH_KIND) return;
    const facts = this.#facts.read(bytes, start, end, position);
    if (facts === null || facts.lane !== FREE_LANE) return;
    if (this.#state.settled.has(facts.number)) this.#state.replayUncount(facts);
  }
}

/** Its checksum is right, and what it says makes no sense: nothing that this release wrote. */
function unreadable(position: number): LogError {
  return new LogError(
    "newer_format",
    `Cannot open the spool: the record at ${position} cannot be understood by this release`,
  );
}
