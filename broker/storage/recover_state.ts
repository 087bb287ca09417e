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
import { decodeCheckpoint, type DecodedCheckpoint } from "./checkpoint.ts";
import {
  decodeEvent,
  decodeFinish,
  EVENT_KIND,
  findProducer,
  FINISH_KIND,
  LARGE_MESSAGE_KIND,
  MESSAGE_HEADER_BYTES,
  MESSAGE_KIND,
  type MessageHeader,
  PART_KIND,
  readMessageHeader,
  readRequeue,
  readSequence,
  readWireMs,
  REQUEUE_KIND,
  WIRE_HEADER_BYTES,
} from "./records.ts";
import { DEDUP_LIMITS_DEFAULT, DedupBudget, type DedupLimits } from "./dedup_window.ts";
import { isRewritten } from "./file_usage.ts";
import { firstPartOf, messageBytes } from "./large_body.ts";
import { IndexPages, type OpenedSidecar } from "./index_pages.ts";
import { restoreIndex, runsOf, scanIndex } from "./rebuild_index.ts";
import { BrokerState, type TopicState } from "./state.ts";
import { IndexRun } from "./topic_index.ts";

/** A recovered state and how it was reached. */
export interface RecoveredState {
  readonly state: BrokerState;
  /** Position of the checkpoint used; 0 without one. */
  readonly checkpoint: number;
  /** What the checkpoint holds. */
  readonly checkpointBytes: number;
  readonly end: number;
  /** Start of the file that takes appends. */
  readonly fileStart: number;
  readonly tornBytes: number;
  readonly damage: readonly Damage[];
  readonly replayedRecords: number;
}

/** For a state that nobody serves from. */
const INDEX_CACHE_BYTES_DEFAULT = 2 ** 20;

/**
 * Reads everything but the places of messages in sealed files, which `pages` reads when asked.
 * Rejects with {@linkcode LogError} when serving on could lose a message. `progress` is told how
 * far the replay is with every block, and that there is at most so much: the last file counts whole.
 */
export async function recoverState(
  store: LogStore,
  pages = new IndexPages(store, INDEX_CACHE_BYTES_DEFAULT),
  progress: (replayedBytes: number, totalBytes: number) => void = () => {},
  dedup: DedupLimits = DEDUP_LIMITS_DEFAULT,
): Promise<RecoveredState> {
  const { state, position, end: syncedTo, bytes } = await newestCheckpoint(store, dedup);
  const damage: Damage[] = [];
  const replayFrom = replayStart(store.files, position);
  const sidecars = new Map<number, OpenedSidecar>();
  for (const file of store.files) {
    if (file.start >= replayFrom) break;
    const loaded = await loadIndex(store, pages, file, state);
    sidecars.set(file.start, loaded.sidecar);
    damage.push(...loaded.damage);
  }
  const totalBytes = Math.max(0, (store.files.at(-1)?.end ?? 0) - replayFrom);
  progress(0, totalBytes);
  const replay = new Replay(
    state,
    store.files,
    position,
    (at) => progress(at - replayFrom, totalBytes),
  );
  const found = await store.recover(replayFrom, replay, syncedTo);
  damage.push(...found.damage);
  if (found.end < syncedTo) {
    throw new LogError(
      "damaged",
      `Cannot open the log: it ends at position ${found.end}, its checkpoint is of ${syncedTo}`,
    );
  }
  for (const topic of [...state.topics.values()]) {
    if (topic.ephemeral) forgetTopic(state, topic);
    else topic.durableTail = topic.tail;
  }
  for (const file of store.files) {
    const sidecar = sidecars.get(file.start);
    const due = sidecar === undefined ? null : await pages.readDue(sidecar);
    if (sidecar !== undefined && due !== null) {
      for (const [index, { topic, firstOffset }] of sidecar.directory.runs.entries()) {
        settle(state.topicsByNumber.get(topic), firstOffset, due[index]!);
      }
      continue;
    }
    if (sidecar !== undefined) damage.push(...await restoreIndex(store, file, state));
    const runs = runsOf(state, file);
    for (const { topic, run } of runs) {
      settle(state.topicsByNumber.get(topic), run.firstOffset, run.due);
    }
    if (file !== store.files.at(-1)) await pages.store(file, runs);
  }
  return {
    state,
    checkpoint: position,
    checkpointBytes: bytes,
    end: found.end,
    fileStart: store.files.at(-1)?.start ?? found.end,
    tornBytes: found.tornBytes,
    damage,
    replayedRecords: replay.records,
  };
}

async function newestCheckpoint(
  store: LogStore,
  dedup: DedupLimits,
): Promise<DecodedCheckpoint & { readonly position: number }> {
  let failure: unknown = null;
  for (const position of await store.listCheckpoints()) {
    try {
      return { ...await decodeCheckpoint(store.getCheckpoint(position), dedup), position };
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
  return { state: new BrokerState(new DedupBudget(dedup)), position: 0, end: 0, bytes: 0 };
}

/** Start of the file in which replay begins: the one that holds the position. */
function replayStart(files: readonly LogFileInfo[], position: number): number {
  return files.findLast((file) => file.start <= position)?.start ?? position;
}

/** The index of a sealed file, by its sidecar or, where that is of no use, by its records. */
async function loadIndex(
  store: LogStore,
  pages: IndexPages,
  file: LogFileInfo,
  state: BrokerState,
): Promise<{ sidecar: OpenedSidecar; damage: readonly Damage[] }> {
  const sidecar = await pages.open(file);
  if (sidecar !== null) {
    for (const entry of sidecar.directory.runs) {
      const { topic, firstOffset, count, firstPage, messages, bytes } = entry;
      state.topicsByNumber.get(topic)?.index.addRun(
        IndexRun.sealed(firstOffset, count, sidecar.sealed, firstPage, messages, bytes),
      );
    }
    return { sidecar, damage: [] };
  }
  const { runs, damage, holeBytes } = await scanIndex(store, file);
  pages.usage.setHole(file.start, holeBytes);
  for (const [topic, run] of runs) state.topicsByNumber.get(topic)?.index.addRun(run);
  return { sidecar: await pages.store(file, runsOf(state, file)), damage };
}

/** Applies records from a position on; of those before it only the places of messages count. */
class Replay implements RecoveryVisitor {
  records = 0;
  readonly #state: BrokerState;
  readonly #files: readonly LogFileInfo[];
  readonly #from: number;
  readonly #header: MessageHeader = { topic: 0, offset: 0, dueMs: 0, wireStart: 0 };
  readonly #reached: (position: number) => void;
  #fileStart = 0;

  constructor(
    state: BrokerState,
    files: readonly LogFileInfo[],
    from: number,
    reached: (position: number) => void,
  ) {
    this.#state = state;
    this.#files = files;
    this.#from = from;
    this.#reached = reached;
  }

  block(header: BlockHeader): void {
    this.#reached(header.position);
    if (header.position >= this.#from && isRewritten(header)) {
      // A compaction keeps messages only: what was decided there is in the checkpoints it was before.
      throw new LogError(
        "damaged",
        "Cannot open the log: no checkpoint can be read and what was decided at position " +
          `${header.position} has been compacted away`,
      );
    }
    this.#fileStart = this.#files.findLast((file) => file.start <= header.position)?.start ?? 0;
  }

  record(kind: number, bytes: Uint8Array, start: number, end: number, position: number): void {
    const past = position < this.#from;
    if (past && kind !== MESSAGE_KIND && kind !== LARGE_MESSAGE_KIND) return;
    this.records++;
    switch (kind) {
      case PART_KIND:
        // Nothing by itself: the message that names it comes later, or never.
        return;
      case MESSAGE_KIND:
      case LARGE_MESSAGE_KIND: {
        const header = this.#header;
        readMessageHeader(bytes, start, header);
        const storedBytes = messageBytes(kind, bytes, start, end, header.wireStart);
        if (past) {
          this.#state.topicsByNumber.get(header.topic)?.index
            .append(
              header.offset,
              this.#fileStart,
              position,
              header.dueMs,
              storedBytes,
            );
          return;
        }
        this.#state.applyMessage(
          header.topic,
          header.offset,
          header.dueMs,
          this.#fileStart,
          position,
          storedBytes,
          kind === LARGE_MESSAGE_KIND
            ? firstPartOf(bytes, header.wireStart + WIRE_HEADER_BYTES)
            : Infinity,
        );
        if (header.wireStart > start + MESSAGE_HEADER_BYTES) {
          this.#applySequence(header, bytes, start, position);
        }
        return;
      }
      case FINISH_KIND:
        decodeFinish(
          bytes,
          start,
          end,
          (channel, offset) => this.#state.applyFinish(channel, offset, position),
        );
        return;
      case REQUEUE_KIND:
        this.#state.applyRequeue(readRequeue(bytes, start), position);
        return;
      case EVENT_KIND:
        this.#state.applyEvent(decodeEvent(bytes.subarray(start, end)), position);
        return;
      default:
        throw new LogError(
          "newer_format",
          `Cannot open the log: the record at ${position} is of kind ${kind}, which this release ` +
            "does not know",
        );
    }
  }

  /** If the message completes a publish with a sequence: all of it is on disk. */
  #applySequence(
    { topic: number, wireStart }: MessageHeader,
    bytes: Uint8Array,
    start: number,
    position: number,
  ): void {
    const topic = this.#state.topicsByNumber.get(number);
    const at = findProducer(bytes, start, wireStart);
    if (topic === undefined || at < 0) return;
    const sequence = readSequence(bytes, at);
    const timeMs = readWireMs(bytes, wireStart);
    this.#state.applySequence(topic, bytes, at, sequence, timeMs, 0, position);
  }
}

/** Deferred messages of a run that somebody is still owed wait again. */
function settle(topic: TopicState | undefined, firstOffset: number, due: Float64Array): void {
  if (topic === undefined || due.length === 0) return;
  const { liveFrom } = topic;
  const channels = [...topic.channels.values()];
  for (let pair = 0; pair < due.length; pair += 2) {
    const offset = firstOffset + due[pair]!;
    if (offset < liveFrom) continue;
    const owed = channels.length === 0 ||
      channels.some((channel) => !channel.finished.has(offset));
    if (owed) topic.due.push(due[pair + 1]!, offset);
  }
}

function forgetTopic(state: BrokerState, topic: TopicState): void {
  topic.dedup?.close();
  state.topics.delete(topic.name);
  state.topicsByNumber.delete(topic.number);
  for (const channel of topic.channels.values()) state.channelsByNumber.delete(channel.number);
}
