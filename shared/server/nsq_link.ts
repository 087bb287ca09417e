/**
 * The sending side of an NSQ connection and its life: answers in order, heartbeats, when to stop
 * reading, and how it ends.
 *
 * ```
 * open --end()--> answering --all written--> lingering (if asked for) --> closed
 *    '---------------- broken, silent, stuck, close() ----------------------^
 * ```
 *
 * - Answers go out in the order they were made, each once what it stands for is done: that is for the
 *   replies ({@linkcode HeldReplies}) to know.
 * - A client that leaves too many answers unread is not read from ({@linkcode NsqLink.blocked}).
 * - A client that is silent for two heartbeat intervals, or does not take a write for one, is closed
 *   without a word. A silence that is ours does not count, nor does the time that the body of a large
 *   message takes as long as the client reads on.
 * - The log says when a connection opens (debug) and, in one line, why it has ended.
 * - After a last word (a fatal error, or that the server stops) the connection is half closed, and what
 *   the client still sends is read and dropped for a moment: closing with unread bytes would take it back.
 */
import { HEARTBEAT_FRAME } from "../protocol/mod.ts";
import { type Clock, type Connection, ConnectionError, type Timer } from "../runtime/mod.ts";
import type { LogFields, Logger } from "../telemetry/mod.ts";
import { Outbox, type OutboxListener } from "./outbox.ts";
import type { OutboxBuffers } from "./outbox_buffers.ts";

/** Messages gather up to this many bytes even when a client asks for a smaller buffer. */
export const OUTBOX_MESSAGE_BYTES = 64 * 1024;
/** A client that leaves so many bytes of replies unread is not read from. */
export const REPLY_BYTES_MAX = 1024 * 1024;
/** How long a connection that is to be closed may take to read what it is still owed. */
const CLOSE_MS_MAX = 10_000;
/** How long an upgrade of the connection may take, with what has to be written before it. */
export const UPGRADE_MS_MAX = 10_000;
/** How long, and how much, is read and dropped after the last frame until the client closes. */
export const LINGER_MS_MAX = 1_000;
export const LINGER_BYTES_MAX = 8 * 1024 * 1024;

/** Why a connection has ended, for the log. The first reason that is known counts. */
export type CloseReason =
  /** The client closed it, or ended its side. */
  | "client_closed"
  /** Reading failed, as after a reset. */
  | "connection_failed"
  /** Writing failed or took too long. */
  | "write_failed"
  /** Silent for two heartbeat intervals. */
  | "heartbeat_timeout"
  /** What was sent was not taken for one interval. */
  | "not_reading"
  /** The client was told an error that ends the connection. */
  | "protocol_error"
  | "tls_failure"
  | "upgrade_failed"
  /** A large message stopped in the middle. */
  | "body_timeout"
  | "channel_deleted"
  | "storage_failed"
  /** The service stops. */
  | "stop"
  /** Nobody said why. */
  | "closed";

/** Answers that are not in the outbox yet. */
export interface HeldReplies {
  readonly isEmpty: boolean;
  /** Memory that they take, about. */
  readonly heldBytes: number;
  /** None of them is sent. */
  clear(): void;
}

/** The session behind a link. */
export interface NsqLinkOwner {
  /** Reading may go on where it stopped. */
  resume(): void;
  /** There may be room for messages again. */
  writableAgain(): void;
  /** No more commands are taken; what is owed is still answered. */
  ending(): void;
  /** Nothing more is heard from the client. */
  leave(): void;
  /** The connection is gone. */
  closed(): void;
  /** What the log says of the client when its connection has ended. */
  logFields?(): LogFields;
}

/** What a link stands on. */
export interface NsqLinkSeams {
  readonly clock: Clock;
  readonly logger: Logger;
  /** Calls `flush` after the input at hand. */
  readonly flushLater: (link: { flush(): void }) => void;
  /** How long a connection that is to be closed may take until all answers are read; 10 s by default. */
  readonly closeMsMax?: number;
  /** Large buffers of all connections; each grows its own without. */
  readonly buffers?: OutboxBuffers | undefined;
  /** Counts connections that have ended, by why. */
  readonly closes?: Map<CloseReason, number>;
}

/** See the module. */
export class NsqLink<R extends HeldReplies> implements OutboxListener {
  /** Set while nothing more can be taken; resolves when reading may go on. */
  blocked: Promise<void> | null = null;
  /** No command is taken any more: a last frame, or the end of the stream. */
  ended = false;
  closed = false;
  readonly outbox: Outbox;
  readonly replies: R;

  readonly #seams: NsqLinkSeams;
  readonly #connection: Connection;
  readonly #owner: NsqLinkOwner;
  #flushing = false;
  /** Whether what comes in after the last answer is dropped for a while before closing. */
  #lingers = false;
  /** Bytes still to drop; -1 until the last answer is written. */
  #lingerBytes = -1;
  #lastCommandMs: number;
  #timer: Timer | null = null;
  #unblock: (() => void) | null = null;
  /** Whether reading stopped for something else than answers that are not read. */
  #waits = false;
  /** Why it ends, once that is known. */
  #why: { readonly reason: CloseReason; readonly error: string | undefined } | null = null;
  readonly #openedMs: number;
  /** Until an upgrade is over. */
  isUpgrading = false;
  /** What waits until all answers are written, and what goes on after it. */
  #upgrade: {
    readonly start: () => Promise<void>;
    readonly resume: () => void;
    readonly failure: CloseReason;
  } | null = null;

  constructor(
    connection: Connection,
    owner: NsqLinkOwner,
    seams: NsqLinkSeams,
    replies: (outbox: Outbox) => R,
  ) {
    this.#connection = connection;
    this.#owner = owner;
    this.#seams = seams;
    this.outbox = new Outbox(
      connection,
      seams.clock,
      this,
      OUTBOX_MESSAGE_BYTES,
      seams.buffers,
    );
    this.replies = replies(this.outbox);
    this.#openedMs = seams.clock.monoMs();
    this.#lastCommandMs = this.#openedMs;
    if (seams.logger.isWritten("debug")) {
      seams.logger.debug("Connection opened", { client: connection.remoteAddress });
    }
  }

  /** Why the connection is about to end. What was said first counts. */
  because(reason: CloseReason, error?: string): void {
    this.#why ??= { reason, error };
  }

  /** What IDENTIFY has settled: heartbeats (0: none) and the client's output buffer. */
  settle(heartbeatIntervalMs: number, outputBufferBytes: number): void {
    this.outbox.messageBytesMax = Math.max(OUTBOX_MESSAGE_BYTES, outputBufferBytes);
    this.#armHeartbeat(heartbeatIntervalMs);
  }

  /** A command has been received. */
  heard(): void {
    this.#lastCommandMs = this.#seams.clock.monoMs();
  }

  /** Something is in the outbox: it goes out after the input at hand. */
  flushLater(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    this.#seams.flushLater(this);
  }

  /** Replies have been released to the outbox, or there are none any more. */
  released(): void {
    if (this.closed) return;
    this.#unblockIfRead();
    if (!this.replies.isEmpty) return;
    if (this.ended) this.outbox.endAfterFlush();
    else if (this.#upgrade !== null) this.#upgradeIfWritten();
  }

  /**
   * Stops reading until `event`, or until the connection is closed or has said its last word. A
   * rejection of `event` is a mistake of ours.
   */
  blockUntil(event: Promise<void>): void {
    if (this.closed) return;
    this.#block(
      new Promise((resolve, reject) => {
        this.#unblock = resolve;
        this.#waits = true;
        event.then(resolve, reject);
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
  upgrade(start: () => Promise<void>, failure: CloseReason = "upgrade_failed"): void {
    this.#closeAfter(UPGRADE_MS_MAX, failure);
    this.isUpgrading = true;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#upgrade = { start, resume: resolve, failure };
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
    this.#owner.ending();
    // A peer that does not read its last answers is not waited for.
    this.#closeAfter(this.#seams.closeMsMax ?? CLOSE_MS_MAX);
    if (this.replies.isEmpty) this.outbox.endAfterFlush();
  }

  /** Ends the connection at once: what is unanswered stays so. */
  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.ended = true;
    this.#timer?.cancel();
    this.#timer = null;
    this.replies.clear();
    this.#owner.leave();
    this.outbox.close();
    this.#connection.close();
    this.#unblock?.();
    this.#upgrade?.resume();
    this.#tellClosed();
    this.#owner.closed();
  }

  /** What was asked for by `flushLater`. */
  flush(): void {
    this.#flushing = false;
    this.outbox.flush();
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
  }

  broken(): void {
    this.because("write_failed");
    this.close();
  }

  /** Bytes of answers that the client has not taken, or that wait for something. */
  get #unreadBytes(): number {
    return this.outbox.waitingBytes + this.replies.heldBytes;
  }

  #upgradeIfWritten(): void {
    const upgrade = this.#upgrade;
    if (upgrade === null || this.ended || !this.replies.isEmpty) return;
    if (this.outbox.waitingBytes > 0) return;
    this.#upgrade = null;
    upgrade.start().catch((error) => {
      if (!(error instanceof ConnectionError)) throw error;
      this.because(upgrade.failure, error.message);
      this.close();
    }).then(() => {
      this.isUpgrading = false;
      upgrade.resume();
    });
  }

  #unblockIfRead(): void {
    if (this.ended || this.#waits || this.#unreadBytes >= REPLY_BYTES_MAX) return;
    this.#unblock?.();
  }

  #blockUntilUnblocked(): void {
    this.#block(new Promise((resolve) => this.#unblock = resolve));
  }

  #block(until: Promise<void>): void {
    this.blocked = until.then(() => {
      this.#unblock = null;
      this.#waits = false;
      this.blocked = null;
      this.heard();
      this.#owner.resume();
    });
  }

  #closeAfter(delayMs: number, reason: CloseReason = "closed"): void {
    this.#timer?.cancel();
    this.#timer = this.#seams.clock.setTimer(delayMs, () => {
      this.because(reason);
      this.close();
    });
  }

  #tellClosed(): void {
    const { logger, clock, closes } = this.#seams;
    const { reason, error } = this.#why ?? { reason: "closed" as const, error: undefined };
    closes?.set(reason, (closes.get(reason) ?? 0) + 1);
    logger.info("Connection closed", {
      client: this.#connection.remoteAddress,
      reason,
      error,
      open_ms: Math.round(clock.monoMs() - this.#openedMs),
      ...this.#owner.logFields?.(),
    });
  }

  #armHeartbeat(intervalMs: number): void {
    this.#timer?.cancel();
    this.#timer = null;
    if (intervalMs === 0 || this.closed) return;
    this.#timer = this.#seams.clock.setTimer(intervalMs, () => this.#beat(intervalMs));
  }

  /** Sends a heartbeat, or closes a connection that is silent or does not read. */
  #beat(intervalMs: number): void {
    const nowMs = this.#seams.clock.monoMs();
    const { pendingSinceMs } = this.outbox;
    // A client in the middle of a large message has nothing to answer, and is sent nothing to answer.
    const isStreaming = this.outbox.isStreaming;
    if (isStreaming) this.heard();
    const isSilent = this.blocked === null && nowMs - this.#lastCommandMs >= 2 * intervalMs;
    const isStuck = pendingSinceMs !== null && nowMs - pendingSinceMs >= intervalMs;
    if (isSilent || isStuck) {
      this.because(isStuck ? "not_reading" : "heartbeat_timeout");
      this.close();
      return;
    }
    if (!isStreaming) this.outbox.add(HEARTBEAT_FRAME);
    this.flushLater();
    this.#armHeartbeat(intervalMs);
  }
}
