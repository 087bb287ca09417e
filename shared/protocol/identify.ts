/**
 * IDENTIFY: from the JSON body a client sends to the settings of its connection and the reply.
 *
 * Decoding checks types, negotiating checks values; both answer with the documented texts, in the
 * documented order. Every IDENTIFY stands alone: a setting that is 0 or absent gets the server's
 * default, whatever an earlier one asked for. Without feature negotiation the reply is `OK`, the
 * plain settings still count, and nothing is upgraded. Texts a client describes itself with are cut
 * to 1024 characters, since the connection keeps them.
 *
 * Ours is `sluice_producer`, the id of a producer as 32 hex digits: with feature negotiation, and where it
 * is offered, the connection may number its publishes (SPUB, SMPUB). The reply has the key, behind all
 * others and with the id, only then.
 *
 * And `sluice_outcomes`, for clients that publish through something that sends on what it takes: where
 * it is asked for and offered, which the reply says in the same way, each publish that was taken is
 * answered, also those behind an error, and `E_CLOSING` is the last word: what it has no answer before was
 * not taken.
 */
import { invariant } from "../runtime/invariant.ts";
import { ProtocolError } from "./error_code.ts";
import { OK_TEXT } from "./frame.ts";
import { parseJsonFields } from "./json_fields.ts";
import { parseProducerId, producerIdText } from "./producer_id.ts";
import {
  HEARTBEAT_INTERVAL_MS_MIN,
  MESSAGE_TIMEOUT_MS_MIN,
  OUTPUT_BUFFER_BYTES_MIN,
  SAMPLE_RATE_MAX,
} from "./limits.ts";

/** How much of a text about the client is kept. */
export const CLIENT_TEXT_CHARACTERS_MAX = 1024;
const DEFLATE_LEVEL_DEFAULT = 6;
const INT32_MIN = -(2 ** 31);
const INT32_MAX = 2 ** 31 - 1;

/** The body of IDENTIFY with defaults filled in. Numbers are as the client sent them. */
export interface IdentifyRequest {
  readonly clientId: string;
  readonly hostname: string;
  readonly userAgent: string;
  readonly featureNegotiation: boolean;
  readonly heartbeatIntervalMs: number;
  readonly outputBufferTimeoutMs: number;
  readonly outputBufferBytes: number;
  readonly sampleRate: number;
  readonly messageTimeoutMs: number;
  readonly tls: boolean;
  readonly snappy: boolean;
  readonly deflate: boolean;
  readonly deflateLevel: number;
  readonly topologyRegion: string;
  readonly topologyZone: string;
  /** Empty when the client names none. */
  readonly producer: string;
  /** Whether the client asks for the outcome of each publish. */
  readonly outcomes: boolean;
}

/** What the server offers and where its limits are. */
export interface IdentifyOptions {
  readonly version: string;
  readonly rdyCountMax: number;
  readonly heartbeatIntervalMsDefault: number;
  readonly heartbeatIntervalMsMax: number;
  readonly outputBufferTimeoutMsDefault: number;
  readonly outputBufferTimeoutMsMin: number;
  readonly outputBufferTimeoutMsMax: number;
  readonly outputBufferBytesDefault: number;
  readonly outputBufferBytesMax: number;
  readonly messageTimeoutMsDefault: number;
  readonly messageTimeoutMsMax: number;
  readonly deflateLevelMax: number;
  readonly tls: boolean;
  readonly snappy: boolean;
  readonly deflate: boolean;
  readonly authRequired: boolean;
  readonly topologyRegion: string;
  readonly topologyZone: string;
  /** Whether a client may name a producer. */
  readonly producers: boolean;
  /** Whether each publish that was taken is answered, also behind an error; not when absent. */
  readonly outcomes?: boolean;
}

/** nsqd's defaults, for all but the version. */
export const IDENTIFY_OPTIONS_DEFAULT: Omit<IdentifyOptions, "version"> = {
  rdyCountMax: 2500,
  heartbeatIntervalMsDefault: 30_000,
  heartbeatIntervalMsMax: 60_000,
  outputBufferTimeoutMsDefault: 250,
  outputBufferTimeoutMsMin: 25,
  outputBufferTimeoutMsMax: 30_000,
  outputBufferBytesDefault: 16 * 1024,
  outputBufferBytesMax: 64 * 1024,
  messageTimeoutMsDefault: 60_000,
  messageTimeoutMsMax: 900_000,
  deflateLevelMax: 6,
  tls: false,
  snappy: true,
  deflate: true,
  authRequired: false,
  topologyRegion: "",
  topologyZone: "",
  producers: false,
};

/** What holds for the connection from here on. The names and topology are the client's. */
export interface ConnectionSettings {
  readonly clientId: string;
  readonly hostname: string;
  readonly userAgent: string;
  readonly featureNegotiation: boolean;
  /** 0: no heartbeats and no deadlines. */
  readonly heartbeatIntervalMs: number;
  /** 1: no buffer. */
  readonly outputBufferBytes: number;
  /** 0: no timer. */
  readonly outputBufferTimeoutMs: number;
  /** 0: every message is delivered. */
  readonly sampleRate: number;
  readonly messageTimeoutMs: number;
  /** Upgrades that start after the reply, in this order; at most one of the last two. */
  readonly tls: boolean;
  readonly snappy: boolean;
  readonly deflate: boolean;
  readonly deflateLevel: number;
  readonly topologyRegion: string;
  readonly topologyZone: string;
  /** Whose publishes may have a sequence; null when there is none. */
  readonly producer: Uint8Array | null;
  /** Whether the client counts on an outcome of each publish. */
  readonly outcomes: boolean;
}

/** The outcome of an IDENTIFY that was accepted. */
export interface IdentifyResult {
  readonly settings: ConnectionSettings;
  /** The data of the response frame. */
  readonly reply: string;
}

/** Decodes the body in `buffer[start, end)`. */
export function decodeIdentify(
  buffer: Uint8Array,
  start = 0,
  end = buffer.length,
): IdentifyRequest | ProtocolError {
  const fields = parseJsonFields(buffer, start, end);
  if (fields === undefined) return badJson();
  const request: IdentifyRequest = {
    clientId: cut(fields.string("client_id")),
    hostname: cut(fields.string("hostname")),
    userAgent: cut(fields.string("user_agent")),
    featureNegotiation: fields.boolean("feature_negotiation"),
    heartbeatIntervalMs: fields.integer("heartbeat_interval"),
    outputBufferTimeoutMs: fields.integer("output_buffer_timeout"),
    outputBufferBytes: fields.integer("output_buffer_size"),
    sampleRate: fields.integer("sample_rate", INT32_MIN, INT32_MAX),
    messageTimeoutMs: fields.integer("msg_timeout"),
    tls: fields.boolean("tls_v1"),
    snappy: fields.boolean("snappy"),
    deflate: fields.boolean("deflate"),
    deflateLevel: fields.integer("deflate_level"),
    topologyRegion: cut(fields.string("topology_region")),
    topologyZone: cut(fields.string("topology_zone")),
    producer: cut(fields.string("sluice_producer")),
    outcomes: fields.boolean("sluice_outcomes"),
  };
  return fields.failed ? badJson() : request;
}

/** Settles what was asked for against what is offered. */
export function negotiateIdentify(
  request: IdentifyRequest,
  options: IdentifyOptions,
): IdentifyResult | ProtocolError {
  const refusal = checkRequest(request, options);
  if (refusal !== undefined) return refusal;

  const negotiated = request.featureNegotiation;
  const tls = negotiated && options.tls && request.tls;
  const snappy = negotiated && options.snappy && request.snappy;
  const deflate = negotiated && options.deflate && request.deflate;
  if (snappy && deflate) {
    const description = "cannot enable both deflate and snappy compression";
    return new ProtocolError("E_IDENTIFY_FAILED", description);
  }
  const producer = negotiated && options.producers ? parseProducerId(request.producer) : null;
  const unbuffered = request.outputBufferBytes === -1;
  const settings: ConnectionSettings = {
    clientId: request.clientId,
    hostname: request.hostname,
    userAgent: request.userAgent,
    featureNegotiation: negotiated,
    heartbeatIntervalMs: settle(request.heartbeatIntervalMs, options.heartbeatIntervalMsDefault, 0),
    outputBufferBytes: settle(request.outputBufferBytes, options.outputBufferBytesDefault, 1),
    outputBufferTimeoutMs: unbuffered
      ? 0
      : settle(request.outputBufferTimeoutMs, options.outputBufferTimeoutMsDefault, 0),
    sampleRate: request.sampleRate,
    messageTimeoutMs: request.messageTimeoutMs || options.messageTimeoutMsDefault,
    tls,
    snappy,
    deflate,
    deflateLevel: settleDeflateLevel(deflate ? request.deflateLevel : 0, options.deflateLevelMax),
    topologyRegion: request.topologyRegion,
    topologyZone: request.topologyZone,
    producer,
    outcomes: negotiated && options.outcomes === true && request.outcomes,
  };
  return { settings, reply: negotiated ? replyJson(settings, options) : OK_TEXT };
}

/** Checks each value alone; 0 asks for the default, -1 for none where that is a choice. */
function checkRequest(
  request: IdentifyRequest,
  options: IdentifyOptions,
): ProtocolError | undefined {
  const { heartbeatIntervalMs, outputBufferTimeoutMs, outputBufferBytes } = request;
  const { sampleRate, messageTimeoutMs } = request;
  if (
    heartbeatIntervalMs !== -1 && heartbeatIntervalMs !== 0 &&
    isOutside(heartbeatIntervalMs, HEARTBEAT_INTERVAL_MS_MIN, options.heartbeatIntervalMsMax)
  ) return invalidSetting("heartbeat interval", heartbeatIntervalMs);
  const { outputBufferTimeoutMsMin, outputBufferTimeoutMsMax } = options;
  if (
    outputBufferTimeoutMs !== -1 && outputBufferTimeoutMs !== 0 &&
    isOutside(outputBufferTimeoutMs, outputBufferTimeoutMsMin, outputBufferTimeoutMsMax)
  ) return invalidSetting("output buffer timeout", outputBufferTimeoutMs);
  if (
    outputBufferBytes !== -1 && outputBufferBytes !== 0 &&
    isOutside(outputBufferBytes, OUTPUT_BUFFER_BYTES_MIN, options.outputBufferBytesMax)
  ) return invalidSetting("output buffer size", outputBufferBytes);
  if (isOutside(sampleRate, 0, SAMPLE_RATE_MAX)) return invalidSetting("sample rate", sampleRate);
  if (
    messageTimeoutMs !== 0 &&
    isOutside(messageTimeoutMs, MESSAGE_TIMEOUT_MS_MIN, options.messageTimeoutMsMax)
  ) return invalidSetting("msg timeout", messageTimeoutMs);
  const { producer } = request;
  if (options.producers && producer !== "" && parseProducerId(producer) === null) {
    return invalidSetting("sluice_producer", producer);
  }
  return undefined;
}

function isOutside(value: number, min: number, max: number): boolean {
  return value < min || value > max;
}

/** The value for a setting where 0 asks for the default and -1 switches it off. */
function settle(asked: number, byDefault: number, off: number): number {
  if (asked === 0) return byDefault;
  return asked === -1 ? off : asked;
}

function settleDeflateLevel(asked: number, max: number): number {
  return Math.min(asked > 0 ? asked : DEFLATE_LEVEL_DEFAULT, max);
}

/** The order of the keys is part of the contract; new ones go to the end. */
function replyJson(settings: ConnectionSettings, options: IdentifyOptions): string {
  return JSON.stringify({
    max_rdy_count: options.rdyCountMax,
    version: options.version,
    max_msg_timeout: options.messageTimeoutMsMax,
    msg_timeout: settings.messageTimeoutMs,
    tls_v1: settings.tls,
    deflate: settings.deflate,
    deflate_level: settings.deflateLevel,
    max_deflate_level: options.deflateLevelMax,
    snappy: settings.snappy,
    sample_rate: settings.sampleRate,
    auth_required: options.authRequired,
    output_buffer_size: settings.outputBufferBytes,
    output_buffer_timeout: settings.outputBufferTimeoutMs,
    topology_region: options.topologyRegion,
    topology_zone: options.topologyZone,
    ...(settings.producer === null ? {} : { sluice_producer: producerIdText(settings.producer) }),
    ...(settings.outcomes ? { sluice_outcomes: true } : {}),
  });
}

function badJson(): ProtocolError {
  return new ProtocolError("E_BAD_BODY", "IDENTIFY failed to decode JSON body");
}

function invalidSetting(name: string, value: number | string): ProtocolError {
  return new ProtocolError("E_BAD_BODY", `IDENTIFY ${name} (${value}) is invalid`);
}

function cut(text: string): string {
  if (text.length <= CLIENT_TEXT_CHARACTERS_MAX) return text;
  // A slice may keep the whole text alive; an array of its characters does not.
  return Array.from(text.slice(0, CLIENT_TEXT_CHARACTERS_MAX)).join("");
}

/** What holds on a connection before IDENTIFY; the client goes by its host, without the port. */
export function settingsBeforeIdentify(
  options: IdentifyOptions,
  remoteAddress: string,
): ConnectionSettings {
  const host = remoteAddress.slice(0, remoteAddress.lastIndexOf(":"));
  const body = new TextEncoder().encode(JSON.stringify({ client_id: host, hostname: host }));
  const request = decodeIdentify(body);
  invariant(!(request instanceof ProtocolError), "the default IDENTIFY is valid");
  const result = negotiateIdentify(request, options);
  invariant(!(result instanceof ProtocolError), "the default settings are valid");
  return result.settings;
}
