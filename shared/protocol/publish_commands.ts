/**
 * Commands of a producer: PUB, DPUB, MPUB. Encoders are the client's side; the checks work on the
 * server's line view and make nothing unless they refuse. The topic is always parameter 0.
 *
 *     pub  = "PUB" SP topic LF int32-size body
 *     dpub = "DPUB" SP topic SP defer-ms LF int32-size body
 *     mpub = "MPUB" SP topic LF int32-size mpub-body           ; see mpub.ts
 *
 * Each is answered with OK. The documented order of checks:
 * - PUB, DPUB: line, body size, body, authorization, publish.
 * - MPUB: line, authorization, body size, body, publish.
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
import { type PublishVerb, Verb, verbName } from "./verb.ts";

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
  const deferMs = parseDecimal(line.buffer, line.paramStart(1), line.paramEnd(1));
  if (deferMs < 0) {
    return new ProtocolError("E_INVALID", `DPUB could not parse timeout ${line.paramText(1)}`);
  }
  if (deferMs > deferMsMax) {
    const text = decimalText(line, 1);
    return new ProtocolError("E_INVALID", `DPUB timeout ${text} out of range 0-${deferMsMax}`);
  }
  return deferMs;
}

/** Judges the announced size of the body of PUB or DPUB. */
export function checkMessageSize(
  verb: typeof Verb.PUB | typeof Verb.DPUB,
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

/** Judges the announced size of the body of MPUB; what is in it is the scanner's to judge. */
export function checkMpubBodySize(
  bodyBytes: number,
  bodyBytesMax: number,
): ProtocolError | undefined {
  if (bodyBytes <= 0) {
    return new ProtocolError("E_BAD_BODY", `MPUB invalid body size ${bodyBytes}`);
  }
  if (bodyBytes > bodyBytesMax) {
    return new ProtocolError("E_BAD_BODY", `MPUB body too big ${bodyBytes} > ${bodyBytesMax}`);
  }
  return undefined;
}

/** What was sent is fine but could not be stored. */
export function publishFailed(verb: PublishVerb, reason: string): ProtocolError {
  return new ProtocolError(publishFailedCode(verb), `${verbName(verb)} failed ${reason}`);
}

function publishFailedCode(verb: PublishVerb): ErrorCode {
  switch (verb) {
    case Verb.PUB:
      return "E_PUB_FAILED";
    case Verb.MPUB:
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
