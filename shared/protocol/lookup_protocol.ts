/**
 * The protocol between brokers and discovery, nsqlookupd's V1. A broker connects, says who it is,
 * and registers what it owns; the registrations last as long as the connection.
 *
 *     stream     = SP SP "V1" *command
 *     command    = ping / identify / register / unregister
 *     ping       = "PING" LF
 *     identify   = "IDENTIFY" LF int32-size JSON-object
 *     register   = "REGISTER" SP topic [ SP channel ] LF     ; an empty channel is none
 *     unregister = "UNREGISTER" SP topic [ SP channel ] LF
 *     reply      = int32-size data                           ; no frame type; size = bytes of data
 *
 * White space around a line is dropped. Each command gets one reply, in order. Every error is fatal.
 * The server reads commands with `new CommandDecoder({ protocol: "V1" })`; a line over its cap drops
 * the connection without a reply. Body sizes are bounded, which nsqlookupd does not do; the texts for
 * that are V2's.
 */
import { BlockDecoder } from "./block_decoder.ts";
import { concatBytes, sizedBytes, utf8Bytes, utf8Text } from "./bytes.ts";
import type { StreamPosition } from "./command_decoder.ts";
import type { CommandLine } from "./command_line.ts";
import { ProtocolError } from "./error_code.ts";
import { parseJsonFields } from "./json_fields.ts";
import { isValidName, isValidNameBytes } from "./names.ts";
import { type Verb, verbName } from "./verb.ts";

/** What a broker sends first. */
export const MAGIC_V1: Uint8Array = utf8Bytes("  V1");
export const PING_COMMAND: Uint8Array = utf8Bytes("PING\n");
/** Far above what a broker says of itself. */
export const LOOKUP_BODY_BYTES_MAX = 64 * 1024;

/** Who a broker is. */
export interface LookupPeer {
  readonly broadcastAddress: string;
  readonly hostname: string;
  readonly httpPort: number;
  readonly tcpPort: number;
  readonly version: string;
  readonly topologyZone: string;
  readonly topologyRegion: string;
}

/** What discovery says of itself in reply. */
export type LookupServer = Omit<LookupPeer, "topologyZone" | "topologyRegion">;

// The broker's side ------------------------------------------------------------------------------

/** An IDENTIFY command with the broker's identity. */
export function encodeLookupIdentify(peer: LookupPeer): Uint8Array {
  const json = JSON.stringify({
    ...lookupServerFields(peer),
    topology_zone: peer.topologyZone,
    topology_region: peer.topologyRegion,
  });
  return concatBytes(utf8Bytes("IDENTIFY\n"), sizedBytes(utf8Bytes(json)));
}

/** A REGISTER command; without a channel it registers the topic. */
export function encodeRegister(topic: string, channel = ""): Uint8Array {
  return encodeRegistration("REGISTER", topic, channel);
}

/** An UNREGISTER command. */
export function encodeUnregister(topic: string, channel = ""): Uint8Array {
  return encodeRegistration("UNREGISTER", topic, channel);
}

/** Replies out of a byte stream that is cut anywhere; one over `replyBytesMax` is BAD_SIZE. */
export function createLookupReplyDecoder(replyBytesMax: number): BlockDecoder {
  return new BlockDecoder({ sizeMin: 0, sizeMax: replyBytesMax });
}

/** A reply to IDENTIFY; `undefined` when it is not what discovery would send (an error, say). */
export function decodeLookupReply(
  buffer: Uint8Array,
  start = 0,
  end = buffer.length,
): LookupServer | undefined {
  const fields = parseJsonFields(buffer, start, end);
  if (fields === undefined) return undefined;
  const server: LookupServer = {
    broadcastAddress: fields.string("broadcast_address"),
    hostname: fields.string("hostname"),
    httpPort: fields.integer("http_port"),
    tcpPort: fields.integer("tcp_port"),
    version: fields.string("version"),
  };
  return fields.failed ? undefined : server;
}

// Discovery's side -------------------------------------------------------------------------------

export const LOOKUP_OK_REPLY: Uint8Array = encodeLookupReply("OK");

/** A reply whose data is text. */
export function encodeLookupReply(text: string): Uint8Array {
  return sizedBytes(utf8Bytes(text));
}

/** A reply that is an error; the connection closes after it. */
export function encodeLookupError(error: ProtocolError): Uint8Array {
  return encodeLookupReply(error.text);
}

/** The reply to IDENTIFY. */
export function encodeLookupIdentifyReply(server: LookupServer): Uint8Array {
  return encodeLookupReply(JSON.stringify(lookupServerFields(server)));
}

/** A second IDENTIFY. */
export function identifyAgain(): ProtocolError {
  return new ProtocolError("E_INVALID", "cannot IDENTIFY again");
}

/** REGISTER or UNREGISTER by a broker that has not said who it is. Comes before the line's check. */
export function mustIdentify(): ProtocolError {
  return new ProtocolError("E_INVALID", "client must IDENTIFY");
}

/** Judges the announced size of the body of IDENTIFY. Size 0 is read, and fails as JSON. */
export function checkLookupBodySize(
  bodyBytes: number,
  bodyBytesMax = LOOKUP_BODY_BYTES_MAX,
): ProtocolError | undefined {
  if (bodyBytes > bodyBytesMax) {
    const description = `IDENTIFY body too big ${bodyBytes} > ${bodyBytesMax}`;
    return new ProtocolError("E_BAD_BODY", description);
  }
  if (bodyBytes < 0) {
    return new ProtocolError("E_BAD_BODY", `IDENTIFY invalid body size ${bodyBytes}`);
  }
  return undefined;
}

/** Decodes the body of IDENTIFY in `buffer[start, end)`. */
export function decodeLookupIdentify(
  buffer: Uint8Array,
  start = 0,
  end = buffer.length,
): LookupPeer | ProtocolError {
  const fields = parseJsonFields(buffer, start, end);
  if (fields === undefined) return badJson();
  const peer: LookupPeer = {
    broadcastAddress: fields.string("broadcast_address"),
    hostname: fields.string("hostname"),
    httpPort: fields.integer("http_port"),
    tcpPort: fields.integer("tcp_port"),
    version: fields.string("version"),
    topologyZone: fields.string("topology_zone"),
    topologyRegion: fields.string("topology_region"),
  };
  if (fields.failed) return badJson();
  const { broadcastAddress, httpPort, tcpPort, version } = peer;
  if (broadcastAddress === "" || httpPort === 0 || tcpPort === 0 || version === "") {
    return new ProtocolError("E_BAD_BODY", "IDENTIFY missing fields");
  }
  return peer;
}

/** Judges a REGISTER or UNREGISTER line. Its parameter 0 is the topic; see {@linkcode registrationChannel}. */
export function checkRegistration(
  verb: typeof Verb.REGISTER | typeof Verb.UNREGISTER,
  line: CommandLine,
): ProtocolError | undefined {
  const name = verbName(verb);
  if (line.paramCount < 1) {
    return new ProtocolError("E_INVALID", `${name} insufficient number of params`);
  }
  if (!isValidNameBytes(line.buffer, line.paramStart(0), line.paramEnd(0))) {
    const description = `${name} topic name '${line.paramText(0)}' is not valid`;
    return new ProtocolError("E_BAD_TOPIC", description);
  }
  const channel = registrationChannel(line);
  if (channel !== "" && !isValidName(channel)) {
    const description = `${name} channel name '${channel}' is not valid`;
    return new ProtocolError("E_BAD_CHANNEL", description);
  }
  return undefined;
}

/** The channel of a REGISTER or UNREGISTER line, empty when there is none. */
export function registrationChannel(line: CommandLine): string {
  return line.paramCount < 2 ? "" : line.paramText(1);
}

/** What is answered when the broker has closed in the middle of an IDENTIFY. */
export function lookupEndOfStreamError(position: StreamPosition): ProtocolError | undefined {
  switch (position) {
    case "in_body_size":
      return new ProtocolError("E_BAD_BODY", "IDENTIFY failed to read body size");
    case "in_body":
      return new ProtocolError("E_BAD_BODY", "IDENTIFY failed to read body");
    default:
      return undefined;
  }
}

/** A reply as text. */
export function lookupReplyText(decoder: BlockDecoder): string {
  return utf8Text(decoder.buffer, decoder.start, decoder.end);
}

function encodeRegistration(command: string, topic: string, channel: string): Uint8Array {
  if (!isValidName(topic)) {
    throw new TypeError(`Cannot encode ${command}: topic "${topic}" is not valid`);
  }
  if (channel === "") return utf8Bytes(`${command} ${topic}\n`);
  if (!isValidName(channel)) {
    throw new TypeError(`Cannot encode ${command}: channel "${channel}" is not valid`);
  }
  return utf8Bytes(`${command} ${topic} ${channel}\n`);
}

/** In the order nsqlookupd writes them. */
function lookupServerFields(server: LookupServer): Record<string, string | number> {
  return {
    broadcast_address: server.broadcastAddress,
    hostname: server.hostname,
    http_port: server.httpPort,
    tcp_port: server.tcpPort,
    version: server.version,
  };
}

function badJson(): ProtocolError {
  return new ProtocolError("E_BAD_BODY", "IDENTIFY failed to decode JSON body");
}
