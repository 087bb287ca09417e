/** Finds messages in the storage for the channels. */
import {
  RECORD_HEADER_BYTES,
  recordCrc,
  recordWordBytes,
  recordWordKind,
} from "@sluice/shared/log";
import { parseMessageId, readTimestampMs } from "@sluice/shared/protocol";
import type { Clock } from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import { Gate } from "./gate.ts";
import {
  COLD,
  FOUND,
  GONE,
  type LargeMessage,
  type MessageSource,
  type MessageView,
} from "./queue/mod.ts";
import {
  LARGE_MESSAGE_KIND,
  type MessageHeader,
  MISSING,
  NOT_LOADED,
  readMessageHeader,
  readTable,
  readU32,
  type Storage,
  type TopicState,
  WIRE_HEADER_BYTES,
  WIRE_ID_OFFSET,
} from "./storage/mod.ts";

/** After a failed read, so that a bad disk is not asked in a tight loop. */
const RETRY_MS = 1000;
/** After a read that did not bring what was asked for. */
const MISSED_MS = 1;

/** The {@linkcode MessageSource} over a {@linkcode Storage}. What comes from disk is verified. */
export class MessageReader implements MessageSource {
  readonly view: MessageView;
  isCold = false;
  /** Messages that could not be delivered because their record is damaged. */
  damagedCount = 0;
  readonly #view: { -readonly [K in keyof MessageView]: MessageView[K] } = {
    bytes: new Uint8Array(),
    start: 0,
    length: 0,
    sequence: 0,
    dueMs: 0,
    large: null,
  };
  readonly #storage: Storage;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #passedOver: (topic: string, offset: number, position: number) => void;
  readonly #gate: Gate;
  readonly #header: MessageHeader = { topic: 0, offset: 0, dueMs: 0, wireStart: 0 };

  /** `passedOver` is told of each message that is damaged. */
  constructor(
    storage: Storage,
    clock: Clock,
    logger: Logger,
    passedOver: (topic: string, offset: number, position: number) => void = () => {},
  ) {
    this.#storage = storage;
    this.#clock = clock;
    this.#logger = logger.component("storage");
    this.#passedOver = passedOver;
    this.#gate = new Gate(storage.loadsMax);
    this.view = this.#view;
  }

  find(topic: TopicState, offset: number): typeof FOUND | typeof COLD | typeof GONE {
    // What is gone counts as well: there may be many in a row.
    this.isCold = true;
    const position = topic.index.position(offset);
    if (position === MISSING) return GONE;
    if (position === NOT_LOADED) return COLD;
    const { reader, log } = this.#storage;
    if (position >= log.hotStart) {
      // In the ring, in one piece.
      this.isCold = false;
      const { ring } = log;
      const at = position & log.mask;
      return this.#show(topic, offset, position, ring, at, readU32(ring, at));
    }
    if (!reader.view(position, RECORD_HEADER_BYTES)) return COLD;
    const word = readU32(reader.bytes, reader.start);
    const recordBytes = RECORD_HEADER_BYTES + recordWordBytes(word);
    const next = topic.index.position(offset + 1);
    if (next === NOT_LOADED) return COLD;
    if (this.#reachesTooFar(next, position + recordBytes)) {
      return this.#damaged(topic, offset, position);
    }
    if (!reader.view(position, recordBytes)) return COLD;
    const { bytes, start } = reader;
    const payload = bytes.subarray(start + RECORD_HEADER_BYTES, start + recordBytes);
    if (recordCrc(word, payload) !== readU32(bytes, start + RECORD_HEADER_BYTES - 4)) {
      return this.#damaged(topic, offset, position);
    }
    return this.#show(topic, offset, position, bytes, start, word);
  }

  /** Points `view` at the message of the record at `bytes[at]`, unless it is another one's. */
  #show(
    topic: TopicState,
    offset: number,
    position: number,
    bytes: Uint8Array,
    at: number,
    word: number,
  ): typeof FOUND | typeof GONE {
    const header = this.#header;
    const end = at + RECORD_HEADER_BYTES + recordWordBytes(word);
    readMessageHeader(bytes, at + RECORD_HEADER_BYTES, header);
    if (header.topic !== topic.number || header.offset !== offset) {
      return this.#damaged(topic, offset, position);
    }
    const view = this.#view;
    view.bytes = bytes;
    view.start = header.wireStart;
    view.length = end - header.wireStart;
    view.dueMs = header.dueMs;
    view.large = null;
    if (recordWordKind(word) === LARGE_MESSAGE_KIND) {
      view.length = WIRE_HEADER_BYTES;
      const body = readTable(bytes, header.wireStart + WIRE_HEADER_BYTES, end, position);
      if (body === null) return this.#damaged(topic, offset, position);
      view.large = { topic, offset, position, body };
    }
    view.sequence = parseMessageId(
      bytes,
      header.wireStart + WIRE_ID_OFFSET,
      this.#storage.nodeId,
    );
    return FOUND;
  }

  timestampMs(): number {
    return readTimestampMs(this.#view.bytes, this.#view.start);
  }

  /** A large message turned out to be damaged when its body was read. */
  passOver({ topic, offset, position }: LargeMessage): void {
    this.#damaged(topic, offset, position);
  }

  /**
   * Only so many loads are under way that none pushes out what another one needs: many cold channels
   * over small caches would else do that to each other for ever.
   */
  async load(topic: TopicState, offset: number): Promise<void> {
    await this.#gate.enter();
    let pauseMs = 0;
    try {
      pauseMs = await this.#loadNow(topic, offset) ? 0 : MISSED_MS;
    } catch (error) {
      this.#logger.error("Cannot read a message", {
        topic: topic.name,
        offset,
        error: String(error),
      });
      pauseMs = RETRY_MS;
    } finally {
      this.#gate.leave();
    }
    // Outside: who waits holds up nobody.
    if (pauseMs > 0) await this.#clock.sleep(pauseMs);
  }

  /** Whether it is worth looking again at once. Rejects when the disk does. */
  async #loadNow(topic: TopicState, offset: number): Promise<boolean> {
    const position = await this.#position(topic, offset);
    // The next one's place bounds this one's length.
    const next = await this.#position(topic, offset + 1);
    if (position === MISSING) return true;
    if (position === NOT_LOADED || next === NOT_LOADED) return false;
    const { reader, log } = this.#storage;
    if (position >= log.hotStart) return true;
    await reader.load(position, RECORD_HEADER_BYTES);
    // Pushed out by other readers, or gone: it is looked for again, but not in a tight loop.
    if (!reader.view(position, RECORD_HEADER_BYTES)) return false;
    // Its file was compacted meanwhile: what stands there now has any length.
    if (topic.index.position(offset) !== position) return true;
    const payloadBytes = recordWordBytes(readU32(reader.bytes, reader.start));
    if (this.#reachesTooFar(next, position + RECORD_HEADER_BYTES + payloadBytes)) return true;
    await reader.load(position, RECORD_HEADER_BYTES + payloadBytes);
    return true;
  }

  /** Where a message is, asking the disk if need be. Rejects when the disk does. */
  async #position({ index }: TopicState, offset: number): Promise<number> {
    if (index.position(offset) === NOT_LOADED) await index.load(offset);
    return index.position(offset);
  }

  /** A damaged length must not have the reader wait for bytes that never come. */
  #reachesTooFar(next: number, recordEnd: number): boolean {
    return recordEnd > this.#storage.log.end || (next !== MISSING && recordEnd > next);
  }

  #damaged(topic: TopicState, offset: number, position: number): typeof GONE {
    this.damagedCount++;
    this.#passedOver(topic.name, offset, position);
    this.#logger.error("A message is damaged on disk and is passed over", {
      topic: topic.name,
      offset,
      position,
    });
    return GONE;
  }
}
