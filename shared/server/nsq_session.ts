/**
 * What every service does with the stream of an NSQ connection (contract sections 1.1 to 1.6 and 1.12):
 * commands and their bodies in order, IDENTIFY with what follows it, AUTH, the checks of commands that
 * publish, and the memory of bodies that are received. What a command comes to is for the service.
 *
 * - A fatal error ends the session once everything before it has been answered.
 * - What cannot be handled yet, for want of room or of an answer from elsewhere, is handled again: the
 *   session stops reading in front of it, and so does the client.
 * - Before TLS, where that is required, only IDENTIFY is taken.
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
  identifyFailed,
  type IdentifyOptions,
  MpubScanner,
  negotiateIdentify,
  parseDpub,
  ProtocolError,
  type PublishVerb,
  settingsBeforeIdentify,
  throttled,
  tlsRequired,
  unknownCommand,
  Verb,
  wrongState,
} from "../protocol/mod.ts";
import type { Clock, ConnectionError } from "../runtime/mod.ts";
import type { LayeredConnection } from "./connection_layers.ts";
import type { HeldReplies, NsqLink, NsqLinkOwner } from "./nsq_link.ts";
import { remoteHost } from "./remote_host.ts";
import {
  CLEAR,
  PENDING,
  SessionAccess,
  type SessionAuthorization,
  type SessionSecurity,
} from "./session_access.ts";
import type { TcpSession } from "./tcp_server.ts";
import { needsUpgrade, type TlsDoor, upgrade } from "./upgrade.ts";

/** Limits of a session, and what it offers. */
export interface NsqSessionOptions {
  readonly identify: IdentifyOptions;
  readonly messageBytesMax: number;
  readonly bodyBytesMax: number;
  /** Bounds DPUB, which is refused above. */
  readonly deferMsMax: number;
  /** `null` when there is no certificate. */
  readonly tls: TlsDoor | null;
  /** How clients are authorized; everybody may do everything when null or absent. */
  readonly authorization?: SessionAuthorization | null;
}

/** See the module. */
export abstract class NsqSession<R extends HeldReplies, L extends NsqLink<R>>
  implements NsqLinkOwner, TcpSession {
  settings: ConnectionSettings;
  readonly connectedWallMs: number;
  readonly connection: LayeredConnection;
  /** What the client may do; null when everybody may do everything. */
  readonly access: SessionAccess | null;

  protected readonly link: L;
  protected readonly decoder: CommandDecoder = new CommandDecoder();
  protected readonly mpub: MpubScanner;
  /** The command at hand, and for how long it defers. */
  protected verb: Verb = Verb.UNKNOWN;
  protected deferMs = 0;
  /** The event to handle again. */
  protected retry: CommandEvent | null = null;
  readonly #options: NsqSessionOptions;
  #stagedBytes = 0;
  /** Only IDENTIFY is taken until there is TLS. */
  #needsTls: boolean;

  /** `link` makes the sending side; it may keep its owner and must not use it yet. */
  protected constructor(
    connection: LayeredConnection,
    options: NsqSessionOptions,
    clock: Clock,
    link: (owner: NsqLinkOwner) => L,
  ) {
    this.connection = connection;
    this.#options = options;
    this.#needsTls = options.tls?.required ?? false;
    this.settings = settingsBeforeIdentify(options.identify, connection.remoteAddress);
    this.mpub = new MpubScanner(options);
    this.connectedWallMs = clock.wallMs();
    this.link = link(this);
    const { authorization = null } = options;
    this.access = authorization && new SessionAccess(
      authorization,
      clock,
      () => ({ remoteIp: remoteHost(connection.remoteAddress), ...this.#security }),
      (error) => {
        if (!this.link.ended) this.fatal(error);
      },
    );
    this.#settleLink();
  }

  /** Nothing is read any more. */
  get isClosed(): boolean {
    return this.link.closed;
  }

  get blocked(): Promise<void> | null {
    return this.link.blocked;
  }

  get remoteAddress(): string {
    return this.connection.remoteAddress;
  }

  receive(buffer: Uint8Array, start: number, end: number): void {
    if (this.link.ended) return this.link.drop(end - start);
    this.decoder.feed(buffer, start, end);
    this.resume();
  }

  /** The peer sends no more. What it is owed is still written. */
  endOfStream(): void {
    if (!this.link.ended) {
      const error = endOfStreamError(this.verb, this.decoder.position, this.mpub);
      this.link.because("client_closed", error?.logText);
      if (error !== undefined) this.reply(encodeErrorFrame(error));
    }
    this.link.end(false);
  }

  /** Takes no more commands and closes once everything so far is answered: the service stops. */
  end(): void {
    this.link.because("stop");
    this.link.end(false);
  }

  /** Ends the session at once: what is unanswered stays so. */
  close(error?: ConnectionError): void {
    if (error !== undefined) this.link.because("connection_failed", error.message);
    this.link.close();
  }

  /** Sends a frame that confirms nothing, after what was answered before. */
  protected abstract reply(frame: Uint8Array): void;
  /** Handles a command that is not one of all services. */
  protected abstract command(): void;
  /** Handles a command that publishes, whose body is there. */
  protected abstract publish(): void;
  /** Stops reading until what `retry` waits for has come. */
  protected abstract blockForRetry(): void;
  /** Takes memory for a body that has to wait for more bytes, or returns false. */
  protected abstract takeMemory(bytes: number): boolean;
  protected abstract giveMemory(bytes: number): void;

  /** Whether IDENTIFY and AUTH may come now. */
  protected get mayIdentify(): boolean {
    return true;
  }

  /** Begins a body that is not to be gathered; returns whether it did. */
  protected beginBody(): boolean {
    return false;
  }

  /** Handles a piece of such a body. */
  protected bodyPart(): void {
    // Only who begins such bodies gets pieces.
  }

  /** Whether the client may name a producer. If not yet, `retry` is set. */
  protected allowsProducer(): boolean {
    return true;
  }

  /** An error is told to the client. */
  protected countError(_error: ProtocolError): void {
    // Nobody has to count.
  }

  // NsqLinkOwner

  abstract writableAgain(): void;
  abstract ending(): void;
  abstract leave(): void;

  closed(): void {
    this.unstage();
    this.access?.close();
  }

  resume(): void {
    // What was read at once was heard at once: the clock is asked once.
    let isHeard = false;
    while (!this.link.ended) {
      const event = this.retry ?? this.decoder.next();
      this.retry = null;
      switch (event) {
        case CommandEvent.NEED_MORE:
          this.#checkPartialMpub();
          this.link.blockIfUnread();
          return;
        case CommandEvent.MAGIC:
          break;
        case CommandEvent.BAD_MAGIC:
          this.fatal(badProtocol());
          break;
        case CommandEvent.LINE_TOO_LONG:
          this.link.end(true);
          break;
        case CommandEvent.LINE:
          if (!isHeard) this.link.heard();
          isHeard = true;
          this.#command();
          break;
        case CommandEvent.BODY_SIZE:
          this.#bodySize();
          break;
        case CommandEvent.BODY:
          this.#body();
          break;
        case CommandEvent.BODY_PART:
          this.link.heard();
          this.bodyPart();
          break;
      }
      if (this.retry !== null) {
        if (this.access !== null && this.access.pending !== null) {
          this.link.blockUntil(this.access.pending);
        } else this.blockForRetry();
        return;
      }
    }
  }

  /** Ends the session with an error, behind everything that is still to be answered. */
  protected fatal(error: ProtocolError): void {
    this.unstage();
    this.countError(error);
    this.link.because("protocol_error", error.logText);
    this.reply(encodeErrorFrame(error));
    this.link.end(true);
  }

  /** The body that was being received is done with, or never will be. */
  protected unstage(): void {
    if (this.#stagedBytes === 0) return;
    this.giveMemory(this.#stagedBytes);
    this.#stagedBytes = 0;
  }

  /** Has the body of a publish come, unless its line is refused. */
  protected expectPublish(refusal: ProtocolError | undefined): void {
    if (refusal !== undefined) this.fatal(refusal);
    else this.decoder.expectBody();
  }

  /** The same for a batch: it is authorized before its body is read, as in nsqd. */
  protected expectBatch(
    verb: typeof Verb.MPUB | typeof Verb.SMPUB,
    refusal: ProtocolError | undefined,
  ): void {
    if (refusal !== undefined) this.fatal(refusal);
    else if (this.mayPublish(verb, CommandEvent.LINE)) this.decoder.expectBody();
  }

  /** The same for a publish that defers, by so much or not at all. */
  protected expectDeferred(deferMs: number | ProtocolError): void {
    if (typeof deferMs !== "number") return this.fatal(deferMs);
    this.deferMs = deferMs;
    this.decoder.expectBody();
  }

  /** Whether a publish is authorized. If not yet, `event` is handled again once that is known. */
  protected mayPublish(verb: PublishVerb, event: CommandEvent): boolean {
    if (this.access === null) return true;
    const refusal = this.access.checkPublish(verb, this.decoder.line);
    if (refusal === null) return true;
    if (refusal === PENDING) this.retry = event;
    else this.fatal(refusal);
    return false;
  }

  /** Judges the body of a batch; whether all of it is here and good. */
  protected scanBatch(): boolean {
    const { bodyBuffer, bodyStart, bodyEnd } = this.decoder;
    const refusal = this.mpub.check(bodyBuffer, bodyStart, bodyEnd);
    if (refusal !== undefined) {
      this.fatal(refusal);
      return false;
    }
    if (this.mpub.missingBytes === 0) return true;
    this.decoder.extendBody(this.mpub.missingBytes);
    this.mpub.extend();
    this.#stage();
    return false;
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
    const { line } = this.decoder;
    this.verb = line.verb;
    if (this.#needsTls && line.verb !== Verb.IDENTIFY) return this.fatal(tlsRequired(line));
    switch (line.verb) {
      case Verb.PUB:
        return this.expectPublish(checkPub(line));
      case Verb.MPUB:
        return this.expectBatch(Verb.MPUB, checkMpub(line));
      case Verb.DPUB:
        return this.expectDeferred(parseDpub(line, this.#options.deferMsMax));
      case Verb.NOP:
        return;
      case Verb.IDENTIFY:
        if (!this.mayIdentify) return this.fatal(wrongState(Verb.IDENTIFY));
        return this.decoder.expectBody();
      case Verb.AUTH: {
        if (!this.mayIdentify) return this.fatal(wrongState(Verb.AUTH));
        const refusal = checkAuth(line);
        if (refusal !== undefined) return this.fatal(refusal);
        return this.decoder.expectBody();
      }
      case Verb.UNKNOWN:
        return this.fatal(unknownCommand(line));
      default:
        return this.command();
    }
  }

  #bodySize(): void {
    const { bodySize } = this.decoder;
    const { messageBytesMax, bodyBytesMax } = this.#options;
    let refusal: ProtocolError | undefined;
    switch (this.verb) {
      case Verb.PUB:
      case Verb.DPUB:
      case Verb.SPUB:
        refusal = checkMessageSize(this.verb, bodySize, messageBytesMax);
        break;
      case Verb.MPUB:
      case Verb.SMPUB:
        refusal = checkMpubBodySize(bodySize, bodyBytesMax, this.verb);
        break;
      case Verb.IDENTIFY:
      case Verb.AUTH:
        refusal = checkSessionBodySize(this.verb, bodySize, bodyBytesMax);
        break;
    }
    if (refusal !== undefined) return this.fatal(refusal);
    if (isBatch(this.verb)) this.mpub.begin(bodySize, true);
    else if (this.beginBody()) return;
    this.decoder.acceptBody();
    this.#stage();
  }

  /** Takes memory for a body that has to wait for more bytes. */
  #stage(): void {
    this.unstage();
    const { bodySize, remainingBytes } = this.decoder;
    if (bodySize <= remainingBytes) return;
    if (this.takeMemory(bodySize)) this.#stagedBytes = bodySize;
    else this.fatal(throttled(this.verb, "too many bytes are being received"));
  }

  #body(): void {
    if (this.verb === Verb.IDENTIFY) this.#identify();
    else if (this.verb === Verb.AUTH) this.#auth();
    else this.publish();
  }

  #auth(): void {
    if (this.access === null) return this.fatal(authDisabled());
    const { bodyBuffer, bodyStart, bodyEnd } = this.decoder;
    const answer = this.access.authenticate(bodyBuffer, bodyStart, bodyEnd);
    if (answer === PENDING) {
      this.retry = CommandEvent.BODY;
      return;
    }
    if (answer instanceof ProtocolError) return this.fatal(answer);
    this.unstage();
    this.reply(answer);
  }

  #identify(): void {
    const { bodyBuffer, bodyStart, bodyEnd } = this.decoder;
    const request = decodeIdentify(bodyBuffer, bodyStart, bodyEnd);
    this.unstage();
    if (request instanceof ProtocolError) return this.fatal(request);
    const result = negotiateIdentify(request, this.#options.identify);
    if (result instanceof ProtocolError) return this.fatal(result);
    if (result.settings.producer !== null && !this.allowsProducer()) return;
    const upgrades = needsUpgrade(result.settings);
    if (upgrades && this.connection.isUpgraded) {
      return this.fatal(identifyFailed("the connection is upgraded already"));
    }
    if (upgrades && this.decoder.remainingBytes > 0) {
      return this.fatal(identifyFailed("more was sent before the upgrade"));
    }
    this.settings = result.settings;
    const reply = encodeResponseFrame(result.reply);
    if (upgrades) {
      const failure = result.settings.tls ? "tls_failure" : "upgrade_failed";
      return this.link.upgrade(() => this.#upgrade(reply), failure);
    }
    this.#settleLink();
    this.reply(reply);
  }

  async #upgrade(reply: Uint8Array): Promise<void> {
    await upgrade(this.connection, this.settings, this.#options.tls, reply);
    this.#needsTls &&= this.connection.tlsState === null;
    // Heartbeats begin here, not before the last OK.
    this.#settleLink();
  }

  #settleLink(): void {
    const { heartbeatIntervalMs, outputBufferBytes } = this.settings;
    this.link.settle(heartbeatIntervalMs, outputBufferBytes);
  }

  #checkPartialMpub(): void {
    if (!isBatch(this.verb) || this.decoder.position !== "in_body") return;
    const { bodyBuffer, bodyStart, bodyEnd } = this.decoder;
    const refusal = this.mpub.check(bodyBuffer, bodyStart, bodyEnd);
    if (refusal !== undefined) this.fatal(refusal);
  }
}

function isBatch(verb: Verb): boolean {
  return verb === Verb.MPUB || verb === Verb.SMPUB;
}
