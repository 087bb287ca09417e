/**
 * The link of a broker's session: answers that wait for the log, and messages beside them.
 *
 * - Answers go out in the order they were made, each once the log is durable up to its position, or for
 *   a publish to a relaxed topic once it is written.
 * - No message is sent before the OK to SUB.
 *
 * The life of the connection is that of every NSQ connection: see `NsqLink`.
 */
import { encodeErrorFrame, OK_FRAME, publishFailed, Verb } from "@sluice/shared/protocol";
import type { Connection } from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import {
  type BodySource,
  NsqLink,
  type NsqLinkOwner,
  type OutboxBuffers,
} from "@sluice/shared/server";
import type { Broker, DurableWaiter, Flushable } from "../broker.ts";
import { ReplyQueue } from "./reply_queue.ts";

/** See the module. */
export class SessionLink extends NsqLink<ReplyQueue> implements DurableWaiter, Flushable {
  readonly #broker: Broker;
  readonly #owner: NsqLinkOwner;
  #waiting = false;
  /** Messages wait until the log is durable up to here and the OK to SUB has gone out. */
  #messagesFrom = 0;

  constructor(
    broker: Broker,
    connection: Connection,
    owner: NsqLinkOwner,
    logger: Logger,
    buffers?: OutboxBuffers,
  ) {
    super(connection, owner, {
      clock: broker.clock,
      logger,
      flushLater: (link) => broker.flushLater(link),
      closes: broker.counters.closes,
      buffers,
    }, (outbox) => new ReplyQueue(outbox));
    this.#broker = broker;
    this.#owner = owner;
  }

  /** The buffer that `reserve` gives room in. */
  get buffer(): Uint8Array {
    return this.outbox.buffer;
  }

  /** Whether a message may be sent now. */
  get writable(): boolean {
    return this.outbox.hasRoom && this.#messagesFrom === 0;
  }

  /** Makes room for a message frame; it goes out after the input at hand. */
  reserve(bytes: number): number {
    this.flushLater();
    return this.outbox.reserve(bytes);
  }

  /** Sends a body behind the frame that `reserve` made room for last. */
  stream(body: BodySource): void {
    this.outbox.stream(body);
  }

  /** Answers OK once what was just put in the log is on disk, or with the system if that is enough. */
  confirm(isRelaxed: boolean): void {
    const { log } = this.#broker.storage;
    this.replies.ok(log.groupStart, log.end, isRelaxed);
    this.#await();
  }

  /** Answers OK once what was put in the log up to `position` is; the same, for what is in it longer. */
  confirmAt(position: number, isRelaxed: boolean): void {
    const { log, confirmableEnd } = this.#broker.storage;
    const isThere = position <= (isRelaxed ? confirmableEnd : log.durableEnd);
    this.#reply(OK_FRAME, isThere ? 0 : position, isRelaxed);
  }

  /** Sends a frame once the log is durable up to `position`, and after what was answered before. */
  reply(frame: Uint8Array, position = 0): void {
    const isDurable = position <= this.#broker.storage.log.durableEnd;
    this.#reply(frame, isDurable ? 0 : position, false);
  }

  #reply(frame: Uint8Array, position: number, isRelaxed: boolean): void {
    this.replies.frame(frame, position, isRelaxed);
    if (this.replies.isEmpty) this.flushLater();
    else this.#await();
  }

  /** Sends no message before the log is durable up to `position`. */
  holdMessages(position: number): void {
    if (position > this.#broker.storage.log.durableEnd) this.#messagesFrom = position;
  }

  /** Stops reading until the broker has room again. */
  blockForRoom(): void {
    this.blockUntil(this.#broker.room());
  }

  // DurableWaiter

  written(_end: number): boolean {
    return this.durable(this.#broker.storage.log.durableEnd);
  }

  durable(end: number): boolean {
    if (this.closed) return false;
    if (this.replies.release(end, this.#broker.storage.confirmableEnd)) this.flushLater();
    if (this.#messagesFrom !== 0 && this.#messagesFrom <= end) {
      this.#messagesFrom = 0;
      this.#owner.writableAgain();
    }
    this.#waiting = !this.replies.isEmpty;
    this.released();
    return this.#waiting;
  }

  failed(_error: Error): void {
    this.#waiting = false;
    if (this.closed) return;
    this.because("storage_failed");
    // Which of the unanswered publishes are on disk is not known; none of them is confirmed.
    this.replies.clear();
    this.outbox.add(encodeErrorFrame(publishFailed(Verb.PUB, "the log cannot be written")));
    if (this.ended) this.outbox.endAfterFlush();
    else this.end(true);
  }

  #await(): void {
    if (this.#waiting) return;
    this.#waiting = true;
    this.#broker.await(this);
  }
}
