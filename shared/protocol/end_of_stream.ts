/**
 * What a V2 server answers when the peer has closed in the middle of a command that has a body. A
 * client that only half-closed can still read it. Between commands, inside a line and inside the
 * magic there is no answer.
 */
import type { StreamPosition } from "./command_decoder.ts";
import { ProtocolError } from "./error_code.ts";
import type { MpubScanner } from "./mpub.ts";
import { Verb, verbName } from "./verb.ts";

/**
 * The refusal for the command `verb` at `position`; `undefined` when none is due. `mpub` has checked
 * the part of an MPUB body that is here.
 */
export function endOfStreamError(
  verb: Verb,
  position: StreamPosition,
  mpub: MpubScanner,
): ProtocolError | undefined {
  if (position !== "in_body_size" && position !== "in_body") return undefined;
  const missing = position === "in_body_size" ? "body size" : "body";
  switch (verb) {
    case Verb.IDENTIFY:
    case Verb.AUTH:
      return new ProtocolError("E_BAD_BODY", `${verbName(verb)} failed to read ${missing}`);
    case Verb.PUB:
    case Verb.DPUB:
    case Verb.SPUB:
      return new ProtocolError(
        "E_BAD_MESSAGE",
        `${verbName(verb)} failed to read message ${missing}`,
      );
    case Verb.MPUB:
    case Verb.SMPUB:
      if (position === "in_body") return mpub.endOfStream();
      return new ProtocolError("E_BAD_BODY", `${verbName(verb)} failed to read body size`);
    default:
      return undefined;
  }
}
