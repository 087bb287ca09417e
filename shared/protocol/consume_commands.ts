/**
 * Commands of a consumer: SUB, RDY, FIN, REQ, TOUCH. Encoders are the client's side; the checks work
 * on the server's line view and make nothing unless they refuse. Each check starts where the
 * session's own check of the state ends, and goes on in the documented order.
 *
 *     sub   = "SUB" SP topic SP channel LF      ; answered with OK
 *     rdy   = "RDY" [ SP count ] LF             ; missing = 1, empty = 0
 *     fin   = "FIN" SP id LF
 *     req   = "REQ" SP id SP timeout-ms LF
 *     touch = "TOUCH" SP id LF
 *     id    = 16OCTET                           ; as in the message frame; neither SP nor LF
 *
 * RDY, FIN, REQ and TOUCH are not answered unless they fail.
 */
import { invariant } from "../runtime/invariant.ts";
import { concatBytes, copyBytes, parseDecimal, utf8Bytes } from "./bytes.ts";
import type { CommandLine } from "./command_line.ts";
import { type ErrorCode, ProtocolError } from "./error_code.ts";
import { MESSAGE_ID_BYTES } from "./message_id.ts";
import { goQuoteBytes, isValidName, isValidNameBytes } from "./names.ts";
import { type MessageVerb, Verb, verbName } from "./verb.ts";

/** A SUB command; throws `TypeError` for a name that is not valid. */
export function encodeSub(topic: string, channel: string): Uint8Array {
  if (!isValidName(topic)) throw new TypeError(`Cannot encode SUB: topic "${topic}" is not valid`);
  if (!isValidName(channel)) {
    throw new TypeError(`Cannot encode SUB: channel "${channel}" is not valid`);
  }
  return utf8Bytes(`SUB ${topic} ${channel}\n`);
}

/** An RDY command. */
export function encodeRdy(count: number): Uint8Array {
  return utf8Bytes(`RDY ${wholeNumber("RDY", count)}\n`);
}

/** A FIN command for the 16 bytes of an id. */
export function encodeFin(id: Uint8Array): Uint8Array {
  const command = new Uint8Array(FIN_BYTES);
  writeFin(command, 0, id);
  return command;
}

/** A REQ command. */
export function encodeReq(id: Uint8Array, timeoutMs: number): Uint8Array {
  invariant(id.length === MESSAGE_ID_BYTES, "an id has 16 bytes");
  const timeout = wholeNumber("REQ", timeoutMs);
  return concatBytes(utf8Bytes("REQ "), id, utf8Bytes(` ${timeout}\n`));
}

/** A TOUCH command. */
export function encodeTouch(id: Uint8Array): Uint8Array {
  invariant(id.length === MESSAGE_ID_BYTES, "an id has 16 bytes");
  return concatBytes(utf8Bytes("TOUCH "), id, utf8Bytes("\n"));
}

const FIN_PREFIX: Uint8Array = utf8Bytes("FIN ");
/** A whole FIN command. */
export const FIN_BYTES: number = FIN_PREFIX.length + MESSAGE_ID_BYTES + 1;

/** Writes a FIN for the id at `id[idStart]` into a buffer with room; returns the bytes written. */
export function writeFin(
  buffer: Uint8Array,
  offset: number,
  id: Uint8Array,
  idStart = 0,
): number {
  copyBytes(buffer, offset, FIN_PREFIX, 0, FIN_PREFIX.length);
  copyBytes(buffer, offset + FIN_PREFIX.length, id, idStart, idStart + MESSAGE_ID_BYTES);
  buffer[offset + FIN_BYTES - 1] = 0x0a;
  return FIN_BYTES;
}

/** SUB by a connection that has switched heartbeats off. Comes after the state, before the names. */
export function heartbeatsDisabled(): ProtocolError {
  return new ProtocolError("E_INVALID", "cannot SUB with heartbeats disabled");
}

/** Judges a SUB line. Topic and channel are its parameters 0 and 1. */
export function checkSub(line: CommandLine): ProtocolError | undefined {
  if (line.paramCount < 2) {
    return new ProtocolError("E_INVALID", "SUB insufficient number of parameters");
  }
  if (!isValidNameBytes(line.buffer, line.paramStart(0), line.paramEnd(0))) {
    const name = goQuoteBytes(line.buffer, line.paramStart(0), line.paramEnd(0));
    return new ProtocolError("E_BAD_TOPIC", `SUB topic name ${name} is not valid`);
  }
  if (!isValidNameBytes(line.buffer, line.paramStart(1), line.paramEnd(1))) {
    const name = goQuoteBytes(line.buffer, line.paramStart(1), line.paramEnd(1));
    return new ProtocolError("E_BAD_CHANNEL", `SUB channel name ${name} is not valid`);
  }
  return undefined;
}

/** Known reasons: `exiting`, and {@linkcode consumersExceedLimit}. */
export function subFailed(reason: string): ProtocolError {
  return new ProtocolError("E_SUB_FAILED", `SUB failed ${reason}`);
}

/** SUB to a channel that has all the consumers it may have. */
export function consumersExceedLimit(topic: string, channel: string, limit: number): ProtocolError {
  return subFailed(`consumers for ${topic}:${channel} exceeds limit of ${limit}`);
}

/** The topic or channel went away while subscribing, twice. */
export function subToDeleted(): ProtocolError {
  return new ProtocolError("E_SUB_FAILED", "SUB failed to deleted topic/channel");
}

/** The count of an RDY line. Numbers past any range are refused where nsqd's would wrap around. */
export function parseRdy(line: CommandLine, countMax: number): number | ProtocolError {
  if (line.paramCount === 0) return 1;
  const count = parseDecimal(line.buffer, line.paramStart(0), line.paramEnd(0));
  if (count < 0) {
    return new ProtocolError("E_INVALID", `RDY could not parse count ${line.paramText(0)}`);
  }
  if (count > countMax) {
    const text = decimalText(line, 0);
    return new ProtocolError("E_INVALID", `RDY count ${text} out of range 0-${countMax}`);
  }
  return count;
}

/** Judges a FIN line. The id is its parameter 0. */
export function checkFin(line: CommandLine): ProtocolError | undefined {
  return checkMessageId(Verb.FIN, line, 1);
}

/** Judges a TOUCH line. The id is its parameter 0. */
export function checkTouch(line: CommandLine): ProtocolError | undefined {
  return checkMessageId(Verb.TOUCH, line, 1);
}

/** The timeout of a REQ line, clamped to `timeoutMsMax`. The id is its parameter 0. */
export function parseReq(line: CommandLine, timeoutMsMax: number): number | ProtocolError {
  const refusal = checkMessageId(Verb.REQ, line, 2);
  if (refusal !== undefined) return refusal;
  const timeoutMs = parseDecimal(line.buffer, line.paramStart(1), line.paramEnd(1));
  if (timeoutMs < 0) {
    return new ProtocolError("E_INVALID", `REQ could not parse timeout ${line.paramText(1)}`);
  }
  return timeoutMs < timeoutMsMax ? timeoutMs : timeoutMsMax;
}

/** Why a message could not be finished, requeued or touched. */
export const MessageFailure = {
  NOT_IN_FLIGHT: "ID not in flight",
  NOT_OWNER: "client does not own message",
  /** The channel is closing; for REQ only. */
  EXITING: "exiting",
} as const;
export type MessageFailure = typeof MessageFailure[keyof typeof MessageFailure];

/** The soft error of FIN, REQ or TOUCH for the id in parameter 0. */
export function messageFailed(
  verb: MessageVerb,
  line: CommandLine,
  reason: MessageFailure,
): ProtocolError {
  const description = `${verbName(verb)} ${line.paramText(0)} failed ${reason}`;
  return new ProtocolError(messageFailedCode(verb), description);
}

function messageFailedCode(verb: MessageVerb): ErrorCode {
  switch (verb) {
    case Verb.FIN:
      return "E_FIN_FAILED";
    case Verb.REQ:
      return "E_REQ_FAILED";
    case Verb.TOUCH:
      return "E_TOUCH_FAILED";
  }
}

function checkMessageId(
  verb: MessageVerb,
  line: CommandLine,
  paramsMin: number,
): ProtocolError | undefined {
  if (line.paramCount < paramsMin) {
    return new ProtocolError("E_INVALID", `${verbName(verb)} insufficient number of params`);
  }
  if (line.paramEnd(0) - line.paramStart(0) !== MESSAGE_ID_BYTES) {
    return new ProtocolError("E_INVALID", "invalid message ID");
  }
  return undefined;
}

/** A parameter of digits as a number is written, however long it is. */
export function decimalText(line: CommandLine, index: number): string {
  return line.paramText(index).replace(/^0+(?=\d)/, "");
}

/** `value` in digits, for an encoder; throws when it has none. */
export function wholeNumber(command: string, value: number): string {
  if (Number.isSafeInteger(value) && value >= 0) return value.toString();
  throw new RangeError(`Cannot encode ${command}: ${value} is not a whole number`);
}
