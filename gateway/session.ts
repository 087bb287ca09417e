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
  CommandEvent,
  encodeErrorFrame,
  equalBytes,
  MpubScanner,
  nameText,
  OK_FRAME,
  ProtocolError,
  type PublishVerb,
  subFailed,
  unknownCommand,
  Verb,
  wrongState,
} from "@sluice/shared/protocol";
import { type Clock, invariant, type Timer } from "@sluice/shared/runtime";
import {
  type LayeredConnection,
  NsqLink,
  NsqSession,
  type NsqSessionOptions,
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

/** The last word to a client that asked for outcomes. */
const CLOSING_FRAME = encodeErrorFrame(new ProtocolError("E_CLOSING", "the gateway takes no more"));
/** A client that has sent nothing for so long is between two publishes. */
const QUIET_MS = 50;

/** Limits of a session. */
export interface SessionOptions extends NsqSessionOptions {
  /** Bytes of publishes of one connection without an outcome. */
  readonly connectionBytesMax: number;
  /** How long a connection that is to be closed waits for its answers. */
  readonly closeMsMax: number;
}

/** What a session stands on. */
export interface SessionSeams {
  readonly publisher: Publisher;
  readonly receiving: Receiving;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** See the module. */
export class Session extends NsqSession<OrderedReplies, NsqLink<OrderedReplies>> {
  publishCount = 0;
  /** Bytes of publishes without an outcome. */
  heldBytes = 0;
  readonly #options: SessionOptions;
  readonly #seams: SessionSeams;
  readonly #onClose: (session: Session) => void;
  /** What `retry` waits for. */
  #retryAfter: Promise<void> | null = null;
  #roomWaiter: (() => void) | null = null;
  #heardMs: number;
  #draining: "not" | "when quiet" | "when answered" = "not";
  #quietTimer: Timer | null = null;
  #topicBytes: Uint8Array = new Uint8Array(0);
  #topic = "";

  constructor(
    connection: LayeredConnection,
    options: SessionOptions,
    seams: SessionSeams,
    onClose: (session: Session) => void,
  ) {
    super(
      connection,
      options,
      seams.clock,
      (owner) =>
        new NsqLink(
          connection,
          owner,
          {
            ...seams,
            flushLater: (link) => queueMicrotask(() => link.flush()),
            closeMsMax: options.closeMsMax,
          },
          (outbox) => new OrderedReplies(outbox),
        ),
    );
    this.#options = options;
    this.#seams = seams;
    this.#onClose = onClose;
    this.#heardMs = seams.clock.monoMs();
  }

  override receive(buffer: Uint8Array, start: number, end: number): void {
    this.#heardMs = this.#seams.clock.monoMs();
    super.receive(buffer, start, end);
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
      if (this.link.ended) return;
      this.#quietTimer = this.#seams.clock.setTimer(QUIET_MS / 2, check);
    };
    check();
  }

  /** What was taken is answered; who asked for outcomes is told that nothing else was. */
  override end(): void {
    this.link.because("stop");
    if (!this.link.isUpgrading) this.#lastWord();
    this.link.end(this.settings.outcomes);
  }

  #lastWord(): void {
    if (this.settings.outcomes && !this.link.ended) this.reply(CLOSING_FRAME);
  }

  #endIfIdle(): void {
    const { remainingBytes, position } = this.decoder;
    const isBetween = remainingBytes === 0 &&
      (position === "between_commands" || position === "in_magic");
    if (isBetween && this.link.replies.isEmpty && !this.link.isUpgrading) this.end();
  }

  // NsqLinkOwner

  override writableAgain(): void {
    // There are no messages.
  }

  override ending(): void {
    this.unstage();
  }

  override leave(): void {
    this.#roomWaiter?.();
  }

  override closed(): void {
    super.closed();
    this.#quietTimer?.cancel();
    this.#onClose(this);
  }

  // NsqSession

  protected override reply(frame: Uint8Array): void {
    this.link.replies.add(frame);
    this.link.flushLater();
  }

  protected override command(): void {
    const { line } = this.decoder;
    switch (line.verb) {
      case Verb.SUB:
        return this.fatal(subFailed(NO_CONSUMERS));
      case Verb.RDY:
      case Verb.FIN:
      case Verb.REQ:
      case Verb.TOUCH:
      case Verb.CLS:
        return this.fatal(wrongState(line.verb));
      default:
        return this.fatal(unknownCommand(line));
    }
  }

  protected override publish(): void {
    const { verb } = this;
    if (verb === Verb.PUB || verb === Verb.DPUB) this.#publish(verb);
    else this.#publishMany();
  }

  protected override blockForRetry(): void {
    const after = this.#retryAfter;
    this.#retryAfter = null;
    invariant(after !== null, "what is handled again waits for something");
    this.link.blockUntil(after);
  }

  protected override takeMemory(bytes: number): boolean {
    return this.#seams.receiving.take(bytes);
  }

  protected override giveMemory(bytes: number): void {
    this.#seams.receiving.giveBack(bytes);
  }

  #publish(verb: typeof Verb.PUB | typeof Verb.DPUB): void {
    if (!this.mayPublish(verb, CommandEvent.BODY) || !this.#hasRoom()) return;
    const { bodyBuffer, bodyStart, bodyEnd } = this.decoder;
    const { deferMs } = this;
    const isDeferred = verb === Verb.DPUB && deferMs > 0;
    const dueWallMs = isDeferred ? this.#seams.clock.wallMs() + deferMs : 0;
    const body = bodyBuffer.slice(bodyStart, bodyEnd);
    this.#send(this.#topicName(), false, 1, body, dueWallMs, this.#taken(verb, body.length));
  }

  #publishMany(): void {
    if (!this.scanBatch() || !this.#hasRoom()) return;
    const { bodyBuffer, bodyStart, bodyEnd } = this.decoder;
    const scanner = this.mpub;
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
    this.unstage();
    this.publishCount++;
    const heldBytes = bytes + PUBLISH_OVERHEAD_BYTES;
    this.heldBytes += heldBytes;
    const slot = this.link.replies.place();
    return (outcome) => {
      this.heldBytes -= heldBytes;
      this.#roomWaiter?.();
      if (this.link.closed) return;
      const error = errorOf(verb, outcome);
      const isOut = this.link.replies.fill(
        slot,
        error === null ? OK_FRAME : encodeErrorFrame(error),
      );
      if (error !== null) this.#refused(error);
      if (!isOut) return;
      this.link.flushLater();
      this.link.released();
      // The end of the connection goes out with the answer.
      if (this.#draining === "when answered") this.#endIfIdle();
    };
  }

  /** Whether there is memory for the publish at hand; if not, it is handled again once there is. */
  #hasRoom(): boolean {
    const { publisher } = this.#seams;
    const { bodySize } = this.decoder;
    if (this.heldBytes > 0 && this.heldBytes + bodySize > this.#options.connectionBytesMax) {
      this.retry = CommandEvent.BODY;
      this.#retryAfter = new Promise((resolve) => {
        this.#roomWaiter = () => {
          this.#roomWaiter = null;
          resolve();
        };
      });
      return false;
    }
    if (publisher.hasRoom(bodySize)) return true;
    this.retry = CommandEvent.BODY;
    this.#retryAfter = publisher.room();
    return false;
  }

  /** The topic that the command line names. The same text is used again for the same topic. */
  #topicName(): string {
    const { line } = this.decoder;
    const { buffer } = line;
    const start = line.paramStart(0);
    const end = line.paramEnd(0);
    if (!equalBytes(buffer, start, end, this.#topicBytes)) {
      this.#topicBytes = buffer.slice(start, end);
      this.#topic = nameText(buffer, start, end);
    }
    return this.#topic;
  }

  /** A publish ended in an error, which is in its place: nothing behind it is taken any more. */
  #refused(error: ProtocolError): void {
    this.link.because("protocol_error", error.logText);
    this.#lastWord();
    this.link.end(true);
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
