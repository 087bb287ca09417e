/**
 * The sending side of a session and the life of its connection: answers in order, heartbeats, when
 * to stop reading, and how it ends.
 *
 * ```
 * open --end()--> answering --all written--> lingering (after a last word) --> closed
 *    '---------------- broken, silent, stuck, close() --------------------------------^
 * ```
 *
 * - Answers go out in the order they were made, each once the log is durable up to its position, or for
 *   a publish to a relaxed topic once it is written.
 * - A client that leaves too many answers unread is not read from ({@linkcode SessionLink.blocked}).
 * - A client that is silent for two heartbeat intervals, or does not take a write for one, is closed
 *   without a word. A silence that is ours, because the broker has no room, does not count, nor does
 *   the time that the body of a large message takes as long as the client reads on.
 * - After a last word (a fatal error, or that the broker stops) the connection is half closed, and what the
 *   client still sends is read and dropped for a moment: closing with unread bytes would take it back.
 */
import {
  encodeErrorFrame,
  HEARTBEAT_FRAME,
  OK_FRAME,
  publishFailed,
  Verb,
} from "@sluice/shared/protocol";
import { type Connection, ConnectionError, type Timer } from "@sluice/shared/runtime";
import { type BodySource, Outbox, type OutboxListener } from "@sluice/shared/server";
import type { Broker, DurableWaiter, Flushable } from "../broker.ts";
import { ReplyQueue } from "./reply_queue.ts";

/** Messages gather up to this many bytes even when a client asks for a smaller buffer. */
const OUTBOX_MESSAGE_BYTES = 64 * 1024;
/** A client that leaves so many bytes of replies unread is not read from. */
const REPLY_BYTES_MAX = 1024 * 1024;
/** How long a connection that is to be closed may take to read what it is still owed. */
const CLOSE_MS_MAX = 10_000;
/** How long an upgrade of the connection may take, with what has to be written before it. */
export const UPGRADE_MS_MAX = 10_000;
/** How long, and how much, is read and dropped after a fatal error until the client closes. */
export const LINGER_MS_MAX = 1_000;
export const LINGER_BYTES_MAX = 8 * 1024 * 1024;

/** The session behind a link. */
export interface LinkOwner {
  /** Reading may go on where it stopped. */
  resume(): void;
  /** There may be room for messages again. */
  writableAgain(): void;
  /** No more messages are to be sent; what is in flight can still be answered. */
  stopDeliveries(): void;
  /** Nothing more is heard from the client: what is in flight goes back. */
  leave(): void;
  /** The connection is gone. */
  closed(): void;
}

/** See the module. */
export class SessionLink implements DurableWaiter, Flushable, OutboxListener {
  /** Set while nothing more can be taken; resolves when reading may go on. */
  blocked: Promise<void> | null = null;
  /** No command is taken any more: a fatal error or the end of the stream. */
  ended = false;
  closed = false;

  readonly #broker: Broker;
  readonly #connection: Connection;
  readonly #owner: LinkOwner;
  readonly #outbox: Outbox;
  readonly #replies: ReplyQueue;
  #waiting = false;
  #flushing = false;
  /** Messages wait until the log is durable up to here and the OK to SUB has gone out. */
  #messagesFrom = 0;
  /** Whether what comes in after the last word is dropped for a while before closing. */
  #lingers = false;
  /** Bytes still to drop; -1 until the last answer is written. */
  #lingerBytes = -1;
  #lastCommandMs: number;
  #timer: Timer | null = null;
  #unblock: (() => void) | null = null;
  /** Has reading go on that waits for room, since nothing more is stored. */
  #stopWaiting: (() => void) | null = null;
  /** Until an upgrade is over. */
  isUpgrading = false;
  /** What waits until all answers are written, and what goes on after it. */
  #upgrade: { readonly start: () => Promise<void>; readonly resume: () => void } | null = null;

  constructor(broker: Broker, connection: Connection, owner: LinkOwner) {
    this.#broker = broker;
    this.#connection = connection;
    this.#owner = owner;
    this.#outbox = new Outbox(connection, broker.clock, this, OUTBOX_MESSAGE_BYTES);
    this.#replies = new ReplyQueue(this.#outbox);
    this.#lastCommandMs = broker.clock.monoMs();
  }

  /** The buffer that `reserve` gives room in. */
  get buffer(): Uint8Array {
    return this.#outbox.buffer;
  }

  /** Whether a message may be sent now. */
  get writable(): boolean {
    return this.#outbox.hasRoom && this.#messagesFrom === 0;
  }

  /** Makes room for a message frame; it goes out after the input at hand. */
  reserve(bytes: number): number {
    if (!this.#flushing) this.#flushLater();
    return this.#outbox.reserve(bytes);
  }

  /** Sends a body behind the frame that `reserve` made room for last. */
  stream(body: BodySource): void {
    this.#outbox.stream(body);
  }

  /** What IDENTIFY has settled: heartbeats (0: none) and the client's output buffer. */
  settle(heartbeatIntervalMs: number, outputBufferBytes: number): void {
    this.#outbox.messageBytesMax = Math.max(OUTBOX_MESSAGE_BYTES, outputBufferBytes);
    this.#armHeartbeat(heartbeatIntervalMs);
  }

  /** A command has been received. */
  heard(): void {
    this.#lastCommandMs = this.#broker.clock.monoMs();
  }

  /** Answers OK once what was just put in the log is on disk, or with the system if that is enough. */
  confirm(isRelaxed: boolean): void {
    const { log } = this.#broker.storage;
    this.#replies.ok(log.groupStart, log.end, isRelaxed);
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
    this.#replies.frame(frame, position, isRelaxed);
    if (this.#replies.isEmpty) this.#flushLater();
    else this.#await();
  }

  /** Sends no message before the log is durable up to `position`. */
  holdMessages(position: number): void {
    if (position > this.#broker.storage.log.durableEnd) this.#messagesFrom = position;
  }

  /** Stops reading until the broker has room again. */
  blockForRoom(): void {
    const room = this.#broker.room();
    this.#block(
      new Promise((resolve, reject) => {
        this.#stopWaiting = resolve;
        room.then(resolve, reject);
      }),
    );
  }

  /** Stops reading until `event`, which does not reject, or until the connection is closed. */
  blockUntil(event: Promise<void>): void {
    if (this.closed) return;
    this.#block(
      new Promise((resolve) => {
        this.#unblock = resolve;
        void event.then(resolve);
      }),
    );
  }

  /** Stops reading from a client that does not read. */
  blockIfUnread(): void {
    if (this.#unreadBytes >= REPLY_BYTES_MAX && !this.closed) this.#blockUntilUnblocked();
  }

  /**
   * Reads and sends nothing more until every answer so far is written and `start` has done its work,
   * and then goes on. Closes when that fails with a `ConnectionError`, or takes too long. Only on a
   * connection without a subscription.
   */
  upgrade(start: () => Promise<void>): void {
    this.#closeAfter(UPGRADE_MS_MAX);
    this.isUpgrading = true;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#upgrade = { start, resume: resolve };
    this.#block(promise);
    this.#upgradeIfWritten();
  }

  /** Drops what comes after the last command. */
  drop(bytes: number): void {
    if (this.closed) return;
    // Reading goes on once the last answer is written.
    if (this.#lingerBytes < 0) return this.#blockUntilUnblocked();
    this.#lingerBytes -= bytes;
    if (this.#lingerBytes < 0) this.close();
  }

  /**
   * Takes no more commands; closes once everything before is answered, with a linger if asked for. One that
   * ends already goes on with that, at once if no linger is asked for now.
   */
  end(lingers: boolean): void {
    if (this.ended && lingers) return;
    this.#lingers = lingers;
    if (this.#lingerBytes >= 0 && !lingers) return this.close();
    if (this.ended) return;
    this.ended = true;
    this.#owner.stopDeliveries();
    // A peer that does not read its last answers is not waited for.
    this.#closeAfter(CLOSE_MS_MAX);
    if (this.#replies.isEmpty) this.#outbox.endAfterFlush();
  }

  /** Ends the connection at once: what is unanswered stays so. */
  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.ended = true;
    this.#timer?.cancel();
    this.#timer = null;
    this.#replies.clear();
    this.#owner.leave();
    this.#outbox.close();
    this.#connection.close();
    this.#unblock?.();
    this.#upgrade?.resume();
    this.#owner.closed();
  }

  // DurableWaiter

  written(_end: number): boolean {
    return this.durable(this.#broker.storage.log.durableEnd);
  }

  durable(end: number): boolean {
    if (this.closed) return false;
    if (this.#replies.release(end, this.#broker.storage.confirmableEnd)) this.#flushLater();
    if (this.#messagesFrom !== 0 && this.#messagesFrom <= end) {
      this.#messagesFrom = 0;
      this.#owner.writableAgain();
    }
    this.#unblockIfRead();
    if (!this.#replies.isEmpty) return true;
    this.#waiting = false;
    if (this.ended) this.#outbox.endAfterFlush();
    return false;
  }

  failed(_error: Error): void {
    this.#waiting = false;
    if (this.closed) return;
    // Which of the unanswered publishes are on disk is not known; none of them is confirmed.
    this.#replies.clear();
    this.#outbox.add(encodeErrorFrame(publishFailed(Verb.PUB, "the log cannot be written")));
    if (this.ended) this.#outbox.endAfterFlush();
    else this.end(true);
  }

  // Flushable

  flush(): void {
    this.#flushing = false;
    this.#outbox.flush();
  }

  // OutboxListener

  drained(): void {
    if (this.closed) return;
    this.#owner.writableAgain();
    this.#unblockIfRead();
    if (this.#upgrade !== null) this.#upgradeIfWritten();
  }

  finished(): void {
    if (this.closed) return;
    if (!this.#lingers) return this.close();
    if (this.#lingerBytes >= 0) return;
    this.#lingerBytes = LINGER_BYTES_MAX;
    this.#owner.leave();
    this.#connection.closeWrite();
    this.#closeAfter(LINGER_MS_MAX);
    this.#unblock?.();
    this.#stopWaiting?.();
  }

  broken(): void {
    this.close();
  }

  /** Bytes of answers that the client has not taken, or that wait for the disk. */
  get #unreadBytes(): number {
    return this.#outbox.waitingBytes + this.#replies.heldBytes;
  }

  #upgradeIfWritten(): void {
    const upgrade = this.#upgrade;
    if (upgrade === null || this.ended || !this.#replies.isEmpty) return;
    if (this.#outbox.waitingBytes > 0) return;
    this.#upgrade = null;
    upgrade.start().catch((error) => {
      if (!(error instanceof ConnectionError)) throw error;
      this.#broker.logger.info("Closing a connection whose upgrade failed", {
        client: this.#connection.remoteAddress,
        error: error.message,
      });
      this.close();
    }).then(() => {
      this.isUpgrading = false;
      upgrade.resume();
    });
  }

  #unblockIfRead(): void {
    if (!this.ended && this.#unreadBytes < REPLY_BYTES_MAX) this.#unblock?.();
  }

  #blockUntilUnblocked(): void {
    this.#block(new Promise((resolve) => this.#unblock = resolve));
  }

  #block(until: Promise<void>): void {
    this.blocked = until.then(() => {
      this.#unblock = null;
      this.#stopWaiting = null;
      this.blocked = null;
      this.heard();
      this.#owner.resume();
    });
  }

  #await(): void {
    if (this.#waiting) return;
    this.#waiting = true;
    this.#broker.await(this);
  }

  #flushLater(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    this.#broker.flushLater(this);
  }

  #closeAfter(delayMs: number): void {
    this.#timer?.cancel();
    this.#timer = this.#broker.clock.setTimer(delayMs, () => this.close());
  }

  #armHeartbeat(intervalMs: number): void {
    this.#timer?.cancel();
    this.#timer = null;
    if (intervalMs === 0 || this.closed) return;
    this.#timer = this.#broker.clock.setTimer(intervalMs, () => this.#beat(intervalMs));
  }

  /** Sends a heartbeat, or closes a connection that is silent or does not read. */
  #beat(intervalMs: number): void {
    const nowMs = this.#broker.clock.monoMs();
    const { pendingSinceMs } = this.#outbox;
    // A client in the middle of a large message has nothing to answer, and is sent nothing to answer.
    const isStreaming = this.#outbox.isStreaming;
    if (isStreaming) this.heard();
    const isSilent = this.blocked === null && nowMs - this.#lastCommandMs >= 2 * intervalMs;
    const isStuck = pendingSinceMs !== null && nowMs - pendingSinceMs >= intervalMs;
    if (isSilent || isStuck) {
      this.#broker.logger.info("Closing a connection that is silent or does not read", {
        client: this.#connection.remoteAddress,
        reading: !isStuck,
      });
      this.close();
      return;
    }
    if (!isStreaming) this.#outbox.add(HEARTBEAT_FRAME);
    this.#flushLater();
    this.#armHeartbeat(intervalMs);
  }
}
