/**
 * One NSQ connection of a producer: IDENTIFY, AUTH, PUB, MPUB, DPUB, NOP, as a broker takes them.
 *
 * - Replies go out in the order of their commands, while the publishes behind them are on their way to
 *   different brokers at once.
 * - When the memory for publishes without an outcome is used up, all of it or what a connection may
 *   have, the session stops reading: the client waits, nothing grows.
 * - SUB ends in an error that names discovery: consumers connect to brokers. What else needs a
 *   subscription is answered as a broker does that has none.
 * - A publish that could not be taken ends the connection with an error, as any publish error does:
 *   `E_THROTTLED` (not stored, try again), `E_AMBIGUOUS` (not known), or what the broker said.
 */
import {
  authDisabled,
  badProtocol,
  checkAuth,
  checkMessageSize,
  checkMpub,
  checkMpubBodySize,
  checkPub,
  checkSessionBodySize,
  CommandDecoder,
  CommandEvent,
  type ConnectionSettings,
  decodeIdentify,
  encodeErrorFrame,
  encodeResponseFrame,
  endOfStreamError,
  equalBytes,
  identifyFailed,
  type IdentifyOptions,
  MpubScanner,
  nameText,
  negotiateIdentify,
  OK_FRAME,
  parseDpub,
  ProtocolError,
  type PublishVerb,
  settingsBeforeIdentify,
  subFailed,
  throttled,
  tlsRequired,
  unknownCommand,
  Verb,
  wrongState,
} from "@sluice/shared/protocol";
import type { Clock, Timer } from "@sluice/shared/runtime";
import {
  CLEAR,
  type LayeredConnection,
  needsUpgrade,
  NsqLink,
  type NsqLinkOwner,
  PENDING,
  remoteHost,
  SessionAccess,
  type SessionAuthorization,
  type SessionSecurity,
  type TcpSession,
  type TlsDoor,
  upgrade,
} from "@sluice/shared/server";
import type { Logger } from "@sluice/shared/telemetry";
import { isOnePiece, pieces } from "./batch_split.ts";
import { errorOf } from "./outcome_error.ts";
import { OrderedReplies } from "./ordered_replies.ts";
import { PUBLISH_OVERHEAD_BYTES } from "./publish.ts";
import type { Publisher } from "./publisher.ts";
import type { Receiving } from "./receiving.ts";
import type { Outcome } from "./transit.ts";
import { worstOf } from "./worst_outcome.ts";

const NO_CONSUMERS =
  "this is a gateway for producers: ask discovery (nsqlookupd) for the brokers " +
  "that have the topic and connect to them";

/** A client that has sent nothing for so long is between two publishes. */
const QUIET_MS = 50;

/** Limits of a session. */
export interface SessionOptions {
  readonly identify: IdentifyOptions;
  readonly messageBytesMax: number;
  readonly bodyBytesMax: number;
  /** Bounds DPUB, which is refused above. */
  readonly deferMsMax: number;
  /** Bytes of publishes of one connection without an outcome. */
  readonly connectionBytesMax: number;
  /** How long a connection that is to be closed waits for its answers. */
  readonly closeMsMax: number;
  /** `null` when there is no certificate. */
  readonly tls: TlsDoor | null;
  /** How clients are authorized; everybody may publish when null. */
  readonly authorization: SessionAuthorization | null;
}

/** What a session stands on. */
export interface SessionSeams {
  readonly publisher: Publisher;
  readonly receiving: Receiving;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** See the module. */
export class Session implements NsqLinkOwner, TcpSession {
  settings: ConnectionSettings;
  publishCount = 0;
  /** Bytes of publishes without an outcome. */
  heldBytes = 0;
  readonly connectedWallMs: number;
  readonly connection: LayeredConnection;
  readonly access: SessionAccess | null;
  readonly #options: SessionOptions;
  readonly #seams: SessionSeams;
  readonly #onClose: (session: Session) => void;
  readonly #decoder = new CommandDecoder();
  readonly #mpub: MpubScanner;
  readonly #link: NsqLink<OrderedReplies>;
  #verb: Verb = Verb.UNKNOWN;
  #deferMs = 0;
  /** The event to handle again once there is room, or it is known who the client is. */
  #retry: CommandEvent | null = null;
  #retryAfter: Promise<void> | null = null;
  #stagedBytes = 0;
  #roomWaiter: (() => void) | null = null;
  #heardMs: number;
  #draining: "not" | "when quiet" | "when answered" = "not";
  #quietTimer: Timer | null = null;
  /** Only IDENTIFY is taken until there is TLS. */
  #needsTls: boolean;
  #topicBytes: Uint8Array = new Uint8Array(0);
  #topic = "";

  constructor(
    connection: LayeredConnection,
    options: SessionOptions,
    seams: SessionSeams,
    onClose: (session: Session) => void,
  ) {
    this.connection = connection;
    this.#options = options;
    this.#seams = seams;
    this.#onClose = onClose;
    this.#needsTls = options.tls?.required ?? false;
    this.settings = settingsBeforeIdentify(options.identify, connection.remoteAddress);
    this.#mpub = new MpubScanner(options);
    this.connectedWallMs = seams.clock.wallMs();
    this.#heardMs = seams.clock.monoMs();
    this.#link = new NsqLink(
      connection,
      this,
      {
        ...seams,
        flushLater: (link) => queueMicrotask(() => link.flush()),
        closeMsMax: options.closeMsMax,
      },
      (outbox) => new OrderedReplies(outbox),
    );
    const { authorization } = options;
    this.access = authorization && new SessionAccess(
      authorization,
      seams.clock,
      () => ({ remoteIp: remoteHost(connection.remoteAddress), ...this.#security }),
      (error) => {
        if (!this.#link.ended) this.#fatal(error);
      },
    );
    this.#settleLink();
  }

  get isClosed(): boolean {
    return this.#link.closed;
  }

  get blocked(): Promise<void> | null {
    return this.#link.blocked;
  }

  get remoteAddress(): string {
    return this.connection.remoteAddress;
  }

  receive(buffer: Uint8Array, start: number, end: number): void {
    if (this.#link.ended) return this.#link.drop(end - start);
    this.#heardMs = this.#seams.clock.monoMs();
    this.#decoder.feed(buffer, start, end);
    this.resume();
  }

  endOfStream(): void {
    if (!this.#link.ended) {
      const error = endOfStreamError(this.#verb, this.#decoder.position, this.#mpub);
      if (error !== undefined) this.#reply(encodeErrorFrame(error));
    }
    this.end();
  }

  end(): void {
    this.#link.end(false);
  }

  /**
   * Closes the connection at the first moment at which nothing of the client is under way: a client that
   * is between two publishes connects again for the next one, and notices nothing. With `isUrgent` the
   * moment after an answer will do, though the next publish may be on its way by then.
   */
  drain(isUrgent: boolean): void {
    this.#draining = isUrgent ? "when answered" : "when quiet";
    this.#quietTimer?.cancel();
    if (isUrgent) return this.#endIfIdle();
    const check = () => {
      if (this.#seams.clock.monoMs() - this.#heardMs >= QUIET_MS) this.#endIfIdle();
      if (this.#link.ended) return;
      this.#quietTimer = this.#seams.clock.setTimer(QUIET_MS / 2, check);
    };
    check();
  }

  #endIfIdle(): void {
    const { remainingBytes, position } = this.#decoder;
    const isBetween = remainingBytes === 0 &&
      (position === "between_commands" || position === "in_magic");
    if (isBetween && this.#link.replies.isEmpty && !this.#link.isUpgrading) this.#link.end(false);
  }

  close(): void {
    this.#link.close();
  }

  // NsqLinkOwner

  writableAgain(): void {
    // There are no messages.
  }

  ending(): void {
    this.#unstage();
  }

  leave(): void {
    this.#roomWaiter?.();
  }

  closed(): void {
    this.#unstage();
    this.#quietTimer?.cancel();
    this.access?.close();
    this.#onClose(this);
  }

  resume(): void {
    while (!this.#link.ended) {
      const event = this.#retry ?? this.#decoder.next();
      this.#retry = null;
      switch (event) {
        case CommandEvent.NEED_MORE:
          this.#checkPartialMpub();
          this.#link.blockIfUnread();
          return;
        case CommandEvent.BAD_MAGIC:
          this.#fatal(badProtocol());
          break;
        case CommandEvent.LINE_TOO_LONG:
          this.#link.end(true);
          break;
        case CommandEvent.LINE:
          this.#link.heard();
          this.#command();
          break;
        case CommandEvent.BODY_SIZE:
          this.#bodySize();
          break;
        case CommandEvent.BODY:
          this.#body();
          break;
        case CommandEvent.MAGIC:
        case CommandEvent.BODY_PART:
          break;
      }
      if (this.#retry !== null) {
        const after = this.#retryAfter ?? this.access?.pending ?? null;
        this.#retryAfter = null;
        if (after !== null) this.#link.blockUntil(after);
        return;
      }
    }
  }

  /** What the handshake has shown of the client. */
  get #security(): SessionSecurity {
    const { tls } = this.#options;
    const { tlsState } = this.connection;
    if (tls === null || tlsState === null) return CLEAR;
    const isVerified = tls.settings().clientPolicy === "require-verify";
    return { isTls: true, commonName: tlsState.commonName, isCertificateVerified: isVerified };
  }

  #command(): void {
    const { line } = this.#decoder;
    this.#verb = line.verb;
    if (this.#needsTls && line.verb !== Verb.IDENTIFY) return this.#fatal(tlsRequired(line));
    switch (line.verb) {
      case Verb.PUB: {
        this.#deferMs = 0;
        const refusal = checkPub(line);
        return refusal === undefined ? this.#decoder.expectBody() : this.#fatal(refusal);
      }
      case Verb.DPUB: {
        const deferMs = parseDpub(line, this.#options.deferMsMax);
        if (typeof deferMs !== "number") return this.#fatal(deferMs);
        this.#deferMs = deferMs;
        return this.#decoder.expectBody();
      }
      case Verb.MPUB: {
        const refusal = checkMpub(line);
        if (refusal !== undefined) return this.#fatal(refusal);
        // Unlike PUB and DPUB it is authorized before its body is read, as in nsqd.
        if (this.#mayPublish(Verb.MPUB, CommandEvent.LINE)) this.#decoder.expectBody();
        return;
      }
      case Verb.NOP:
        return;
      case Verb.IDENTIFY:
        return this.#decoder.expectBody();
      case Verb.AUTH: {
        const refusal = checkAuth(line);
        if (refusal !== undefined) return this.#fatal(refusal);
        return this.#decoder.expectBody();
      }
      case Verb.SUB:
        return this.#fatal(subFailed(NO_CONSUMERS));
      case Verb.RDY:
      case Verb.FIN:
      case Verb.REQ:
      case Verb.TOUCH:
      case Verb.CLS:
        return this.#fatal(wrongState(line.verb));
      default:
        return this.#fatal(unknownCommand(line));
    }
  }

  #bodySize(): void {
    const { bodySize } = this.#decoder;
    const { messageBytesMax, bodyBytesMax } = this.#options;
    let refusal: ProtocolError | undefined;
    switch (this.#verb) {
      case Verb.PUB:
      case Verb.DPUB:
        refusal = checkMessageSize(this.#verb, bodySize, messageBytesMax);
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
    if (this.#verb === Verb.MPUB) this.#mpub.begin(bodySize, true);
    this.#decoder.acceptBody();
    this.#stage();
  }

  #body(): void {
    switch (this.#verb) {
      case Verb.PUB:
      case Verb.DPUB:
        return this.#publish(this.#verb);
      case Verb.MPUB:
        return this.#publishMany();
      case Verb.IDENTIFY:
        return this.#identify();
      case Verb.AUTH:
        return this.#auth();
    }
  }

  #publish(verb: typeof Verb.PUB | typeof Verb.DPUB): void {
    if (!this.#mayPublish(verb, CommandEvent.BODY) || !this.#hasRoom()) return;
    const { bodyBuffer, bodyStart, bodyEnd } = this.#decoder;
    const dueWallMs = this.#deferMs === 0 ? 0 : this.#seams.clock.wallMs() + this.#deferMs;
    const body = bodyBuffer.slice(bodyStart, bodyEnd);
    this.#send(this.#topicName(), false, 1, body, dueWallMs, this.#taken(verb, body.length));
  }

  #publishMany(): void {
    const { bodyBuffer, bodyStart, bodyEnd } = this.#decoder;
    const scanner = this.#mpub;
    const refusal = scanner.check(bodyBuffer, bodyStart, bodyEnd);
    if (refusal !== undefined) return this.#fatal(refusal);
    if (scanner.missingBytes > 0) {
      this.#decoder.extendBody(scanner.missingBytes);
      scanner.extend();
      return this.#stage();
    }
    if (!this.#hasRoom()) return;
    const body = bodyBuffer.slice(bodyStart, bodyEnd);
    const topic = this.#topicName();
    const done = this.#taken(Verb.MPUB, body.length);
    const { messageCount, largestBytes } = scanner;
    if (isOnePiece(body.length, largestBytes)) {
      return this.#send(topic, true, messageCount, body, 0, done);
    }
    const list = [...pieces(body, scanned(scanner, body))];
    const each = worstOf(list.length, done);
    for (const piece of list) {
      this.#send(topic, piece.isBatch, piece.messageCount, piece.body, 0, each);
    }
  }

  #send(
    topic: string,
    isBatch: boolean,
    messageCount: number,
    body: Uint8Array,
    dueWallMs: number,
    done: (outcome: Outcome) => void,
  ): void {
    const request = { topic, isBatch, messageCount, body, dueWallMs, key: "" };
    this.#seams.publisher.publish(request, done);
  }

  /** A publish of `bytes` is taken: its place among the replies, and what fills it. */
  #taken(verb: PublishVerb, bytes: number): (outcome: Outcome) => void {
    this.#unstage();
    this.publishCount++;
    const heldBytes = bytes + PUBLISH_OVERHEAD_BYTES;
    this.heldBytes += heldBytes;
    const slot = this.#link.replies.place();
    return (outcome) => {
      this.heldBytes -= heldBytes;
      this.#roomWaiter?.();
      if (this.#link.closed) return;
      const error = errorOf(verb, outcome);
      const isOut = this.#link.replies.fill(
        slot,
        error === null ? OK_FRAME : encodeErrorFrame(error),
      );
      if (error !== null) this.#refused(error);
      if (!isOut) return;
      this.#link.flushLater();
      this.#link.released();
      // The end of the connection goes out with the answer.
      if (this.#draining === "when answered") this.#endIfIdle();
    };
  }

  /** Whether there is memory for the publish at hand; if not, it is handled again once there is. */
  #hasRoom(): boolean {
    const { publisher } = this.#seams;
    const { bodySize } = this.#decoder;
    if (this.heldBytes > 0 && this.heldBytes + bodySize > this.#options.connectionBytesMax) {
      this.#retry = CommandEvent.BODY;
      this.#retryAfter = new Promise((resolve) => {
        this.#roomWaiter = () => {
          this.#roomWaiter = null;
          resolve();
        };
      });
      return false;
    }
    if (publisher.hasRoom(bodySize)) return true;
    this.#retry = CommandEvent.BODY;
    this.#retryAfter = publisher.room();
    return false;
  }

  /** Whether a publish is authorized. If not yet, `event` is handled again once that is known. */
  #mayPublish(verb: PublishVerb, event: CommandEvent): boolean {
    if (this.access === null) return true;
    const refusal = this.access.checkPublish(verb, this.#decoder.line);
    if (refusal === null) return true;
    if (refusal === PENDING) this.#retry = event;
    else this.#fatal(refusal);
    return false;
  }

  /** The topic that the command line names. The same text is used again for the same topic. */
  #topicName(): string {
    const { line } = this.#decoder;
    const { buffer } = line;
    const start = line.paramStart(0);
    const end = line.paramEnd(0);
    if (!equalBytes(buffer, start, end, this.#topicBytes)) {
      this.#topicBytes = buffer.slice(start, end);
      this.#topic = nameText(buffer, start, end);
    }
    return this.#topic;
  }

  #auth(): void {
    if (this.access === null) return this.#fatal(authDisabled());
    const { bodyBuffer, bodyStart, bodyEnd } = this.#decoder;
    const answer = this.access.authenticate(bodyBuffer, bodyStart, bodyEnd);
    if (answer === PENDING) {
      this.#retry = CommandEvent.BODY;
      return;
    }
    if (answer instanceof ProtocolError) return this.#fatal(answer);
    this.#unstage();
    this.#reply(answer);
  }

  #identify(): void {
    const { bodyBuffer, bodyStart, bodyEnd } = this.#decoder;
    const request = decodeIdentify(bodyBuffer, bodyStart, bodyEnd);
    this.#unstage();
    if (request instanceof ProtocolError) return this.#fatal(request);
    const result = negotiateIdentify(request, this.#options.identify);
    if (result instanceof ProtocolError) return this.#fatal(result);
    const upgrades = needsUpgrade(result.settings);
    if (upgrades && this.connection.isUpgraded) {
      return this.#fatal(identifyFailed("the connection is upgraded already"));
    }
    if (upgrades && this.#decoder.remainingBytes > 0) {
      return this.#fatal(identifyFailed("more was sent before the upgrade"));
    }
    this.settings = result.settings;
    const reply = encodeResponseFrame(result.reply);
    if (upgrades) return this.#link.upgrade(() => this.#upgrade(reply));
    this.#settleLink();
    this.#reply(reply);
  }

  async #upgrade(reply: Uint8Array): Promise<void> {
    await upgrade(this.connection, this.settings, this.#options.tls, reply);
    this.#needsTls &&= this.connection.tlsState === null;
    // Heartbeats begin here, not before the last OK.
    this.#settleLink();
  }

  #settleLink(): void {
    const { heartbeatIntervalMs, outputBufferBytes } = this.settings;
    this.#link.settle(heartbeatIntervalMs, outputBufferBytes);
  }

  #checkPartialMpub(): void {
    if (this.#verb !== Verb.MPUB || this.#decoder.position !== "in_body") return;
    const { bodyBuffer, bodyStart, bodyEnd } = this.#decoder;
    const refusal = this.#mpub.check(bodyBuffer, bodyStart, bodyEnd);
    if (refusal !== undefined) this.#fatal(refusal);
  }

  #reply(frame: Uint8Array): void {
    this.#link.replies.add(frame);
    this.#link.flushLater();
  }

  #fatal(error: ProtocolError): void {
    this.#unstage();
    this.#log(error);
    this.#reply(encodeErrorFrame(error));
    this.#link.end(true);
  }

  /** A publish ended in an error, which is in its place: nothing behind it is taken any more. */
  #refused(error: ProtocolError): void {
    this.#log(error);
    this.#link.end(true);
  }

  #log(error: ProtocolError): void {
    this.#seams.logger.info("Closing a connection after an error", {
      client: this.remoteAddress,
      error: error.text,
    });
  }

  /** Takes memory for a body that has to wait for more bytes. */
  #stage(): void {
    this.#unstage();
    const { bodySize, remainingBytes } = this.#decoder;
    if (bodySize <= remainingBytes) return;
    if (this.#seams.receiving.take(bodySize)) this.#stagedBytes = bodySize;
    else this.#fatal(throttled(this.#verb, "too many bytes are being received"));
  }

  #unstage(): void {
    if (this.#stagedBytes === 0) return;
    this.#seams.receiving.giveBack(this.#stagedBytes);
    this.#stagedBytes = 0;
  }
}

/** The messages of a batch that was checked. */
function scanned(scanner: MpubScanner, body: Uint8Array) {
  return {
    count: scanner.messageCount,
    largest: scanner.largestBytes,
    *each() {
      scanner.rewind();
      while (scanner.nextMessage(body, 0)) {
        yield { start: scanner.messageStart, end: scanner.messageEnd };
      }
    },
  };
}
