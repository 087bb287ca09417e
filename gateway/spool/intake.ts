/**
 * What comes into a spool: why it is not taken, waiting for room in the ring, and the record.
 *
 * A publish is refused for good before anything of it is in the log, or not at all. What waits for the
 * ring waits in the order of the calls, with no more bytes together than the ring has.
 */
import { BLOCK_HEADER_BYTES, recordBytes } from "@sluice/shared/log";
import { type Clock, Serial } from "@sluice/shared/runtime";
import type { Publish } from "../publish.ts";
import {
  FREE_LANE,
  PINNED_LANE,
  PUBLISH_HEADER_BYTES,
  PUBLISH_KIND,
  textBytes,
  writePublish,
} from "./records.ts";
import { SpoolRefusal, type SpoolRefusalCode } from "./spool_entry.ts";
import type { SpoolLog } from "./spool_log.ts";
import { ringBytesFor, type SpoolOptions } from "./spool_options.ts";
import type { SpoolState } from "./spool_state.ts";

/** What an intake works on. */
export interface IntakeParts {
  readonly state: SpoolState;
  readonly log: SpoolLog;
  readonly clock: Clock;
  /** What the log takes on disk. */
  readonly fileBytes: () => number;
}

const COUNT_MAX_DEFAULT = 65_536;
/** Of `bytesMax`, what publishes leave to decisions: this share, and so much at most. */
const HEAD_SHARE = 8;
const HEAD_BYTES_MAX = 64 * 1024 * 1024;
const NO_BYTES: Readonly<Uint8Array> = new Uint8Array(0);

/** See the module. */
export class Intake {
  appendedCount = 0;
  readonly refusedCounts: Record<SpoolRefusalCode, number> = {
    full: 0,
    stale: 0,
    failed: 0,
    too_large: 0,
  };
  readonly #options: SpoolOptions;
  readonly #state: SpoolState;
  readonly #log: SpoolLog;
  readonly #clock: Clock;
  readonly #fileBytes: () => number;
  readonly #headBytes: number;
  readonly #ringBytes: number;
  /** Publishes that wait for room in the ring, in the order of the calls. */
  readonly #appends = new Serial();
  #waitingBytes = 0;
  /** Of the last publish that found no space. */
  #refusedBytes = 0;
  #isStopped = false;

  constructor(options: SpoolOptions, { state, log, clock, fileBytes }: IntakeParts) {
    this.#options = options;
    this.#state = state;
    this.#log = log;
    this.#clock = clock;
    this.#fileBytes = fileBytes;
    this.#headBytes = Math.min(HEAD_BYTES_MAX, Math.floor(options.bytesMax / HEAD_SHARE));
    this.#ringBytes = ringBytesFor(options.recordBytesMax);
  }

  /** A publish would be refused for want of space. */
  get isFull(): boolean {
    return this.#log.isDiskFull || !this.#hasSpace(this.#refusedBytes);
  }

  /** Takes nothing more. */
  stop(): void {
    this.#isStopped = true;
  }

  /** Has a publish on disk when it resolves; rejects with {@linkcode SpoolRefusal}. */
  append(publish: Publish, broker: string | null): Promise<void> {
    const topic = textBytes(publish.topic);
    const brokerName = broker === null ? NO_BYTES : textBytes(broker);
    const payloadBytes = PUBLISH_HEADER_BYTES + topic.length + brokerName.length +
      publish.body.length;
    const bytes = recordBytes(payloadBytes);
    const refusal = this.#refusal(publish.topic, broker, bytes);
    if (refusal !== null) return this.#refused(refusal);
    if (broker === null) this.#state.announce(publish.topic);
    const put = () => this.#put(publish, broker, topic, brokerName, payloadBytes);
    if (this.#appends.idle && this.#log.log.hasRoom(bytes)) return put();
    return this.#putLater(publish.topic, broker, bytes, put);
  }

  #hasSpace(bytes: number): boolean {
    const used = this.#fileBytes() + this.#waitingBytes + BLOCK_HEADER_BYTES + bytes;
    return used <= this.#options.bytesMax - this.#headBytes;
  }

  /** Why a publish is not taken now, if it is not. */
  #refusal(topic: string, broker: string | null, bytes: number): SpoolRefusal | null {
    const { recordBytesMax, ageMsMax, pinnedMax, topicsMax } = this.#options;
    const state = this.#state;
    if (this.#isStopped) return new SpoolRefusal("failed", "The spool is closed");
    if (this.#log.log.error !== null) {
      return new SpoolRefusal("failed", `The spool has failed: ${this.#log.log.error.message}`);
    }
    if (bytes > recordBytes(recordBytesMax)) {
      return new SpoolRefusal(
        "too_large",
        `A publish of ${bytes} bytes is too large for the spool`,
      );
    }
    if (this.#log.isDiskFull) return new SpoolRefusal("full", "The disk of the spool is full");
    if (!this.#hasSpace(bytes)) {
      this.#refusedBytes = bytes;
      return new SpoolRefusal("full", "The spool is full");
    }
    if (this.#waitingBytes + bytes > this.#ringBytes) {
      return new SpoolRefusal("full", "The disk of the spool is too slow");
    }
    if (broker !== null && state.pinnedCount >= (pinnedMax ?? COUNT_MAX_DEFAULT)) {
      return new SpoolRefusal(
        "full",
        "The spool has too many publishes that wait for their broker",
      );
    }
    if (
      broker === null && state.topicCount >= (topicsMax ?? COUNT_MAX_DEFAULT) &&
      !state.hasBacklog(topic)
    ) {
      return new SpoolRefusal("full", "The spool has too many topics");
    }
    const { oldestWallMs } = state;
    // What a broker may have would else end as ambiguous, and there is never much of it.
    if (
      broker === null && oldestWallMs !== null && this.#clock.wallMs() - oldestWallMs > ageMsMax
    ) {
      return new SpoolRefusal("stale", "Publishes have been in the spool for too long");
    }
    return null;
  }

  #refused(refusal: SpoolRefusal): Promise<never> {
    this.refusedCounts[refusal.code]++;
    return Promise.reject(refusal);
  }

  async #putLater(
    topic: string,
    broker: string | null,
    bytes: number,
    put: () => Promise<void>,
  ): Promise<void> {
    this.#waitingBytes += bytes;
    // In an object, so that the next one does not wait for the disk as well.
    const { durable } = await this.#appends.run(async () => {
      try {
        while (!this.#log.log.hasRoom(bytes)) {
          const refusal = this.#waitingRefusal();
          if (refusal !== null) {
            if (broker === null) this.#state.withdraw(topic);
            return { durable: this.#refused(refusal) };
          }
          await this.#log.log.room();
        }
        return { durable: put() };
      } finally {
        this.#waitingBytes -= bytes;
      }
    });
    await durable;
  }

  /** A publish that is not in the log yet is not kept waiting for a disk that is full. */
  #waitingRefusal(): SpoolRefusal | null {
    if (this.#log.log.error !== null || this.#isStopped) {
      return new SpoolRefusal("failed", "The spool has failed, or is closed");
    }
    if (this.#log.isDiskFull) return new SpoolRefusal("full", "The disk of the spool is full");
    return null;
  }

  #put(
    publish: Publish,
    broker: string | null,
    topic: Uint8Array,
    brokerName: Uint8Array,
    payloadBytes: number,
  ): Promise<void> {
    const { log } = this.#log;
    if (log.error !== null) {
      if (broker === null) this.#state.withdraw(publish.topic);
      return this.#refused(new SpoolRefusal("failed", "The spool has failed"));
    }
    const lane = broker === null ? FREE_LANE : PINNED_LANE;
    const number = this.#state.nextNumber[lane];
    const spooledWallMs = this.#clock.wallMs();
    const start = log.begin(PUBLISH_KIND, payloadBytes);
    const place = { lane, number, spooledWallMs };
    writePublish(log.ring, log.ringView, start, publish, place, topic, brokerName);
    log.finish();
    this.#state.published(
      {
        ...place,
        id: log.recordPosition,
        topic: publish.topic,
        bodyBytes: publish.body.length,
        messageCount: publish.messageCount,
      },
      broker,
      log.fileStart,
    );
    this.appendedCount++;
    return this.#log.durable();
  }
}
