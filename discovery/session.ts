/**
 * One broker's registration connection, NSQ's lookup protocol V1, as a pure machine: bytes and the
 * monotonic time go in, replies come out. However the bytes are cut, the replies are the same.
 *
 * Every error is fatal: its reply is the last one. A line longer than {@linkcode LINE_BYTES_MAX_V1}
 * ends the connection without a reply, an IDENTIFY body larger than
 * {@linkcode IDENTIFY_BODY_BYTES_MAX} with one. What the registry has no room for is refused with
 * `E_INVALID <command> limit reached: at most <n> <things>`.
 *
 *     new -> identified -> closed, and from new to closed
 *
 * PING is answered before IDENTIFY too; only IDENTIFY and PING count as a sign of life of a producer.
 */
import {
  badProtocol,
  checkLookupBodySize,
  checkRegistration,
  CommandDecoder,
  CommandEvent,
  decodeLookupIdentify,
  encodeLookupError,
  encodeLookupIdentifyReply,
  type ErrorCode,
  identifyAgain,
  LOOKUP_OK_REPLY,
  lookupEndOfStreamError,
  type LookupServer,
  mustIdentify,
  ProtocolError,
  registrationChannel,
  unknownCommand,
  Verb,
  verbName,
} from "@sluice/shared/protocol";
import { InvariantError, unreachable } from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import type { LimitReached, Registry, RegistryLimits } from "./registry.ts";

/** A valid line is at most 141 bytes. */
export const LINE_BYTES_MAX_V1 = 1_024;
/** Brokers send some 300 bytes. */
export const IDENTIFY_BODY_BYTES_MAX = 8_192;

const LIMITED_THINGS: Record<keyof RegistryLimits, string> = {
  producersMax: "producers",
  topicsMax: "topics",
  channelsMax: "channels",
  channelsPerTopicMax: "channels per topic",
  registrationsMax: "registrations",
  registrationsPerProducerMax: "registrations per producer",
};

/** What all sessions of a service share. */
export interface SessionContext {
  readonly registry: Registry;
  /** What IDENTIFY is answered with. */
  readonly server: LookupServer;
  readonly counters: SessionCounters;
}

/** What sessions have done, for the metrics. */
export class SessionCounters {
  readonly commands = new Map<string, number>();
  readonly errors = new Map<ErrorCode, number>();

  countCommand(command: string): void {
    this.commands.set(command, (this.commands.get(command) ?? 0) + 1);
  }

  countError(code: ErrorCode): void {
    this.errors.set(code, (this.errors.get(code) ?? 0) + 1);
  }
}

/** What a shell does next: write the replies, in order, and then close if so told. */
export interface SessionOutput {
  readonly replies: readonly Uint8Array[];
  readonly close: boolean;
}

/** One broker's connection: bytes in, replies out. */
export class LookupSession {
  readonly #key: string;
  readonly #remoteAddress: string;
  readonly #context: SessionContext;
  readonly #logger: Logger;
  readonly #decoder = new CommandDecoder({ protocol: "V1", lineBytesMax: LINE_BYTES_MAX_V1 });
  #state: "new" | "identified" | "closed" = "new";

  /** `key` names the connection among all that the registry knows. */
  constructor(key: string, remoteAddress: string, context: SessionContext, logger: Logger) {
    this.#key = key;
    this.#remoteAddress = remoteAddress;
    this.#context = context;
    this.#logger = logger;
  }

  /** Takes the next bytes of the stream; they are borrowed for the call. */
  receive(bytes: Uint8Array, nowMs: number): SessionOutput {
    const replies: Uint8Array[] = [];
    if (this.#state === "closed") return { replies, close: true };
    this.#decoder.feed(bytes);
    while (true) {
      const event = this.#decoder.next();
      if (event === CommandEvent.NEED_MORE) return { replies, close: false };
      if (event === CommandEvent.LINE_TOO_LONG) {
        this.#logger.warn("the broker sent a line that is too long");
        this.close();
        return { replies, close: true };
      }
      const reply = this.#answer(event, nowMs);
      if (reply instanceof ProtocolError) {
        replies.push(this.#refuse(reply));
        return { replies, close: true };
      }
      if (reply !== null) replies.push(reply);
    }
  }

  /** The peer has ended its stream: there may be a last word to it. */
  endOfStream(): SessionOutput {
    const error = this.#state === "closed"
      ? undefined
      : lookupEndOfStreamError(this.#decoder.position);
    const replies = error === undefined ? [] : [this.#refuse(error)];
    this.close();
    return { replies, close: true };
  }

  /** Takes the producer and all it registered out of the registry. Safe to call again. */
  close(): void {
    if (this.#state === "identified") this.#context.registry.removeProducer(this.#key);
    this.#state = "closed";
  }

  /** The reply, an error, or `null` when the event needs none. */
  #answer(event: CommandEvent, nowMs: number): Uint8Array | ProtocolError | null {
    switch (event) {
      case CommandEvent.MAGIC:
        return null;
      case CommandEvent.BAD_MAGIC:
        return badProtocol();
      case CommandEvent.LINE:
        return this.#command(nowMs);
      case CommandEvent.BODY_SIZE: {
        const error = checkLookupBodySize(this.#decoder.bodySize, IDENTIFY_BODY_BYTES_MAX);
        if (error !== undefined) return error;
        this.#decoder.acceptBody();
        return null;
      }
      case CommandEvent.BODY:
        return this.#identify(nowMs);
      case CommandEvent.NEED_MORE:
      case CommandEvent.LINE_TOO_LONG:
      case CommandEvent.BODY_PART:
        throw new InvariantError("an event without an answer was taken care of before");
      default:
        return unreachable(event);
    }
  }

  #command(nowMs: number): Uint8Array | ProtocolError | null {
    const { line } = this.#decoder;
    const { verb } = line;
    this.#context.counters.countCommand(verbName(verb));
    switch (verb) {
      case Verb.PING:
        if (this.#state === "identified") this.#context.registry.touch(this.#key, nowMs);
        return LOOKUP_OK_REPLY;
      case Verb.IDENTIFY:
        if (this.#state === "identified") return identifyAgain();
        this.#decoder.expectBody();
        return null;
      case Verb.REGISTER:
      case Verb.UNREGISTER:
        return this.#registration(verb);
      default:
        return unknownCommand(line);
    }
  }

  #identify(nowMs: number): Uint8Array | ProtocolError {
    const { bodyBuffer, bodyStart, bodyEnd } = this.#decoder;
    const info = decodeLookupIdentify(bodyBuffer, bodyStart, bodyEnd);
    if (info instanceof ProtocolError) return info;
    const { registry, server } = this.#context;
    const producer = { remoteAddress: this.#remoteAddress, info };
    const limited = registry.addProducer(this.#key, producer, nowMs);
    if (limited !== null) return limitError("IDENTIFY", limited);
    this.#state = "identified";
    this.#logger.info("a broker identified itself", {
      broadcast: info.broadcastAddress,
      tcp_port: info.tcpPort,
      http_port: info.httpPort,
      version: info.version,
    });
    return encodeLookupIdentifyReply(server);
  }

  #registration(
    verb: typeof Verb.REGISTER | typeof Verb.UNREGISTER,
  ): Uint8Array | ProtocolError {
    const { line } = this.#decoder;
    if (this.#state !== "identified") return mustIdentify();
    const error = checkRegistration(verb, line);
    if (error !== undefined) return error;
    const topic = line.paramText(0);
    const channel = registrationChannel(line) || null;
    const { registry } = this.#context;
    if (verb === Verb.UNREGISTER) {
      registry.unregister(this.#key, topic, channel);
    } else {
      const limited = registry.register(this.#key, topic, channel);
      if (limited !== null) return limitError("REGISTER", limited);
    }
    this.#logger.debug(verb === Verb.REGISTER ? "registered" : "unregistered", { topic, channel });
    return LOOKUP_OK_REPLY;
  }

  #refuse(error: ProtocolError): Uint8Array {
    this.#context.counters.countError(error.code);
    this.#logger.warn("the broker is refused", { reply: error.text });
    this.close();
    return encodeLookupError(error);
  }
}

function limitError(command: string, { limit, max }: LimitReached): ProtocolError {
  const things = LIMITED_THINGS[limit];
  return new ProtocolError("E_INVALID", `${command} limit reached: at most ${max} ${things}`);
}
