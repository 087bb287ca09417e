/**
 * One NSQ V2 connection, from bytes to broker operations and back: contract sections 1.1 to 1.14.
 *
 * ```
 * init --SUB--> subscribed --CLS--> closing
 *   PUB, MPUB, DPUB, NOP in any state; IDENTIFY, AUTH in init; RDY, FIN, REQ, TOUCH once subscribed
 * ```
 *
 * - Replies go out in the order of their commands, an OK only once its messages are on disk.
 * - When the broker has no room for a command that writes, the session stops in front of it
 *   ({@linkcode Session.blocked}) and so stops reading: the client waits, nothing grows.
 * - A fatal error ends the session once everything before it has been answered. What the client
 *   still sends is then read and dropped for a moment, so that the error reaches it.
 */
import {
  authDisabled,
  badProtocol,
  checkAuth,
  checkFin,
  checkMessageSize,
  checkMpub,
  checkMpubBodySize,
  checkPub,
  checkSessionBodySize,
  checkSub,
  checkTouch,
  CLOSE_WAIT_FRAME,
  CommandDecoder,
  CommandEvent,
  type ConnectionSettings,
  consumersExceedLimit,
  decodeIdentify,
  encodeErrorFrame,
  encodeResponseFrame,
  endOfStreamError,
  FRAME_HEADER_BYTES,
  HEARTBEAT_FRAME,
  heartbeatsDisabled,
  type IdentifyOptions,
  messageFailed,
  MessageFailure,
  type MessageVerb,
  MpubScanner,
  nameText,
  negotiateIdentify,
  OK_FRAME,
  parseDpub,
  parseMessageId,
  parseRdy,
  parseReq,
  ProtocolError,
  publishFailed,
  type PublishVerb,
  subFailed,
  throttled,
  unknownCommand,
  Verb,
  writeStoredMessageFrame,
  wrongState,
} from "@sluice/shared/protocol";
import { type Connection, invariant, type Timer } from "@sluice/shared/runtime";
import { type Broker, type DurableWaiter, type Flushable, RefusedError } from "../broker.ts";
import type {
  Channel,
  Consumer,
  ConsumerPort,
  InFlightOutcome,
  MessageView,
  Topic,
} from "../queue/mod.ts";
import { Outbox, type OutboxListener } from "./outbox.ts";
import { PublishTargets } from "./publish_targets.ts";
import { ReplyQueue } from "./reply_queue.ts";

/** Limits of a session. */
export interface SessionOptions {
  readonly identify: IdentifyOptions;
  readonly messageBytesMax: number;
  readonly bodyBytesMax: number;
  /** Bounds DPUB (refused above) and REQ (clamped). */
  readonly requeueMsMax: number;
  /** Consumers a channel may have; 0 for any number. Only for the text of the refusal. */
  readonly consumersMax: number;
}

/** What a subscribed session has. */
interface Subscription {
  readonly topic: Topic;
  readonly channel: Channel;
  readonly consumer: Consumer;
}

/** The state numbers of `/stats`. */
export const SESSION_STATE = { init: 0, subscribed: 3, closing: 4 } as const;

/** Messages gather up to this many bytes even when a client asks for a smaller buffer. */
const OUTBOX_MESSAGE_BYTES = 64 * 1024;
/** A client that leaves so many bytes of replies unread is not read from. */
const REPLY_BYTES_MAX = 1024 * 1024;
/** How long a connection that is to be closed may take to read what it is still owed. */
const CLOSE_MS_MAX = 10_000;
/** How long, and how much, is read and dropped after a fatal error until the client closes. */
export const LINGER_MS_MAX = 1_000;
export const LINGER_BYTES_MAX = 8 * 1024 * 1024;

/** See the module. */
export class Session implements ConsumerPort, DurableWaiter, Flushable, OutboxListener {
  /** Set while nothing more can be taken; resolves when `receive` may go on. */
  blocked: Promise<void> | null = null;
  settings: ConnectionSettings;
  readonly connectedWallMs: number;
  readonly targets = new PublishTargets();

  readonly #broker: Broker;
  readonly #options: SessionOptions;
  readonly #connection: Connection;
  readonly #onClose: (session: Session) => void;
  readonly #decoder = new CommandDecoder();
  readonly #mpub: MpubScanner;
  readonly #outbox: Outbox;
  readonly #replies: ReplyQueue;
  #state: keyof typeof SESSION_STATE = "init";
  #subscription: Subscription | null = null;
  #verb: Verb = Verb.UNKNOWN;
  #deferMs = 0;
  /** The event to handle again once the broker has room. */
  #retry: CommandEvent | null = null;
  #stagedBytes = 0;
  /** In the middle of an MPUB that does not fit one group. */
  #walking = false;
  #waiting = false;
  #flushing = false;
  /** Messages wait until the log is durable up to here and the OK to SUB has gone out. */
  #subscribedAt = 0;
  /** No command is taken any more: a fatal error or the end of the stream. */
  #ended = false;
  /** Whether what comes in after the last answer is dropped for a while before closing. */
  #lingers = false;
  /** Bytes still to drop; -1 until the last answer is written. */
  #lingerBytes = -1;
  #left = false;
  #closed = false;
  #lastCommandMs: number;
  #heartbeat: Timer | null = null;
  #unblock: (() => void) | null = null;

  constructor(
    broker: Broker,
    connection: Connection,
    options: SessionOptions,
    onClose: (session: Session) => void,
  ) {
    this.#broker = broker;
    this.#connection = connection;
    this.#options = options;
    this.#onClose = onClose;
    this.settings = defaultSettings(options.identify, connection.remoteAddress);
    this.#mpub = new MpubScanner(options);
    this.#outbox = new Outbox(connection, broker.clock, this, OUTBOX_MESSAGE_BYTES);
    this.#replies = new ReplyQueue(this.#outbox);
    this.connectedWallMs = broker.clock.wallMs();
    this.#lastCommandMs = broker.clock.monoMs();
    this.#armHeartbeat();
  }

  /** Whether it is closed: nothing is read any more. */
  get closed(): boolean {
    return this.#closed;
  }

  get remoteAddress(): string {
    return this.#connection.remoteAddress;
  }

  get stateNumber(): number {
    return SESSION_STATE[this.#state];
  }

  get subscription(): Subscription | null {
    return this.#subscription;
  }

  get writable(): boolean {
    return this.#outbox.hasRoom && this.#subscribedAt === 0;
  }

  /** Takes received bytes; while `blocked` is set afterwards, they are still in use. */
  receive(buffer: Uint8Array, start: number, end: number): void {
    if (this.#ended) return this.#drop(end - start);
    this.#decoder.feed(buffer, start, end);
    this.#process();
  }

  /** The peer sends no more. What it is owed is still written. */
  endOfStream(): void {
    this.#lingers = false;
    if (this.#lingerBytes >= 0) return this.close();
    if (this.#ended) return;
    const error = endOfStreamError(this.#verb, this.#decoder.position, this.#mpub);
    if (error !== undefined) this.#replyFrame(encodeErrorFrame(error), 0);
    this.#end();
  }

  /** Takes no more commands and closes once everything so far is answered. */
  end(): void {
    this.#lingers = false;
    if (this.#lingerBytes >= 0) return this.close();
    if (!this.#ended) this.#end();
  }

  /** Ends the session at once: what is in flight goes back, what is unanswered stays so. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#ended = true;
    this.#heartbeat?.cancel();
    this.#heartbeat = null;
    this.#unstage();
    this.#replies.clear();
    this.#leave();
    this.#connection.close();
    this.#unblock?.();
    this.#onClose(this);
  }

  // ConsumerPort

  deliver(message: MessageView, attempts: number): void {
    const offset = this.#outbox.reserve(FRAME_HEADER_BYTES + message.length);
    writeStoredMessageFrame(
      this.#outbox.buffer,
      offset,
      message.bytes,
      message.start,
      message.start + message.length,
      attempts,
    );
    if (!this.#flushing) this.#flushLater();
  }

  channelDeleted(): void {
    this.close();
  }

  // DurableWaiter

  durable(end: number): boolean {
    if (this.#closed) return false;
    if (this.#replies.release(end)) this.#flushLater();
    if (this.#subscribedAt !== 0 && this.#subscribedAt <= end) {
      this.#subscribedAt = 0;
      this.#wakeChannel();
    }
    this.#unblockIfRead();
    if (!this.#replies.isEmpty) return true;
    this.#waiting = false;
    if (this.#ended) this.#outbox.endAfterFlush();
    return false;
  }

  failed(_error: Error): void {
    this.#waiting = false;
    if (this.#closed) return;
    // Which of the unanswered publishes are on disk is not known; none of them is confirmed.
    this.#replies.clear();
    this.#outbox.add(encodeErrorFrame(publishFailed(Verb.PUB, "the log cannot be written")));
    this.#lingers = true;
    this.#end();
  }

  // Flushable

  flush(): void {
    this.#flushing = false;
    this.#outbox.flush();
  }

  // OutboxListener

  drained(): void {
    if (this.#closed) return;
    this.#wakeChannel();
    this.#unblockIfRead();
  }

  finished(): void {
    if (this.#closed) return;
    if (!this.#lingers) return this.close();
    if (this.#lingerBytes >= 0) return;
    this.#lingerBytes = LINGER_BYTES_MAX;
    this.#leave();
    this.#connection.closeWrite();
    this.#closeAfter(LINGER_MS_MAX);
    this.#unblock?.();
  }

  broken(): void {
    this.close();
  }

  #process(): void {
    this.blocked = null;
    while (!this.#ended) {
      const event = this.#retry ?? this.#decoder.next();
      this.#retry = null;
      switch (event) {
        case CommandEvent.NEED_MORE:
          this.#checkPartialMpub();
          this.#checkUnread();
          return;
        case CommandEvent.MAGIC:
          break;
        case CommandEvent.BAD_MAGIC:
          this.#fatal(badProtocol());
          break;
        case CommandEvent.LINE_TOO_LONG:
          this.#lingers = true;
          this.#end();
          break;
        case CommandEvent.LINE:
          this.#lastCommandMs = this.#broker.clock.monoMs();
          this.#command();
          break;
        case CommandEvent.BODY_SIZE:
          this.#bodySize();
          break;
        case CommandEvent.BODY:
          this.#body();
          break;
      }
      if (this.#retry !== null) {
        this.#block(this.#broker.room());
        return;
      }
    }
  }

  #command(): void {
    const { line } = this.#decoder;
    this.#verb = line.verb;
    switch (line.verb) {
      case Verb.FIN:
        return this.#answerMessage(Verb.FIN, checkFin(line));
      case Verb.PUB:
        return this.#expectPublish(checkPub(line));
      case Verb.MPUB:
        return this.#expectPublish(checkMpub(line));
      case Verb.DPUB: {
        const deferMs = parseDpub(line, this.#options.requeueMsMax);
        if (typeof deferMs !== "number") return this.#fatal(deferMs);
        this.#deferMs = deferMs;
        return this.#decoder.expectBody();
      }
      case Verb.RDY:
        return this.#rdy();
      case Verb.REQ:
        return this.#answerMessage(Verb.REQ, undefined);
      case Verb.TOUCH:
        return this.#answerMessage(Verb.TOUCH, checkTouch(line));
      case Verb.NOP:
        return;
      case Verb.SUB:
        return this.#sub();
      case Verb.CLS:
        return this.#cls();
      case Verb.IDENTIFY:
        if (this.#state !== "init") return this.#fatal(wrongState(Verb.IDENTIFY));
        return this.#decoder.expectBody();
      case Verb.AUTH: {
        if (this.#state !== "init") return this.#fatal(wrongState(Verb.AUTH));
        const refusal = checkAuth(line);
        if (refusal !== undefined) return this.#fatal(refusal);
        return this.#decoder.expectBody();
      }
      default:
        return this.#fatal(unknownCommand(line));
    }
  }

  #expectPublish(refusal: ProtocolError | undefined): void {
    if (refusal !== undefined) this.#fatal(refusal);
    else this.#decoder.expectBody();
  }

  #bodySize(): void {
    const { bodySize } = this.#decoder;
    const { messageBytesMax, bodyBytesMax } = this.#options;
    let refusal: ProtocolError | undefined;
    switch (this.#verb) {
      case Verb.PUB:
        refusal = checkMessageSize(Verb.PUB, bodySize, messageBytesMax);
        break;
      case Verb.DPUB:
        refusal = checkMessageSize(Verb.DPUB, bodySize, messageBytesMax);
        break;
      case Verb.MPUB:
        refusal = checkMpubBodySize(bodySize, bodyBytesMax);
        break;
      case Verb.IDENTIFY:
      case Verb.AUTH:
        refusal = checkSessionBodySize(this.#verb, bodySize, bodyBytesMax);
        break;
    }
    if (refusal !== undefined) return this.#fatal(refusal);
    // A body that has to wait for more bytes takes memory of the broker.
    if (bodySize > this.#decoder.remainingBytes) {
      if (!this.#broker.stage(bodySize)) {
        return this.#fatal(throttled(this.#verb, "too many bytes are being received"));
      }
      this.#stagedBytes = bodySize;
    }
    if (this.#verb === Verb.MPUB) this.#mpub.begin(bodySize);
    this.#decoder.acceptBody();
  }

  #body(): void {
    switch (this.#verb) {
      case Verb.PUB:
        return this.#publish(Verb.PUB, 0);
      case Verb.DPUB:
        return this.#publish(Verb.DPUB, this.#deferMs);
      case Verb.MPUB:
        return this.#publishMany();
      case Verb.IDENTIFY:
        return this.#identify();
      case Verb.AUTH:
        return this.#fatal(authDisabled());
    }
  }

  #publish(verb: PublishVerb, deferMs: number): void {
    const { bodyBuffer, bodyStart, bodyEnd } = this.#decoder;
    const broker = this.#broker;
    if (!broker.hasRoom(bodyEnd - bodyStart, 1)) {
      this.#retry = CommandEvent.BODY;
      return;
    }
    try {
      const topic = this.#targets();
      const dueMs = deferMs === 0 ? 0 : broker.clock.wallMs() + deferMs;
      broker.publish(topic, bodyBuffer, bodyStart, bodyEnd, dueMs);
    } catch (error) {
      return this.#refused(verb, error);
    }
    this.#confirm(1);
  }

  #publishMany(): void {
    const { bodyBuffer, bodyStart, bodyEnd } = this.#decoder;
    const scanner = this.#mpub;
    const refusal = scanner.check(bodyBuffer, bodyStart, bodyEnd);
    if (refusal !== undefined) return this.#fatal(refusal);
    const { storage } = this.#broker;
    // All of it goes into one group, unless it is too large for any.
    const bytes = bodyEnd - bodyStart;
    const isWhole = storage.fitsGroup(bytes, scanner.messageCount);
    if (isWhole && !this.#broker.hasRoom(bytes, scanner.messageCount)) {
      this.#retry = CommandEvent.BODY;
      return;
    }
    if (!this.#walking) {
      scanner.rewind();
      this.#walking = scanner.nextMessage(bodyBuffer, bodyStart);
    }
    try {
      const topic = this.#targets();
      while (this.#walking) {
        const { messageStart, messageEnd } = scanner;
        if (!isWhole && !this.#broker.hasRoom(messageEnd - messageStart, 1)) {
          this.#retry = CommandEvent.BODY;
          return;
        }
        this.#broker.publish(topic, bodyBuffer, messageStart, messageEnd, 0);
        this.#walking = scanner.nextMessage(bodyBuffer, bodyStart);
      }
    } catch (error) {
      return this.#refused(Verb.MPUB, error);
    }
    this.#confirm(scanner.messageCount);
  }

  /** The topic that the command line names, made when missing. */
  #targets(): Topic {
    const { line } = this.#decoder;
    return this.targets.find(this.#broker, line.buffer, line.paramStart(0), line.paramEnd(0));
  }

  /** Answers a publish of `messages` once it is on disk. */
  #confirm(messages: number): void {
    this.#unstage();
    this.targets.count(messages);
    const { log } = this.#broker.storage;
    this.#replies.ok(log.groupStart, log.end);
    this.#await();
  }

  #refused(verb: PublishVerb, error: unknown): void {
    if (!(error instanceof RefusedError)) throw error;
    this.#fatal(publishFailed(verb, error.message));
  }

  #identify(): void {
    const { bodyBuffer, bodyStart, bodyEnd } = this.#decoder;
    const request = decodeIdentify(bodyBuffer, bodyStart, bodyEnd);
    this.#unstage();
    if (request instanceof ProtocolError) return this.#fatal(request);
    const result = negotiateIdentify(request, this.#options.identify);
    if (result instanceof ProtocolError) return this.#fatal(result);
    this.settings = result.settings;
    this.#outbox.messageBytesMax = Math.max(
      OUTBOX_MESSAGE_BYTES,
      result.settings.outputBufferBytes,
    );
    this.#armHeartbeat();
    this.#replyFrame(encodeResponseFrame(result.reply), 0);
  }

  #sub(): void {
    const { line } = this.#decoder;
    if (this.#state !== "init") return this.#fatal(wrongState(Verb.SUB));
    if (this.settings.heartbeatIntervalMs === 0) return this.#fatal(heartbeatsDisabled());
    const refusal = checkSub(line);
    if (refusal !== undefined) return this.#fatal(refusal);
    const broker = this.#broker;
    if (!broker.hasRoom(line.end - line.start, 2)) {
      this.#retry = CommandEvent.LINE;
      return;
    }
    const topicName = nameText(line.buffer, line.paramStart(0), line.paramEnd(0));
    const channelName = nameText(line.buffer, line.paramStart(1), line.paramEnd(1));
    try {
      if (broker.exiting) return this.#fatal(subFailed("exiting"));
      if (broker.failure !== null) return this.#fatal(subFailed("the log cannot be written"));
      const topic = broker.ensureTopic(topicName);
      const channel = broker.ensureChannel(topic, channelName);
      const { messageTimeoutMs, sampleRate } = this.settings;
      const consumer = channel.join(this, messageTimeoutMs, sampleRate);
      if (consumer === null) {
        const { consumersMax } = this.#options;
        return this.#fatal(consumersExceedLimit(topicName, channelName, consumersMax));
      }
      this.#subscription = { topic, channel, consumer };
      this.#state = "subscribed";
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error;
      return this.#fatal(subFailed(error.message));
    }
    // Topic and channel may be new: they are confirmed once they would survive a crash.
    const { position } = broker;
    if (position > broker.storage.log.durableEnd) this.#subscribedAt = position;
    this.#replyFrame(OK_FRAME, position);
  }

  #rdy(): void {
    if (this.#state === "closing") return;
    const subscription = this.#subscription;
    if (subscription === null) return this.#fatal(wrongState(Verb.RDY));
    const count = parseRdy(this.#decoder.line, this.#options.identify.rdyCountMax);
    if (typeof count !== "number") return this.#fatal(count);
    subscription.channel.credit(subscription.consumer, count);
  }

  #answerMessage(verb: MessageVerb, refusal: ProtocolError | undefined): void {
    const subscription = this.#subscription;
    if (subscription === null) return this.#fatal(wrongState(verb));
    if (refusal !== undefined) return this.#fatal(refusal);
    const { line } = this.#decoder;
    const broker = this.#broker;
    const { channel, consumer } = subscription;
    let delayMs = 0;
    if (verb === Verb.REQ) {
      const parsed = parseReq(line, this.#options.requeueMsMax);
      if (typeof parsed !== "number") return this.#fatal(parsed);
      delayMs = parsed;
    }
    if (!broker.hasRoom(64, 1)) {
      this.#retry = CommandEvent.LINE;
      return;
    }
    if (broker.failure !== null) return;
    const sequence = parseMessageId(line.buffer, line.paramStart(0), broker.storage.nodeId);
    const { clock } = broker;
    let outcome: InFlightOutcome;
    if (verb === Verb.FIN) outcome = channel.finish(consumer, sequence);
    else if (verb === Verb.TOUCH) outcome = channel.touch(consumer, sequence, clock.monoMs());
    else outcome = channel.requeue(consumer, sequence, delayMs, clock.monoMs(), clock.wallMs());
    if (outcome === "done") return;
    const reason = outcome === "not_owner"
      ? MessageFailure.NOT_OWNER
      : MessageFailure.NOT_IN_FLIGHT;
    this.#replyFrame(encodeErrorFrame(messageFailed(verb, line, reason)), 0);
  }

  #cls(): void {
    const subscription = this.#subscription;
    if (this.#state !== "subscribed" || subscription === null) {
      return this.#fatal(wrongState(Verb.CLS));
    }
    subscription.channel.close(subscription.consumer);
    this.#state = "closing";
    this.#replyFrame(CLOSE_WAIT_FRAME, 0);
  }

  #checkPartialMpub(): void {
    if (this.#verb !== Verb.MPUB || this.#decoder.position !== "in_body") return;
    const { bodyBuffer, bodyStart, bodyEnd } = this.#decoder;
    const refusal = this.#mpub.check(bodyBuffer, bodyStart, bodyEnd);
    if (refusal !== undefined) this.#fatal(refusal);
  }

  /** Stops reading from a client that does not read. */
  #checkUnread(): void {
    if (this.#unreadBytes >= REPLY_BYTES_MAX && !this.#closed) this.#blockUntilUnblocked();
  }

  /** Bytes of answers that the client has not taken, or that wait for the disk. */
  get #unreadBytes(): number {
    return this.#outbox.waitingBytes + this.#replies.heldBytes;
  }

  #unblockIfRead(): void {
    if (!this.#ended && this.#unreadBytes < REPLY_BYTES_MAX) this.#unblock?.();
  }

  #blockUntilUnblocked(): void {
    this.#block(new Promise((resolve) => this.#unblock = resolve));
  }

  #block(until: Promise<void>): void {
    this.blocked = until.then(() => {
      this.#unblock = null;
      // The silence until now was ours.
      this.#lastCommandMs = this.#broker.clock.monoMs();
      this.#process();
    });
  }

  /** Drops what comes after the last command. */
  #drop(bytes: number): void {
    if (this.#closed) return;
    // Reading goes on once the last answer is written.
    if (this.#lingerBytes < 0) return this.#blockUntilUnblocked();
    this.#lingerBytes -= bytes;
    if (this.#lingerBytes < 0) this.close();
  }

  #fatal(error: ProtocolError): void {
    this.#lingers = true;
    this.#unstage();
    this.#broker.logger.info("Closing a connection after an error", {
      client: this.remoteAddress,
      error: error.text,
    });
    this.#replyFrame(encodeErrorFrame(error), 0);
    this.#end();
  }

  #replyFrame(frame: Uint8Array, position: number): void {
    const isDurable = position <= this.#broker.storage.log.durableEnd;
    this.#replies.frame(frame, isDurable ? 0 : position);
    if (this.#replies.isEmpty) this.#flushLater();
    else this.#await();
  }

  #await(): void {
    if (this.#waiting) return;
    this.#waiting = true;
    this.#broker.await(this);
  }

  /** Takes no more commands; ends the connection once everything before is answered. */
  #end(): void {
    this.#ended = true;
    this.#stopDeliveries();
    // A peer that does not read its last answers is not waited for.
    this.#closeAfter(CLOSE_MS_MAX);
    if (this.#replies.isEmpty) this.#outbox.endAfterFlush();
  }

  #closeAfter(delayMs: number): void {
    this.#heartbeat?.cancel();
    this.#heartbeat = this.#broker.clock.setTimer(delayMs, () => this.close());
  }

  #stopDeliveries(): void {
    const subscription = this.#subscription;
    if (subscription !== null && !this.#left) subscription.channel.close(subscription.consumer);
  }

  /** Gives up the subscription: what is in flight goes back. */
  #leave(): void {
    const subscription = this.#subscription;
    if (subscription === null || this.#left) return;
    this.#left = true;
    this.#broker.leave(subscription.topic, subscription.channel, subscription.consumer);
  }

  #wakeChannel(): void {
    const subscription = this.#subscription;
    if (subscription === null || this.#left) return;
    subscription.channel.writable(subscription.consumer);
  }

  #flushLater(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    this.#broker.flushLater(this);
  }

  #unstage(): void {
    if (this.#stagedBytes === 0) return;
    this.#broker.unstage(this.#stagedBytes);
    this.#stagedBytes = 0;
  }

  #armHeartbeat(): void {
    this.#heartbeat?.cancel();
    this.#heartbeat = null;
    const intervalMs = this.settings.heartbeatIntervalMs;
    if (intervalMs === 0 || this.#closed) return;
    this.#heartbeat = this.#broker.clock.setTimer(intervalMs, () => this.#beat(intervalMs));
  }

  /** Sends a heartbeat, or closes without a word a connection that is silent or does not read. */
  #beat(intervalMs: number): void {
    const nowMs = this.#broker.clock.monoMs();
    const { pendingSinceMs } = this.#outbox;
    // While it is blocked, the silence is ours.
    const isSilent = this.blocked === null && nowMs - this.#lastCommandMs >= 2 * intervalMs;
    const isStuck = pendingSinceMs !== null && nowMs - pendingSinceMs >= intervalMs;
    if (isSilent || isStuck) {
      this.#broker.logger.info("Closing a connection that is silent or does not read", {
        client: this.remoteAddress,
        reading: !isStuck,
      });
      this.close();
      return;
    }
    this.#outbox.add(HEARTBEAT_FRAME);
    this.#flushLater();
    this.#armHeartbeat();
  }
}

/** What holds before IDENTIFY. */
function defaultSettings(options: IdentifyOptions, remoteAddress: string): ConnectionSettings {
  const host = remoteAddress.slice(0, remoteAddress.lastIndexOf(":"));
  const request = decodeIdentify(
    new TextEncoder().encode(JSON.stringify({ client_id: host, hostname: host })),
  );
  invariant(!(request instanceof ProtocolError), "the default IDENTIFY is valid");
  const result = negotiateIdentify(request, options);
  invariant(!(result instanceof ProtocolError), "the default settings are valid");
  return result.settings;
}
