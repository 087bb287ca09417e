/**
 * Commands about the connection itself: IDENTIFY, AUTH, CLS, NOP; and the refusals that fit any
 * command. Encoders are the client's side, the rest is the server's. State belongs to the session:
 * it decides, the texts are made here.
 *
 *     identify = "IDENTIFY" LF int32-size JSON-object
 *     auth     = "AUTH" LF int32-size secret          ; no parameter at all
 *     cls      = "CLS" LF                             ; answered with CLOSE_WAIT
 *     nop      = "NOP" LF                             ; not answered
 */
import { concatBytes, sizedBytes, utf8Bytes } from "./bytes.ts";
import type { CommandLine } from "./command_line.ts";
import { ProtocolError } from "./error_code.ts";
import { goQuote } from "./names.ts";
import { type PublishVerb, type Verb, verbName } from "./verb.ts";

/** What a client sends first. */
export const MAGIC_V2: Uint8Array = utf8Bytes("  V2");
export const CLS_COMMAND: Uint8Array = utf8Bytes("CLS\n");
export const NOP_COMMAND: Uint8Array = utf8Bytes("NOP\n");

/** `fields` as JSON, for example `{ client_id: "a", feature_negotiation: true }`. */
export function encodeIdentify(fields: Readonly<Record<string, unknown>>): Uint8Array {
  return concatBytes(utf8Bytes("IDENTIFY\n"), sizedBytes(utf8Bytes(JSON.stringify(fields))));
}

/** An AUTH command. */
export function encodeAuth(secret: Uint8Array): Uint8Array {
  return concatBytes(utf8Bytes("AUTH\n"), sizedBytes(secret));
}

/** The refusal of a wrong magic. It has no description. */
export function badProtocol(): ProtocolError {
  return new ProtocolError("E_BAD_PROTOCOL");
}

/** The refusal of a verb that does not exist; a blank line has the empty verb. */
export function unknownCommand(line: CommandLine): ProtocolError {
  return new ProtocolError("E_INVALID", `invalid command ${line.verbText()}`);
}

/** The refusal of a command that the connection's state does not allow. */
export function wrongState(verb: Verb): ProtocolError {
  return new ProtocolError("E_INVALID", `cannot ${verbName(verb)} in current state`);
}

/** The refusal of anything but IDENTIFY, unknown verbs included, while TLS is required and missing. */
export function tlsRequired(line: CommandLine): ProtocolError {
  const description = `cannot ${line.verbText()} in current state (TLS required)`;
  return new ProtocolError("E_INVALID", description);
}

/** A limit of the server is reached. */
export function throttled(verb: Verb, reason: string): ProtocolError {
  return new ProtocolError("E_THROTTLED", `${verbName(verb)} ${reason}`);
}

/** Judges the announced size of the body of IDENTIFY or AUTH. */
export function checkSessionBodySize(
  verb: typeof Verb.IDENTIFY | typeof Verb.AUTH,
  bodyBytes: number,
  bodyBytesMax: number,
): ProtocolError | undefined {
  if (bodyBytes > bodyBytesMax) {
    const description = `${verbName(verb)} body too big ${bodyBytes} > ${bodyBytesMax}`;
    return new ProtocolError("E_BAD_BODY", description);
  }
  if (bodyBytes <= 0) {
    return new ProtocolError("E_BAD_BODY", `${verbName(verb)} invalid body size ${bodyBytes}`);
  }
  return undefined;
}

/** The upgrade after IDENTIFY (TLS, Snappy, deflate) failed. */
export function identifyFailed(reason: string): ProtocolError {
  return new ProtocolError("E_IDENTIFY_FAILED", `IDENTIFY failed ${reason}`);
}

/** Judges an AUTH line; the session has checked its state. */
export function checkAuth(line: CommandLine): ProtocolError | undefined {
  if (line.paramCount === 0) return undefined;
  return new ProtocolError("E_INVALID", "AUTH invalid number of parameters");
}

/** A second AUTH. */
export function authAlreadySet(): ProtocolError {
  return new ProtocolError("E_INVALID", "AUTH already set");
}

/** AUTH to a server that has no authorization. */
export function authDisabled(): ProtocolError {
  return new ProtocolError("E_AUTH_DISABLED", "AUTH disabled");
}

/** The authorization server could not be asked, at AUTH or when asked again later. */
export function authFailed(): ProtocolError {
  return new ProtocolError("E_AUTH_FAILED", "AUTH failed");
}

/** AUTH with a secret that allows nothing. */
export function noAuthorizations(): ProtocolError {
  return new ProtocolError("E_UNAUTHORIZED", "AUTH no authorizations found");
}

/** AUTH succeeded but its reply could not be made. */
export function authReplyFailed(reason: string): ProtocolError {
  return new ProtocolError("E_AUTH_ERROR", `AUTH error ${reason}`);
}

/** A command that needs AUTH first. */
export function authRequired(verb: PublishVerb | typeof Verb.SUB): ProtocolError {
  return new ProtocolError("E_AUTH_FIRST", `AUTH required before ${verbName(verb)}`);
}

/** `channel` is empty for the verbs that publish. */
export function unauthorized(
  verb: PublishVerb | typeof Verb.SUB,
  topic: string,
  channel: string,
): ProtocolError {
  const where = `${goQuote(topic)} ${goQuote(channel)}`;
  return new ProtocolError("E_UNAUTHORIZED", `AUTH failed for ${verbName(verb)} on ${where}`);
}

/** The reply to an AUTH that was accepted; `permissionCount` counts authorization entries. */
export function authReply(identity: string, identityUrl: string, permissionCount: number): string {
  return JSON.stringify({
    identity,
    identity_url: identityUrl,
    permission_count: permissionCount,
  });
}
