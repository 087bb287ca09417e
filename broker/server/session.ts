/**
 * One NSQ V2 connection, from bytes to broker operations and back: contract sections 1.1 to 1.14.
 *
 * ```
 * init --SUB--> subscribed --CLS--> closing
 *   PUB, MPUB, DPUB, NOP in any state; IDENTIFY, AUTH in init; RDY, FIN, REQ, TOUCH once subscribed
 * ```
 *
 * - Replies go out in the order of their commands, an OK only once its messages are on disk.
 * - While the broker refuses publishes (the disk is full, or nearly), they get `E_THROTTLED`.
 * - When the broker has no room for a command that writes, the session stops in front of it
 *   ({@linkcode Session.blocked}) and so stops reading: the client waits, nothing grows.
 * - A body above the broker's threshold is not gathered: it goes to the log in parts as it arrives,
 *   and comes from there in parts when it is delivered.
 * - A producer that IDENTIFY has named may number its publishes: a repeat stores nothing and is
 *   answered as the first one is, once that is on disk. It needs no room and no free disk.
 * - While it is asked elsewhere what the client may do, the session stops in front of the command in the
 *   same way: see `session_access.ts`.
 * - A fatal error ends the session once everything before it has been answered.
 * - When the broker stops, the last thing that a producer is told is `E_CLOSING`: whatever it has sent that was
 *   not answered before was not stored and never will be. Where that is not certain (a batch of many groups
 *   half way, a log that failed) it is not told so.
 *
 * How answers are sent and how the connection ends is the link's: see `session_link.ts`.
 */
import {
  batchNotWhole,
  checkFin,
  checkSub,
  checkTouch,
  CLOSE_WAIT_FRAME,
  CommandEvent,
  consumersExceedLimit,
  encodeErrorFrame,
  FRAME_HEADER_BYTES,
  FrameType,
  heartbeatsDisabled,
  identifyFailed,
  MESSAGE_BODY_OFFSET,
  messageFailed,
  MessageFailure,
  type MessageVerb,
  nameText,
  OK_FRAME,
  parseMessageId,
  parseRdy,
  parseReq,
  parseSequence,
  parseSpubDefer,
  ProtocolError,
  publishFailed,
  type PublishVerb,
  type SequencedVerb,
  sequenceTooOld,
  subFailed,
  throttled,
  unknownCommand,
  Verb,
  writeFrameHeader,
  writeStoredMessageFrame,
  wrongState,
} from "@sluice/shared/protocol";
import { invariant, type Listener } from "@sluice/shared/runtime";
import type { LogFields, Logger } from "@sluice/shared/telemetry";
import {
  type LayeredConnection,
  NsqSession,
  type NsqSessionOptions,
  type OutboxBuffers,
  PENDING,
  TcpServer,
} from "@sluice/shared/server";
import {
  type Broker,
  clientOf,
  type LargeUpload,
  type Origin,
  PRODUCER_ATTRIBUTE_BYTES,
  RefusedError,
} from "../broker.ts";
import type {
  Channel,
  Consumer,
  ConsumerPort,
  InFlightOutcome,
  MessageView,
  Topic,
} from "../queue/mod.ts";
import { LargeBodySource } from "./large_body_source.ts";
import { PublishTargets } from "./publish_targets.ts";
import type { ReplyQueue } from "./reply_queue.ts";
import { SessionLink } from "./session_link.ts";

/** Limits of a session. */
export interface SessionOptions extends NsqSessionOptions {
  /** Bounds REQ, which is clamped. */
  readonly requeueMsMax: number;
  /** Consumers a channel may have; 0 for any number. Only for the text of the refusal. */
  readonly consumersMax: number;
  /** Large output buffers that all sessions share. */
  readonly buffers?: OutboxBuffers;
  /** The broker's when absent. */
  readonly logger?: Logger;
}

/** What a subscribed session has. */
interface Subscription {
  readonly topic: Topic;
  readonly channel: Channel;
  readonly consumer: Consumer;
}

/** The last word to a producer. */
const CLOSING = new ProtocolError("E_CLOSING", "the broker stops");
const DRAINING = new ProtocolError("E_CLOSING", "the broker drains");

/** The state numbers of `/stats`. */
export const SESSION_STATE = { init: 0, subscribed: 3, closing: 4 } as const;

/** See the module. */
export class Session extends NsqSession<ReplyQueue, SessionLink> implements ConsumerPort {
  readonly targets = new PublishTargets();

  readonly #broker: Broker;
  readonly #options: SessionOptions;
  readonly #onClose: (session: Session) => void;
  #state: keyof typeof SESSION_STATE = "init";
  #subscription: Subscription | null = null;
  #sequence = 0;
  /** Resolves when it is known whether the folder takes producers; null when that is not asked for. */
  #allowing: Promise<void> | null = null;
  /** The large message that is being received, or that an MPUB has come to. */
  #upload: LargeUpload | null = null;
  /** How much of the piece, or of the MPUB's message, the upload has taken. */
  #uploadedBytes = 0;
  /** In the middle of an MPUB that does not fit one group. */
  #walking = false;
  #left = false;

  constructor(
    broker: Broker,
    connection: LayeredConnection,
    options: SessionOptions,
    onClose: (session: Session) => void,
  ) {
    super(
      connection,
      options,
      broker.clock,
      (owner) =>
        new SessionLink(
          broker,
          connection,
          owner,
          options.logger ?? broker.logger,
          options.buffers,
        ),
    );
    this.#broker = broker;
    this.#options = options;
    this.#onClose = onClose;
  }

  get stateNumber(): number {
    return SESSION_STATE[this.#state];
  }

  get subscription(): Subscription | null {
    return this.#subscription;
  }

  get writable(): boolean {
    return this.link.writable;
  }

  override end(): void {
    this.link.because("stop");
    // During an upgrade no frame fits in, and all that was published before it has its answer.
    if (this.settings.producer === null || this.link.isUpgrading) this.link.end(false);
    else this.#endProducer();
  }

  // ConsumerPort

  deliver(message: MessageView, attempts: number): void {
    const offset = this.link.reserve(FRAME_HEADER_BYTES + message.length);
    writeStoredMessageFrame(
      this.link.buffer,
      offset,
      message.bytes,
      message.start,
      message.start + message.length,
      attempts,
    );
    const { traces } = this.#broker;
    if (traces !== null) {
      const bytes = message.large?.body.bytes ?? message.length - MESSAGE_BODY_OFFSET;
      traces.delivered(this.#consumed, message.sequence, attempts, bytes);
    }
    if (message.large === null) return;
    const frameBytes = message.length + message.large.body.bytes;
    writeFrameHeader(this.link.buffer, offset, FrameType.MESSAGE, frameBytes);
    invariant(this.#subscription !== null, "a delivery is to a subscription");
    this.link.stream(
      new LargeBodySource(this.#broker, this.#subscription, message.large, message.sequence),
    );
  }

  channelDeleted(): void {
    this.link.because("channel_deleted");
    this.close();
  }

  // NsqLinkOwner

  logFields(): LogFields {
    const { clientId, hostname, userAgent } = this.settings;
    const { topic, channel } = this.#subscription ?? {};
    return {
      client_id: clientId,
      hostname,
      user_agent: userAgent || undefined,
      topic: topic?.state.name,
      channel: channel?.state.name,
    };
  }

  override writableAgain(): void {
    const subscription = this.#subscription;
    if (subscription !== null && !this.#left) {
      subscription.channel.writable(subscription.consumer);
    }
  }

  override ending(): void {
    const subscription = this.#subscription;
    if (subscription !== null && !this.#left) subscription.channel.close(subscription.consumer);
  }

  override leave(): void {
    const subscription = this.#subscription;
    if (subscription === null || this.#left) return;
    this.#left = true;
    this.#broker.leave(subscription.topic, subscription.channel, subscription.consumer);
  }

  override closed(): void {
    super.closed();
    this.#onClose(this);
  }

  // NsqSession

  protected override reply(frame: Uint8Array): void {
    this.link.reply(frame);
  }

  protected override blockForRetry(): void {
    if (this.#allowing === null) this.link.blockForRoom();
    else this.link.blockUntil(this.#allowing);
  }

  protected override takeMemory(bytes: number): boolean {
    return this.#broker.stage(bytes);
  }

  protected override giveMemory(bytes: number): void {
    this.#broker.unstage(bytes);
  }

  protected override countError({ code }: ProtocolError): void {
    this.#broker.counters.countError(code);
  }

  protected override get mayIdentify(): boolean {
    return this.#state === "init";
  }

  protected override command(): void {
    const { line } = this.decoder;
    switch (line.verb) {
      case Verb.FIN:
        return this.#answerMessage(Verb.FIN, checkFin(line));
      case Verb.SPUB:
      case Verb.SMPUB:
        if (this.settings.producer === null) return this.fatal(unknownCommand(line));
        return this.#expectSequenced(line.verb);
      case Verb.RDY:
        return this.#rdy();
      case Verb.REQ:
        return this.#answerMessage(Verb.REQ, undefined);
      case Verb.TOUCH:
        return this.#answerMessage(Verb.TOUCH, checkTouch(line));
      case Verb.SUB:
        return this.#sub();
      case Verb.CLS:
        return this.#cls();
      default:
        return this.fatal(unknownCommand(line));
    }
  }

  #expectSequenced(verb: SequencedVerb): void {
    const { line } = this.decoder;
    const sequence = parseSequence(verb, line);
    if (typeof sequence !== "number") return this.fatal(sequence);
    this.#sequence = sequence;
    if (verb === Verb.SMPUB) this.expectBatch(verb, undefined);
    else this.expectDeferred(parseSpubDefer(line, this.#options.deferMsMax));
  }

  /** Whose publish the command at hand is. */
  #origin(): Origin {
    const { producer } = this.settings;
    invariant(producer !== null, "a publish with a sequence has a producer");
    return { producer, sequence: this.#sequence };
  }

  /** Whether a publish is a repeat; it is answered then. Throws `RefusedError`. */
  #answersRepeat(origin: Origin): boolean {
    const broker = this.#broker;
    const topic = this.#knownTarget();
    const end = broker.repeatEnd(topic, origin);
    if (topic === undefined || end === null) return false;
    this.unstage();
    this.link.confirmAt(end, broker.storage.isRelaxed(topic.state));
    return true;
  }

  /** Has a large body come in pieces, which go on to the log. */
  protected override beginBody(): boolean {
    const { verb } = this;
    if (!isPublish(verb) || !this.#broker.isLarge(this.decoder.bodySize)) return false;
    this.#beginUpload(verb);
    return true;
  }

  #beginUpload(verb: PublishVerb): void {
    // Before its bytes get to the log, rather than after the body as for a small one.
    if (!this.mayPublish(verb, CommandEvent.BODY_SIZE)) return;
    try {
      this.#admit();
      // A topic is made when the message is there; one that is full need not wait for that.
      const topic = this.#knownTarget();
      if (topic !== undefined) this.#broker.admitTo(topic);
    } catch (error) {
      return this.#refused(verb, error);
    }
    this.#upload = this.#broker.beginUpload(() => {
      this.link.because("body_timeout");
      this.close();
    });
    if (this.#upload === null) {
      return this.fatal(throttled(verb, "too many bytes are being received"));
    }
    this.#uploadedBytes = 0;
    this.decoder.streamBody();
  }

  protected override bodyPart(): void {
    const upload = this.#upload;
    const verb = this.verb;
    invariant(upload !== null && isPublish(verb), "pieces belong to an upload");
    const { bodyBuffer, bodyStart, bodyEnd, bodyBytesLeft } = this.decoder;
    try {
      const from = bodyStart + this.#uploadedBytes;
      this.#uploadedBytes += upload.receive(bodyBuffer, from, bodyEnd);
      const isTaken = bodyStart + this.#uploadedBytes === bodyEnd;
      if (isTaken && bodyBytesLeft > 0) {
        this.#uploadedBytes = 0;
        return;
      }
      const dueMs = this.#dueMs(verb === Verb.PUB ? 0 : this.deferMs);
      if (isTaken) {
        const origin = verb === Verb.SPUB ? this.#origin() : null;
        if (origin !== null && this.#answersRepeat(origin)) return;
        const topic = this.#targets();
        this.#broker.admitTo(topic);
        if (origin !== null) this.#broker.admitOrigin(topic, origin);
        if (upload.finish(topic, dueMs, origin)) {
          this.#upload = null;
          return this.#confirm(topic, 1);
        }
      }
      this.retry = CommandEvent.BODY_PART;
    } catch (error) {
      this.#refused(verb, error);
    }
  }

  protected override publish(): void {
    switch (this.verb) {
      case Verb.PUB:
        return this.#publish(Verb.PUB, 0);
      case Verb.DPUB:
        return this.#publish(Verb.DPUB, this.deferMs);
      case Verb.SPUB:
        return this.#publish(Verb.SPUB, this.deferMs, this.#origin());
      case Verb.MPUB:
        return this.#publishMany(Verb.MPUB, null);
      case Verb.SMPUB:
        return this.#publishMany(Verb.SMPUB, this.#origin());
    }
  }

  #publish(verb: PublishVerb, deferMs: number, origin: Origin | null = null): void {
    const { bodyBuffer, bodyStart, bodyEnd } = this.decoder;
    const broker = this.#broker;
    if (!this.mayPublish(verb, CommandEvent.BODY)) return;
    let topic: Topic;
    try {
      if (origin !== null && this.#answersRepeat(origin)) return;
      this.#admit();
      if (!broker.hasRoom(bodyEnd - bodyStart + originBytes(origin), 1)) {
        this.retry = CommandEvent.BODY;
        return;
      }
      topic = this.#targets();
      broker.admitTo(topic);
      if (origin !== null) broker.admitOrigin(topic, origin);
      const dueMs = this.#dueMs(deferMs);
      broker.publish(topic, bodyBuffer, bodyStart, bodyEnd, dueMs, origin);
    } catch (error) {
      return this.#refused(verb, error);
    }
    this.#confirm(topic, 1);
  }

  /** With an `origin` all of it is one publish, stored whole or not at all: its last message has it. */
  #publishMany(verb: typeof Verb.MPUB | typeof Verb.SMPUB, origin: Origin | null): void {
    if (!this.scanBatch()) return;
    const { bodyBuffer, bodyStart, bodyEnd } = this.decoder;
    const scanner = this.mpub;
    const { storage } = this.#broker;
    // All of it goes into one group, unless it is too large for any.
    const bytes = bodyEnd - bodyStart;
    const isWhole = storage.fitsGroup(bytes, scanner.messageCount) &&
      !this.#broker.isLarge(scanner.largestBytes);
    if (origin !== null && !isWhole) return this.fatal(batchNotWhole(bytes));
    let topic: Topic;
    let left = scanner.messageCount;
    try {
      if (origin !== null && this.#answersRepeat(origin)) return;
      // What has begun goes on to its end.
      if (!this.#walking) this.#admit();
      if (isWhole && !this.#broker.hasRoom(bytes + originBytes(origin), left)) {
        this.retry = CommandEvent.BODY;
        return;
      }
      topic = this.#targets();
      if (!this.#walking) {
        this.#broker.admitTo(topic);
        if (origin !== null) this.#broker.admitOrigin(topic, origin);
        scanner.rewind();
        this.#walking = scanner.nextMessage(bodyBuffer, bodyStart);
      }
      while (this.#walking) {
        const { messageStart, messageEnd } = scanner;
        if (this.#broker.isLarge(messageEnd - messageStart)) {
          if (!this.#publishLarge(topic, bodyBuffer, messageStart, messageEnd)) return;
          this.#walking = scanner.nextMessage(bodyBuffer, bodyStart);
          continue;
        }
        if (!isWhole && !this.#broker.hasRoom(messageEnd - messageStart, 1)) {
          this.retry = CommandEvent.BODY;
          return;
        }
        // Only what is whole has an origin: all of it is counted here.
        const completes = --left === 0 ? origin : null;
        this.#broker.publish(topic, bodyBuffer, messageStart, messageEnd, 0, completes);
        this.#walking = scanner.nextMessage(bodyBuffer, bodyStart);
      }
    } catch (error) {
      return this.#refused(verb, error);
    }
    this.#confirm(topic, scanner.messageCount);
  }

  /** Goes on with a large message of an MPUB; false when it has to be tried again. */
  #publishLarge(topic: Topic, body: Uint8Array, start: number, end: number): boolean {
    if (this.#upload === null) {
      this.#upload = this.#broker.uploadOfMemory();
      this.#uploadedBytes = 0;
    }
    const upload = this.#upload;
    this.#uploadedBytes += upload.store(body, start + this.#uploadedBytes, end);
    if (start + this.#uploadedBytes < end || !upload.finish(topic, 0)) {
      this.retry = CommandEvent.BODY;
      return false;
    }
    this.#upload = null;
    return true;
  }

  /** When a message is due that is deferred by so long, Unix ms; 0 for at once. */
  #dueMs(deferMs: number): number {
    return deferMs === 0 ? 0 : this.#broker.clock.wallMs() + deferMs;
  }

  /** The topic that the command line names, if it is there: it is not made for a question. */
  #knownTarget(): Topic | undefined {
    const { line } = this.decoder;
    return this.#broker.topics.get(
      nameText(line.buffer, line.paramStart(0), line.paramEnd(0)),
    );
  }

  /** The topic that the command line names, made when missing. */
  #targets(): Topic {
    const { line } = this.decoder;
    return this.targets.find(this.#broker, line.buffer, line.paramStart(0), line.paramEnd(0));
  }

  /** Lets one publish command pass, or throws `RefusedError`. */
  #admit(): void {
    const { limits } = this.#broker;
    this.#broker.admit();
    if (limits.limitsClients) limits.admitClient(this.#client);
  }

  /** Who publishes, for the limits of clients. */
  get #client(): string {
    return clientOf(this.access?.identity ?? "", this.remoteAddress);
  }

  /** Answers a publish of `messages` once it is on disk, or as the topic's mode says. */
  #confirm(topic: Topic, messages: number): void {
    const { limits } = this.#broker;
    if (limits.limitsClients) limits.publishedBy(this.#client, messages);
    this.unstage();
    this.targets.count(messages);
    this.link.confirm(this.#broker.storage.isRelaxed(topic.state));
  }

  #refused(verb: PublishVerb, error: unknown): void {
    if (!(error instanceof RefusedError)) throw error;
    const { code, message } = error;
    if (this.settings.producer !== null) {
      if (code === "exiting" && this.#broker.failure === null) return this.#endProducer();
      if (code === "draining" && this.#broker.failure === null) return this.#endProducer(DRAINING);
      // A producer takes any other code for "not stored"; half of it may be.
      if (this.#walking) return this.fatal(publishFailed(verb, message));
    }
    if (code === "sequence_too_old") return this.fatal(sequenceTooOld(verb, message));
    // A producer that may repeat has to know that nothing is stored; others are told as nsqd tells them.
    const isNotStored = code === "throttled" ||
      ((code === "too_many_topics" || code === "tombstoned") && this.settings.producer !== null);
    this.fatal((isNotStored ? throttled : publishFailed)(verb, message));
  }

  /** Whether messages may name producers. If not yet, IDENTIFY is handled again once that is known. */
  protected override allowsProducer(): boolean {
    const { storage, logger } = this.#broker;
    if (storage.allowsProducers) {
      this.#allowing = null;
      return true;
    }
    if (this.#allowing !== null) {
      this.fatal(identifyFailed("the data folder cannot be prepared for producers"));
      return false;
    }
    this.#allowing = storage.allowProducers().catch((error) =>
      logger.warn("Cannot raise the folder's compatibility level for producers", {
        error: String(error),
      })
    );
    this.retry = CommandEvent.BODY;
    return false;
  }

  #sub(): void {
    const { line } = this.decoder;
    if (this.#state !== "init") return this.fatal(wrongState(Verb.SUB));
    if (this.settings.heartbeatIntervalMs === 0) return this.fatal(heartbeatsDisabled());
    const refusal = checkSub(line);
    if (refusal !== undefined) return this.fatal(refusal);
    const broker = this.#broker;
    const topicName = nameText(line.buffer, line.paramStart(0), line.paramEnd(0));
    const channelName = nameText(line.buffer, line.paramStart(1), line.paramEnd(1));
    const denial = this.access?.checkSubscribe(topicName, channelName) ?? null;
    if (denial instanceof ProtocolError) return this.fatal(denial);
    if (denial === PENDING || !broker.hasRoom(line.end - line.start, 2)) {
      this.retry = CommandEvent.LINE;
      return;
    }
    try {
      if (broker.exiting) return this.fatal(subFailed("exiting"));
      if (broker.failure !== null) return this.fatal(subFailed("the log cannot be written"));
      const topic = broker.ensureTopic(topicName);
      const channel = broker.ensureChannel(topic, channelName);
      const { messageTimeoutMs, sampleRate } = this.settings;
      const consumer = channel.join(this, messageTimeoutMs, sampleRate);
      if (consumer === null) {
        const { consumersMax } = this.#options;
        return this.fatal(consumersExceedLimit(topicName, channelName, consumersMax));
      }
      this.#subscription = { topic, channel, consumer };
      this.#state = "subscribed";
      this.access?.watch(topicName, channelName);
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error;
      return this.fatal(subFailed(error.message));
    }
    // What is new is confirmed once it would survive a crash. What is not needs no write: a log that
    // waits for space does not keep consumers from what is on disk.
    const { createdEnd } = this.#subscription.channel;
    this.link.holdMessages(createdEnd);
    this.link.reply(OK_FRAME, createdEnd);
  }

  #rdy(): void {
    if (this.#state === "closing") return;
    const subscription = this.#subscription;
    if (subscription === null) return this.fatal(wrongState(Verb.RDY));
    const count = parseRdy(this.decoder.line, this.#options.identify.rdyCountMax);
    if (typeof count !== "number") return this.fatal(count);
    subscription.channel.credit(subscription.consumer, count);
  }

  #answerMessage(verb: MessageVerb, refusal: ProtocolError | undefined): void {
    const subscription = this.#subscription;
    if (subscription === null) return this.fatal(wrongState(verb));
    if (refusal !== undefined) return this.fatal(refusal);
    const { line } = this.decoder;
    const broker = this.#broker;
    const { channel, consumer } = subscription;
    let delayMs = 0;
    if (verb === Verb.REQ) {
      const parsed = parseReq(line, this.#options.requeueMsMax);
      if (typeof parsed !== "number") return this.fatal(parsed);
      delayMs = parsed;
    }
    if (!broker.hasRoom(64, 1)) {
      this.retry = CommandEvent.LINE;
      return;
    }
    if (broker.failure !== null) return;
    const sequence = parseMessageId(line.buffer, line.paramStart(0), broker.storage.nodeId);
    const { clock } = broker;
    let outcome: InFlightOutcome;
    if (verb === Verb.FIN) outcome = channel.finish(consumer, sequence);
    else if (verb === Verb.TOUCH) outcome = channel.touch(consumer, sequence, clock.monoMs());
    else outcome = channel.requeue(consumer, sequence, delayMs, clock.monoMs(), clock.wallMs());
    if (outcome === "done") {
      if (broker.traces !== null && verb !== Verb.TOUCH) this.#traceAnswer(verb, channel, sequence);
      return;
    }
    const reason = outcome === "not_owner"
      ? MessageFailure.NOT_OWNER
      : MessageFailure.NOT_IN_FLIGHT;
    const error = messageFailed(verb, line, reason);
    broker.counters.countError(error.code);
    this.link.reply(encodeErrorFrame(error));
  }

  #traceAnswer(verb: Verb, { state }: Channel, sequence: number): void {
    const { position, traces } = this.#broker;
    const outcome = verb === Verb.FIN ? "finished" : "requeued";
    // A finish is in the next group that ends behind here, and nowhere for an ephemeral channel.
    const end = state.number === 0 ? 0 : position + 1;
    traces?.answered(this.#consumed, sequence, outcome, end);
  }

  /** What is consumed here, by name. */
  get #consumed(): { readonly topic: string; readonly channel: string } {
    const { topic, channel } = this.#subscription ?? {};
    return { topic: topic?.state.name ?? "", channel: channel?.state.name ?? "" };
  }

  #cls(): void {
    const subscription = this.#subscription;
    if (this.#state !== "subscribed" || subscription === null) {
      return this.fatal(wrongState(Verb.CLS));
    }
    subscription.channel.close(subscription.consumer);
    this.#state = "closing";
    this.link.reply(CLOSE_WAIT_FRAME);
  }

  /** As `fatal`, because the broker stops or drains. */
  #endProducer(closing = CLOSING): void {
    this.unstage();
    if (!this.link.ended && this.#broker.failure === null) {
      this.link.reply(encodeErrorFrame(
        // Some messages of a batch that goes over many groups may be stored, and the others are not.
        this.#walking ? publishFailed(Verb.MPUB, "exiting") : closing,
      ));
    }
    this.link.end(true);
  }

  protected override unstage(): void {
    this.#upload?.abandon();
    this.#upload = null;
    super.unstage();
  }
}

function isPublish(verb: Verb): verb is typeof Verb.PUB | typeof Verb.DPUB | typeof Verb.SPUB {
  return verb === Verb.PUB || verb === Verb.DPUB || verb === Verb.SPUB;
}

function originBytes(origin: Origin | null): number {
  return origin === null ? 0 : PRODUCER_ATTRIBUTE_BYTES;
}

/** The NSQ TCP door of a broker. */
export function brokerTcp(
  broker: Broker,
  listener: Listener,
  options: { readonly connectionsMax: number; readonly session: SessionOptions },
): TcpServer<Session> {
  const logger = broker.logger.component("nsq");
  const { session } = options;
  const { connectionsMax } = options;
  return new TcpServer(listener, {
    clock: broker.clock,
    connectionsMax,
    logger,
    open: (connection, onClose) => new Session(broker, connection, { logger, ...session }, onClose),
  });
}
