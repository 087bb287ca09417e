/**
 * Commands of a producer: PUB, DPUB, MPUB, and ours: SPUB, SMPUB. Encoders are the client's side; the checks work on the
 * server's line view and make nothing unless they refuse. The topic is always parameter 0.
 *
 *     pub  = "PUB" SP topic LF int32-size body
 *     dpub = "DPUB" SP topic SP defer-ms LF int32-size body
 *     mpub = "MPUB" SP topic LF int32-size mpub-body           ; see mpub.ts
 *     spub  = "SPUB" SP topic SP sequence [ SP defer-ms ] LF int32-size body
 *     smpub = "SMPUB" SP topic SP sequence LF int32-size mpub-body
 *     sequence = 1*DIGIT                                       ; at most 2^53 - 2
 *
 * Each is answered with OK. SPUB and SMPUB are commands only after an IDENTIFY that has named a
 * producer, and unknown before. A sequence is of one SPUB, or of one SMPUB with all its messages; what is
 * sent once more with the sequence that it had is answered as it was, and stored once.
 *
 * The documented order of checks:
 * - PUB, DPUB, SPUB: line, body size, body, authorization, publish.
 * - MPUB, SMPUB: line, authorization, body size, body, publish. Errors about what is in the body name
 *   MPUB for both.
 */
import {
  concatBytes,
  copyBytes,
  parseDecimal,
  sizedBytes,
  utf8Bytes,
  writeInt32,
} from "./bytes.ts";
import type { CommandLine } from "./command_line.ts";
import { decimalText, wholeNumber } from "./consume_commands.ts";
import { type ErrorCode, ProtocolError } from "./error_code.ts";
import { encodeMpubBody } from "./mpub.ts";
import { goQuoteBytes, isValidName, isValidNameBytes } from "./names.ts";
import { PRODUCER_SEQUENCE_MAX } from "./producer_id.ts";
import { type PublishVerb, type SequencedVerb, Verb, verbName } from "./verb.ts";

/** A PUB command; throws `TypeError` for a topic that is not valid. */
export function encodePub(topic: string, body: Uint8Array): Uint8Array {
  checkTopic("PUB", topic);
  return concatBytes(utf8Bytes(`PUB ${topic}\n`), sizedBytes(body));
}

/** A DPUB command. */
export function encodeDpub(topic: string, deferMs: number, body: Uint8Array): Uint8Array {
  checkTopic("DPUB", topic);
  const defer = wholeNumber("DPUB", deferMs);
  return concatBytes(utf8Bytes(`DPUB ${topic} ${defer}\n`), sizedBytes(body));
}

/** An MPUB command. */
export function encodeMpub(topic: string, bodies: readonly Uint8Array[]): Uint8Array {
  checkTopic("MPUB", topic);
  return concatBytes(utf8Bytes(`MPUB ${topic}\n`), sizedBytes(encodeMpubBody(bodies)));
}

/** An SPUB command. */
export function encodeSpub(
  topic: string,
  sequence: number,
  body: Uint8Array,
  deferMs = 0,
): Uint8Array {
  checkTopic("SPUB", topic);
  const defer = deferMs === 0 ? "" : ` ${wholeNumber("SPUB", deferMs)}`;
  const line = `SPUB ${topic} ${sequenceText("SPUB", sequence)}${defer}\n`;
  return concatBytes(utf8Bytes(line), sizedBytes(body));
}

/** An SMPUB command. */
export function encodeSmpub(
  topic: string,
  sequence: number,
  bodies: readonly Uint8Array[],
): Uint8Array {
  checkTopic("SMPUB", topic);
  const line = `SMPUB ${topic} ${sequenceText("SMPUB", sequence)}\n`;
  return concatBytes(utf8Bytes(line), sizedBytes(encodeMpubBody(bodies)));
}

/** What of a publish stands before its body. */
export interface PublishHead {
  readonly topic: string;
  /** Whether the body is that of an MPUB. */
  readonly isBatch: boolean;
  readonly bodyBytes: number;
  /** For one message; 0 for at once. */
  readonly deferMs: number;
  /** `null` for a server that knows no sequences. */
  readonly sequence: number | null;
}

/** The line and the size of the body of a publish, for a body that is sent behind it as it is. */
export function encodePublishHead(head: PublishHead): Uint8Array {
  const { topic, isBatch, bodyBytes, sequence } = head;
  const deferMs = isBatch ? 0 : wholeNumber("DPUB", head.deferMs);
  const defer = deferMs === 0 ? "" : ` ${deferMs}`;
  const line = sequence === null
    ? `${isBatch ? "MPUB" : deferMs === 0 ? "PUB" : "DPUB"} ${topic}${defer}\n`
    : `${isBatch ? "SMPUB" : "SPUB"} ${topic} ${sequence}${defer}\n`;
  const bytes = new Uint8Array(line.length + 4);
  // Names and numbers are ASCII.
  for (let at = 0; at < line.length; at++) bytes[at] = line.charCodeAt(at);
  writeInt32(bytes, line.length, bodyBytes);
  return bytes;
}

/** The line of a PUB, made once for a topic and given to {@linkcode writePub} for each message. */
export function encodePubLine(topic: string): Uint8Array {
  checkTopic("PUB", topic);
  return utf8Bytes(`PUB ${topic}\n`);
}

/** Writes a PUB into a buffer with room; returns the bytes written. */
export function writePub(
  buffer: Uint8Array,
  offset: number,
  pubLine: Uint8Array,
  body: Uint8Array,
): number {
  copyBytes(buffer, offset, pubLine, 0, pubLine.length);
  writeInt32(buffer, offset + pubLine.length, body.length);
  copyBytes(buffer, offset + pubLine.length + 4, body, 0, body.length);
  return pubLine.length + 4 + body.length;
}

/** Judges a PUB line. */
export function checkPub(line: CommandLine): ProtocolError | undefined {
  if (line.paramCount < 1) return tooFewParameters("PUB");
  return isTopicValid(line) ? undefined : badTopic("PUB", line);
}

/** Judges an MPUB line. Its text for a bad topic repeats the code, as nsqd's does. */
export function checkMpub(line: CommandLine): ProtocolError | undefined {
  if (line.paramCount < 1) return tooFewParameters("MPUB");
  return isTopicValid(line) ? undefined : badTopic("E_BAD_TOPIC MPUB", line);
}

/** The deferral of a DPUB line in milliseconds. Out of range is refused, not clamped. */
export function parseDpub(line: CommandLine, deferMsMax: number): number | ProtocolError {
  if (line.paramCount < 2) return tooFewParameters("DPUB");
  if (!isTopicValid(line)) return badTopic("DPUB", line);
  return parseDefer("DPUB", line, 1, deferMsMax);
}

function parseDefer(
  verb: string,
  line: CommandLine,
  index: number,
  deferMsMax: number,
): number | ProtocolError {
  const deferMs = parseDecimal(line.buffer, line.paramStart(index), line.paramEnd(index));
  if (deferMs < 0) {
    const text = line.paramText(index);
    return new ProtocolError("E_INVALID", `${verb} could not parse timeout ${text}`);
  }
  if (deferMs > deferMsMax) {
    const text = decimalText(line, index);
    return new ProtocolError("E_INVALID", `${verb} timeout ${text} out of range 0-${deferMsMax}`);
  }
  return deferMs;
}

/** The sequence of an SPUB or SMPUB line; its topic is valid then. */
export function parseSequence(verb: SequencedVerb, line: CommandLine): number | ProtocolError {
  const name = verbName(verb);
  if (line.paramCount < 2) return tooFewParameters(name);
  if (!isTopicValid(line)) return badTopic(name, line);
  const start = line.paramStart(1);
  const end = line.paramEnd(1);
  const sequence = start === end ? -1 : parseDecimal(line.buffer, start, end);
  if (sequence < 0) {
    return new ProtocolError("E_INVALID", `${name} could not parse sequence ${line.paramText(1)}`);
  }
  if (sequence > PRODUCER_SEQUENCE_MAX) {
    const range = `out of range 0-${PRODUCER_SEQUENCE_MAX}`;
    return new ProtocolError("E_INVALID", `${name} sequence ${decimalText(line, 1)} ${range}`);
  }
  return sequence;
}

/** The deferral of an SPUB line in milliseconds, 0 when it has none; the rest of the line is checked. */
export function parseSpubDefer(line: CommandLine, deferMsMax: number): number | ProtocolError {
  return line.paramCount < 3 ? 0 : parseDefer("SPUB", line, 2, deferMsMax);
}

/** Judges the announced size of the body of a command with one message. */
export function checkMessageSize(
  verb: typeof Verb.PUB | typeof Verb.DPUB | typeof Verb.SPUB,
  bodyBytes: number,
  messageBytesMax: number,
): ProtocolError | undefined {
  if (bodyBytes <= 0) {
    const description = `${verbName(verb)} invalid message body size ${bodyBytes}`;
    return new ProtocolError("E_BAD_MESSAGE", description);
  }
  if (bodyBytes > messageBytesMax) {
    const description = `${verbName(verb)} message too big ${bodyBytes} > ${messageBytesMax}`;
    return new ProtocolError("E_BAD_MESSAGE", description);
  }
  return undefined;
}

/** Judges the announced size of the body of a batch; what is in it is the scanner's to judge. */
export function checkMpubBodySize(
  bodyBytes: number,
  bodyBytesMax: number,
  verb: typeof Verb.MPUB | typeof Verb.SMPUB = Verb.MPUB,
): ProtocolError | undefined {
  const name = verbName(verb);
  if (bodyBytes <= 0) {
    return new ProtocolError("E_BAD_BODY", `${name} invalid body size ${bodyBytes}`);
  }
  if (bodyBytes > bodyBytesMax) {
    return new ProtocolError("E_BAD_BODY", `${name} body too big ${bodyBytes} > ${bodyBytesMax}`);
  }
  return undefined;
}

/** A batch with a sequence that cannot be stored in one piece. */
export function batchNotWhole(bodyBytes: number): ProtocolError {
  return new ProtocolError(
    "E_BAD_BODY",
    `SMPUB body of ${bodyBytes} bytes cannot be stored in one piece`,
  );
}

/** What the sequence stands for is not remembered any more. */
export function sequenceTooOld(verb: PublishVerb, reason: string): ProtocolError {
  return new ProtocolError("E_SEQUENCE_TOO_OLD", `${verbName(verb)} failed ${reason}`);
}

/** What was sent is fine but could not be stored. */
export function publishFailed(verb: PublishVerb, reason: string): ProtocolError {
  return new ProtocolError(publishFailedCode(verb), `${verbName(verb)} failed ${reason}`);
}

function publishFailedCode(verb: PublishVerb): ErrorCode {
  switch (verb) {
    case Verb.PUB:
    case Verb.SPUB:
      return "E_PUB_FAILED";
    case Verb.MPUB:
    case Verb.SMPUB:
      return "E_MPUB_FAILED";
    case Verb.DPUB:
      return "E_DPUB_FAILED";
  }
}

function isTopicValid(line: CommandLine): boolean {
  return isValidNameBytes(line.buffer, line.paramStart(0), line.paramEnd(0));
}

function badTopic(prefix: string, line: CommandLine): ProtocolError {
  const name = goQuoteBytes(line.buffer, line.paramStart(0), line.paramEnd(0));
  return new ProtocolError("E_BAD_TOPIC", `${prefix} topic name ${name} is not valid`);
}

function tooFewParameters(verb: string): ProtocolError {
  return new ProtocolError("E_INVALID", `${verb} insufficient number of parameters`);
}

function checkTopic(command: string, topic: string): void {
  if (isValidName(topic)) return;
  throw new TypeError(`Cannot encode ${command}: topic "${topic}" is not valid`);
}

function sequenceText(command: string, sequence: number): string {
  if (Number.isInteger(sequence) && sequence >= 0 && sequence <= PRODUCER_SEQUENCE_MAX) {
    return String(sequence);
  }
  throw new TypeError(`Cannot encode ${command}: ${sequence} is no sequence`);
}
