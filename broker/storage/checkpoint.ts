/**
 * A checkpoint: the durable state, written in slices while it goes on changing. Places of messages
 * are not in it; they come from the sidecars and from the log.
 *
 * ```
 * checkpoint = header *topic end
 * header(1)  = format:u32
 * topic      = topic_begin *channel *large [dedup *(producer *sequences)] [policy] topic_end
 * topic_begin(2)   = number:u32 ephemeral:u8 name
 * channel    = channel_begin [*page floor] *requeue
 * channel_begin(3) = number:u32 includes:u64 paused:u8 start:u64 floor:u64 name
 * page(4)    = number:u64 count:u16 runs|words  ; count 0: 1024 words of 32 bits, else first:u16 last:u16 a run
 * floor(5)   = floor:u64
 * requeue(6) = offset:u64 attempts:u32 due:u64
 * topic_end(7)     = includes:u64 tail:u64 keep_from:u64 paused:u8 paused_at:u64
 * end(8)     = position:u64 next_topic:u32 next_channel:u32
 * policy(9)  = JSON                      ; of the topic; absent when nothing was decided for it
 * large(10)         = offset:u64 first:u64   ; a large message whose body begins in an earlier file
 * dedup(11)         = includes:u64           ; the topic has had publishes with a sequence
 * producer(12)      = id:16 last_ms:u64 low:u64 highest:u64   ; the one idle longest first
 * sequences(13)     = as page, of what the producer's numbers are
 * ```
 *
 * It has one position at which replay begins (the file's), and each topic and channel has the
 * position up to which it **includes** the log. Replay passes over what a topic or channel includes,
 * so each one ends as if it had been written in one piece with the rest. What need not be true at one
 * position, and why it is right all the same:
 * - A channel may take many slices. What it finishes or owes meanwhile may be in it or not: it is in
 *   the log behind `includes`, and a finish or the newest requeue of a message may be applied twice.
 *   A page that was dropped before its turn is below `floor`, which follows the pages; a requeue that
 *   follows `floor` was not finished then.
 * - Values of a topic follow its channels: whatever a channel that is gone before its turn has left
 *   to its topic is in them. What comes later finds the topic or channel and changes it.
 * - Large messages are those of the moment of the walk; replay adds later ones, and one that is
 *   finished meanwhile keeps a file for longer than it must, no more.
 * - Who is remembered as a producer, and in which order, is as of `dedup`, its own `includes`; the numbers
 *   of each are as of its turn, copied in one piece. Those of later records may be among them, and
 *   are added once more by replay, which changes nothing.
 * - What was there when the walk came is visited, and nothing is waited for that came later: its
 *   creation is in the log behind the begin. What was made since then is made anew by replay, with all
 *   that is about it, and what was deleted after its turn is deleted.
 * - Below the end's `position` records may name what was deleted before its turn, and nobody misses
 *   it.
 */
import { LogError } from "@sluice/shared/log";
import { ChunkReader, ChunkWriter, type SliceLimits } from "./checkpoint_chunk.ts";
import {
  DEDUP_LIMITS_DEFAULT,
  DEDUP_SEQUENCES_MAX,
  DedupBudget,
  DedupWindow,
} from "./dedup_window.ts";
import type { DedupLimits, ProducerEntry } from "./dedup_window.ts";
import { fillRun, findRuns, PAGE_WORDS } from "./finished_page.ts";
import { PRODUCER_ID_BYTES } from "./records.ts";
import { BrokerState, ChannelState, TopicState } from "./state.ts";
import type { TopicPolicy } from "./topic_policy.ts";

const FORMAT = 1;

const HEADER = 1;
const TOPIC_BEGIN = 2;
const CHANNEL_BEGIN = 3;
const PAGE = 4;
const FLOOR = 5;
const REQUEUE = 6;
const TOPIC_END = 7;
const END = 8;
const POLICY = 9;
const LARGE = 10;
const DEDUP = 11;
const PRODUCER = 12;
const SEQUENCES = 13;

/** The runs of the page under work. One with more runs than fit is not larger as words. */
const RUNS = new Uint16Array(2 * (PAGE_WORDS - 1));
const PAGE_WORK = 16;
/** About a millisecond of a slow machine, and memory that nobody notices. */
const SLICE_LIMITS: SliceLimits = { bytes: 64 * 1024, work: 4096 };

/**
 * Writes the state, slice by slice; the last one is returned. Whoever takes a slice lets others run
 * before the next, and the state may change meanwhile as long as the log says so. `logEnd` is the
 * log's end at any time; what it was before the first slice is where replay begins. A slice may be
 * empty and is valid until the next is asked for. All is worth nothing before the log is durable up to
 * its end after the last one.
 */
export function* encodeCheckpoint(
  state: BrokerState,
  logEnd: () => number,
  limits: SliceLimits = SLICE_LIMITS,
): Generator<Uint8Array, Uint8Array, void> {
  const chunk = new ChunkWriter(limits);
  chunk.u8(HEADER);
  chunk.u32(FORMAT);
  let topicsLeft = state.topics.size;
  for (const topic of state.topics.values()) {
    if (topicsLeft-- === 0) break;
    if (chunk.isOver) yield chunk.take();
    writeTopicBegin(chunk, topic);
    let channelsLeft = topic.channels.size;
    for (const channel of topic.channels.values()) {
      if (channelsLeft-- === 0) break;
      if (chunk.isOver) yield chunk.take();
      if (channel.number === 0) chunk.work++;
      else yield* encodeChannel(chunk, channel, logEnd);
    }
    // Replaced when some are forgotten: what was there is still there for the walk.
    for (const { offset, first } of topic.largePins) {
      if (chunk.isOver) yield chunk.take();
      chunk.work++;
      chunk.u8(LARGE);
      chunk.u64(offset);
      chunk.u64(first);
    }
    if (topic.dedup !== null) yield* encodeDedup(chunk, topic.dedup, logEnd());
    if (chunk.isOver) yield chunk.take();
    writeTopicEnd(chunk, topic, logEnd());
  }
  if (chunk.isOver) yield chunk.take();
  chunk.u8(END);
  chunk.u64(logEnd());
  chunk.u32(state.nextTopicNumber);
  chunk.u32(state.nextChannelNumber);
  return chunk.take();
}

function* encodeChannel(
  chunk: ChunkWriter,
  channel: ChannelState,
  logEnd: () => number,
): Generator<Uint8Array, void, void> {
  const { finished, requeues } = channel;
  let pagesLeft = finished.pageCount;
  writeChannelBegin(chunk, channel, logEnd());
  if (pagesLeft > 0) {
    for (const [number, page] of finished.pages()) {
      if (pagesLeft-- === 0) break;
      if (chunk.isOver) yield chunk.take();
      writePage(chunk, number, page);
    }
    if (chunk.isOver) yield chunk.take();
    chunk.u8(FLOOR);
    chunk.u64(finished.floor);
  }
  for (const [offset, owed] of requeues) {
    if (chunk.isOver) yield chunk.take();
    chunk.work++;
    chunk.u8(REQUEUE);
    chunk.u64(offset);
    chunk.u32(owed.attempts);
    chunk.u64(owed.dueMs);
  }
}

function* encodeDedup(
  chunk: ChunkWriter,
  dedup: DedupWindow,
  includes: number,
): Generator<Uint8Array, void, void> {
  // Before anybody else has a turn: these are the producers of `includes`.
  const entries = dedup.entries();
  chunk.work += 1 + entries.length / PAGE_WORK;
  chunk.u8(DEDUP);
  chunk.u64(includes);
  for (const entry of entries) {
    if (chunk.isOver) yield chunk.take();
    writeProducer(chunk, entry);
    for (const [number, page] of dedup.pagesOf(entry)) {
      if (chunk.isOver) yield chunk.take();
      writePage(chunk, number, page, SEQUENCES);
    }
  }
}

function writeProducer(chunk: ChunkWriter, { id, lastMs, low, highest }: ProducerEntry): void {
  chunk.work++;
  chunk.u8(PRODUCER);
  for (const byte of id) chunk.u8(byte);
  chunk.u64(lastMs);
  chunk.u64(low);
  chunk.u64(highest);
}

function writeTopicBegin(chunk: ChunkWriter, topic: TopicState): void {
  chunk.work++;
  chunk.u8(TOPIC_BEGIN);
  chunk.u32(topic.number);
  chunk.u8(Number(topic.ephemeral));
  chunk.text(topic.name);
}

function writeChannelBegin(chunk: ChunkWriter, channel: ChannelState, includes: number): void {
  chunk.work++;
  chunk.u8(CHANNEL_BEGIN);
  chunk.u32(channel.number);
  chunk.u64(includes);
  chunk.u8(Number(channel.paused));
  chunk.u64(channel.start);
  chunk.u64(channel.finished.floor);
  chunk.text(channel.name);
}

function writePage(
  chunk: ChunkWriter,
  number: number,
  page: Uint32Array,
  tag = PAGE,
): void {
  chunk.work += PAGE_WORK;
  const count = findRuns(page, RUNS);
  if (count === 0) return;
  chunk.u8(tag);
  chunk.u64(number);
  chunk.u16(Math.max(0, count));
  if (count < 0) {
    for (let at = 0; at < PAGE_WORDS; at++) chunk.u32(page[at]!);
  } else {
    for (let at = 0; at < 2 * count; at++) chunk.u16(RUNS[at]!);
  }
}

function writeTopicEnd(chunk: ChunkWriter, topic: TopicState, includes: number): void {
  if (Object.keys(topic.policy).length > 0) {
    chunk.u8(POLICY);
    chunk.text(JSON.stringify(topic.policy));
  }
  chunk.u8(TOPIC_END);
  chunk.u64(includes);
  chunk.u64(topic.tail);
  chunk.u64(topic.keepFrom);
  chunk.u8(Number(topic.paused));
  chunk.u64(topic.pausedAt);
}

/** What a checkpoint tells. */
export interface DecodedCheckpoint {
  /** Ready for replay, not for use. */
  readonly state: BrokerState;
  /** The log was durable up to here once. */
  readonly end: number;
  /** Of all chunks. */
  readonly bytes: number;
}

/**
 * Reads a checkpoint. Throws {@linkcode LogError} when it is of another format or not a checkpoint,
 * and what `chunks` throws.
 */
export async function decodeCheckpoint(
  chunks: AsyncIterable<Uint8Array>,
  dedup: DedupLimits = DEDUP_LIMITS_DEFAULT,
): Promise<DecodedCheckpoint> {
  const decoder = new Decoder(new BrokerState(new DedupBudget(dedup)));
  for await (const chunk of chunks) decoder.add(chunk);
  return decoder.finish();
}

/** Builds a state from entries as they come. */
class Decoder {
  readonly #state: BrokerState;
  #expectsHeader = true;
  #topic: TopicState | null = null;
  #channel: ChannelState | null = null;
  #end = -1;
  #bytes = 0;
  /** The topic's, once it has a producer. */
  #dedup: DedupWindow | null = null;

  constructor(state: BrokerState) {
    this.#state = state;
  }

  add(bytes: Uint8Array): void {
    this.#bytes += bytes.length;
    const chunk = new ChunkReader(bytes);
    while (!chunk.isAtEnd) {
      const tag = chunk.u8();
      if (this.#end >= 0 || this.#expectsHeader !== (tag === HEADER)) throw malformed();
      this.#entry(tag, chunk);
    }
  }

  finish(): DecodedCheckpoint {
    if (this.#end < 0) throw malformed();
    return { state: this.#state, end: this.#end, bytes: this.#bytes };
  }

  #entry(tag: number, chunk: ChunkReader): void {
    switch (tag) {
      case HEADER:
        this.#expectsHeader = false;
        return checkFormat(chunk.u32());
      case TOPIC_BEGIN:
        return this.#beginTopic(chunk);
      case CHANNEL_BEGIN:
        return this.#beginChannel(chunk);
      case PAGE:
        return readPage(chunk, this.#openChannel().finished);
      case FLOOR:
        this.#openChannel().finished.raise(chunk.u64());
        return;
      case REQUEUE: {
        const offset = chunk.u64();
        const attempts = chunk.u32();
        this.#openChannel().requeues.set(offset, attempts, chunk.u64());
        return;
      }
      case POLICY:
        this.#openTopic().policy = JSON.parse(chunk.text()) as TopicPolicy;
        return;
      case LARGE: {
        const offset = chunk.u64();
        this.#openTopic().pinLarge(offset, chunk.u64());
        return;
      }
      case DEDUP: {
        const dedup = this.#openTopic().dedup = new DedupWindow(this.#state.dedup);
        dedup.includes = chunk.u64();
        return;
      }
      case PRODUCER:
        this.#dedup = this.#openTopic().dedup;
        return readProducer(chunk, this.#dedup);
      case SEQUENCES:
        return readPage(chunk, this.#openProducer());
      case TOPIC_END:
        readTopicEnd(chunk, this.#openTopic());
        this.#topic = null;
        this.#channel = null;
        this.#dedup = null;
        return;
      case END:
        if (this.#topic !== null) throw malformed();
        this.#end = chunk.u64();
        this.#state.orphansFrom = this.#end;
        this.#state.nextTopicNumber = chunk.u32();
        this.#state.nextChannelNumber = chunk.u32();
        return;
      default:
        throw malformed();
    }
  }

  #beginTopic(chunk: ChunkReader): void {
    if (this.#topic !== null) throw malformed();
    const number = chunk.u32();
    const ephemeral = chunk.u8() === 1;
    const topic = new TopicState(number, chunk.text(), ephemeral);
    // Of two of one name the later one lives: replay deletes the other.
    this.#state.topics.set(topic.name, topic);
    this.#state.topicsByNumber.set(number, topic);
    this.#topic = topic;
  }

  #beginChannel(chunk: ChunkReader): void {
    const topic = this.#openTopic();
    const number = chunk.u32();
    const includes = chunk.u64();
    const paused = chunk.u8() === 1;
    const start = chunk.u64();
    const floor = chunk.u64();
    const channel = new ChannelState(number, topic, chunk.text(), false, start);
    channel.includes = includes;
    channel.paused = paused;
    channel.finished.raise(floor);
    topic.channels.set(channel.name, channel);
    this.#state.channelsByNumber.set(number, channel);
    this.#channel = channel;
  }

  #openTopic(): TopicState {
    if (this.#topic === null) throw malformed();
    return this.#topic;
  }

  #openProducer(): DedupWindow {
    if (this.#dedup === null) throw malformed();
    return this.#dedup;
  }

  #openChannel(): ChannelState {
    if (this.#channel === null) throw malformed();
    return this.#channel;
  }
}

function checkFormat(format: number): void {
  if (format === FORMAT) return;
  throw new LogError("newer_format", `Cannot read the checkpoint: format ${format}`);
}

function readProducer(chunk: ChunkReader, dedup: DedupWindow | null): void {
  const id = Uint8Array.from({ length: PRODUCER_ID_BYTES }, () => chunk.u8());
  const lastMs = chunk.u64();
  const low = chunk.u64();
  const highest = chunk.u64();
  if (dedup === null || low > highest || highest - low >= DEDUP_SEQUENCES_MAX) throw malformed();
  dedup.restore({ id, lastMs, low, highest });
}

/** Who has pages. */
interface PageOwner {
  addPage(number: number, page: Uint32Array): void;
}

function readPage(chunk: ChunkReader, owner: PageOwner): void {
  const number = chunk.u64();
  const count = chunk.u16();
  const page = new Uint32Array(PAGE_WORDS);
  if (count === 0) {
    for (let at = 0; at < PAGE_WORDS; at++) page[at] = chunk.u32();
  }
  for (let run = 0; run < count; run++) {
    const first = chunk.u16();
    fillRun(page, first, chunk.u16() + 1);
  }
  owner.addPage(number, page);
}

function readTopicEnd(chunk: ChunkReader, topic: TopicState): void {
  topic.includes = chunk.u64();
  topic.tail = chunk.u64();
  topic.keepFrom = chunk.u64();
  topic.paused = chunk.u8() === 1;
  topic.pausedAt = chunk.u64();
}

function malformed(): LogError {
  return new LogError("damaged", "What was stored as a checkpoint is none");
}
