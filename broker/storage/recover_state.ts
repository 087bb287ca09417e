/**
 * Builds the state from what a log store holds: newest readable checkpoint, sidecars of the files
 * before it, replay of the rest.
 */
import {
  type BlockHeader,
  type Damage,
  LogError,
  type LogFileInfo,
  type LogStore,
  type RecoveryVisitor,
} from "@sluice/shared/log";
import { decodeCheckpoint } from "./checkpoint.ts";
import {
  decodeEvent,
  decodeFinish,
  EVENT_KIND,
  FINISH_KIND,
  MESSAGE_KIND,
  type MessageHeader,
  readMessageHeader,
  readRequeue,
  REQUEUE_KIND,
} from "./records.ts";
import { decodeSidecar, encodeSidecar, type SidecarRun } from "./sidecar.ts";
import { BrokerState, type TopicState } from "./state.ts";
import { IndexRun } from "./topic_index.ts";

/** A recovered state and how it was reached. */
export interface RecoveredState {
  readonly state: BrokerState;
  /** Position of the checkpoint used; 0 without one. */
  readonly checkpoint: number;
  readonly end: number;
  /** Start of the file that takes appends. */
  readonly fileStart: number;
  readonly tornBytes: number;
  readonly damage: readonly Damage[];
  readonly replayedRecords: number;
}

/** Reads everything; rejects with {@linkcode LogError} when serving on could lose a message. */
export async function recoverState(store: LogStore): Promise<RecoveredState> {
  const { state, position } = await newestCheckpoint(store);
  const damage: Damage[] = [];
  const replayFrom = replayStart(store.files, position);
  for (const file of store.files) {
    if (file.start < replayFrom) damage.push(...await loadIndex(store, file, state));
  }
  const replay = new Replay(state, store.files, position);
  const found = await store.recover(replayFrom, replay, position);
  damage.push(...found.damage);
  if (found.end < position) {
    throw new LogError(
      "damaged",
      `Cannot open the log: it ends at position ${found.end}, its checkpoint is of ${position}`,
    );
  }
  for (const file of store.files.slice(0, -1)) {
    if (file.start >= replayFrom) await store.putSidecar(file, encodeSidecar(runsOf(state, file)));
  }
  for (const topic of [...state.topics.values()]) {
    if (topic.ephemeral) forgetTopic(state, topic);
    else settleTopic(topic);
  }
  return {
    state,
    checkpoint: position,
    end: found.end,
    fileStart: store.files.at(-1)?.start ?? found.end,
    tornBytes: found.tornBytes,
    damage,
    replayedRecords: replay.records,
  };
}

/** The index runs of one file, for its sidecar. */
export function runsOf(state: BrokerState, file: LogFileInfo): SidecarRun[] {
  const runs: SidecarRun[] = [];
  for (const topic of state.topics.values()) {
    const run = topic.index.runs.find((candidate) => candidate.fileStart === file.start);
    if (run !== undefined) runs.push({ topic: topic.number, run });
  }
  return runs;
}

async function newestCheckpoint(
  store: LogStore,
): Promise<{ state: BrokerState; position: number }> {
  let failure: unknown = null;
  for (const position of await store.listCheckpoints()) {
    try {
      return decodeCheckpoint(await store.getCheckpoint(position));
    } catch (error) {
      if (error instanceof LogError && error.code === "newer_format") throw error;
      failure = error;
    }
  }
  const first = store.files[0];
  if (first !== undefined && first.start > 0) {
    throw new LogError(
      "damaged",
      `Cannot open the log: no checkpoint can be read and the log before position ${first.start} is gone`,
      { cause: failure },
    );
  }
  return { state: new BrokerState(), position: 0 };
}

/** Start of the file in which replay begins: the one that holds the position. */
function replayStart(files: readonly LogFileInfo[], position: number): number {
  return files.findLast((file) => file.start <= position)?.start ?? position;
}

async function loadIndex(
  store: LogStore,
  file: LogFileInfo,
  state: BrokerState,
): Promise<readonly Damage[]> {
  const bytes = await store.getSidecar(file);
  const stored = bytes === null ? null : decodeSidecar(bytes, file.start);
  if (stored !== null) {
    for (const { topic, run } of stored) state.topicsByNumber.get(topic)?.index.addRun(run);
    return [];
  }
  const runs = new Map<number, IndexRun>();
  const header: MessageHeader = { topic: 0, offset: 0, dueMs: 0, wireStart: 0 };
  const damage = await store.scan(file, {
    block() {},
    record(kind, bytes, start, _end, position) {
      if (kind !== MESSAGE_KIND) return;
      readMessageHeader(bytes, start, header);
      let run = runs.get(header.topic);
      if (run === undefined) {
        run = new IndexRun(file.start, header.offset);
        runs.set(header.topic, run);
      }
      run.add(header.offset, position, header.dueMs);
    },
  });
  for (const [topic, run] of runs) state.topicsByNumber.get(topic)?.index.addRun(run);
  await store.putSidecar(file, encodeSidecar(runsOf(state, file)));
  return damage;
}

/** Applies records from a position on; of those before it only the places of messages count. */
class Replay implements RecoveryVisitor {
  records = 0;
  readonly #state: BrokerState;
  readonly #files: readonly LogFileInfo[];
  readonly #from: number;
  readonly #header: MessageHeader = { topic: 0, offset: 0, dueMs: 0, wireStart: 0 };
  #fileStart = 0;

  constructor(state: BrokerState, files: readonly LogFileInfo[], from: number) {
    this.#state = state;
    this.#files = files;
    this.#from = from;
  }

  block(header: BlockHeader): void {
    this.#fileStart = this.#files.findLast((file) => file.start <= header.position)?.start ?? 0;
  }

  record(kind: number, bytes: Uint8Array, start: number, end: number, position: number): void {
    const past = position < this.#from;
    if (past && kind !== MESSAGE_KIND) return;
    this.records++;
    switch (kind) {
      case MESSAGE_KIND: {
        const header = this.#header;
        readMessageHeader(bytes, start, header);
        if (past) {
          this.#state.topicsByNumber.get(header.topic)?.index
            .append(header.offset, this.#fileStart, position, header.dueMs);
          return;
        }
        this.#state.applyMessage(
          header.topic,
          header.offset,
          header.dueMs,
          this.#fileStart,
          position,
        );
        return;
      }
      case FINISH_KIND:
        decodeFinish(
          bytes,
          start,
          end,
          (channel, offset) => this.#state.applyFinish(channel, offset),
        );
        return;
      case REQUEUE_KIND:
        this.#state.applyRequeue(readRequeue(bytes, start));
        return;
      case EVENT_KIND:
        this.#state.applyEvent(decodeEvent(bytes.subarray(start, end)));
        return;
      default:
        throw new LogError(
          "newer_format",
          `Cannot open the log: the record at ${position} is of kind ${kind}, which this release ` +
            "does not know",
        );
    }
  }
}

/** Everything recovered is on disk; deferred messages that somebody is still owed wait again. */
function settleTopic(topic: TopicState): void {
  topic.durableTail = topic.tail;
  const liveFrom = topic.liveFrom;
  const channels = [...topic.channels.values()];
  for (const run of topic.index.runs) {
    for (let pair = 0; pair < run.due.length; pair += 2) {
      const offset = run.firstOffset + run.due[pair]!;
      if (offset < liveFrom) continue;
      const owed = channels.length === 0 ||
        channels.some((channel) => !channel.finished.has(offset));
      if (owed) topic.due.push(run.due[pair + 1]!, offset, 0);
    }
  }
}

function forgetTopic(state: BrokerState, topic: TopicState): void {
  state.topics.delete(topic.name);
  state.topicsByNumber.delete(topic.number);
  for (const channel of topic.channels.values()) state.channelsByNumber.delete(channel.number);
}
