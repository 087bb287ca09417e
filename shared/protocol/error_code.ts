/**
 * Every error a server of the protocol answers with, as one table, and the value that carries one.
 *
 * An error frame's body is `CODE` or `CODE description`. A fatal error is sent and then the server
 * closes; after a soft one the connection goes on. Clients hard-code which codes are soft, so the
 * soft ones can never grow in number: nsqjs closes on any code it does not know.
 */

/** All codes. The last three are ours, the others are nsqd's. */
export type ErrorCode =
  | "E_INVALID"
  | "E_BAD_PROTOCOL"
  | "E_BAD_BODY"
  | "E_BAD_TOPIC"
  | "E_BAD_CHANNEL"
  | "E_BAD_MESSAGE"
  | "E_IDENTIFY_FAILED"
  | "E_SUB_FAILED"
  | "E_PUB_FAILED"
  | "E_MPUB_FAILED"
  | "E_DPUB_FAILED"
  | "E_FIN_FAILED"
  | "E_REQ_FAILED"
  | "E_TOUCH_FAILED"
  | "E_AUTH_DISABLED"
  | "E_AUTH_FAILED"
  | "E_AUTH_FIRST"
  | "E_AUTH_ERROR"
  | "E_UNAUTHORIZED"
  | "E_THROTTLED"
  | "E_AMBIGUOUS"
  | "E_SEQUENCE_TOO_OLD"
  | "E_CLOSING";

/** What the table knows of one code. */
export interface ErrorFacts {
  /** Over TCP the server closes after sending it. */
  readonly fatal: boolean;
  /** The same request may succeed later, unchanged. */
  readonly retryable: boolean;
  /** The status over HTTP; `null` when it only happens over TCP. */
  readonly httpStatus: number | null;
  /** One sentence for the docs. */
  readonly meaning: string;
}

function fatal(httpStatus: number | null, meaning: string): ErrorFacts {
  return { fatal: true, retryable: false, httpStatus, meaning };
}

function fatalForNow(httpStatus: number | null, meaning: string): ErrorFacts {
  return { fatal: true, retryable: true, httpStatus, meaning };
}

function soft(meaning: string): ErrorFacts {
  return { fatal: false, retryable: false, httpStatus: null, meaning };
}

/** The facts of each code. The docs table is generated from this one. */
export const ERROR_CODES: Readonly<Record<ErrorCode, ErrorFacts>> = {
  E_INVALID: fatal(400, "The command is unknown, malformed or not allowed in the current state."),
  E_BAD_PROTOCOL: fatal(null, "The first four bytes are not the magic of the protocol."),
  E_BAD_BODY: fatal(413, "The body of IDENTIFY, AUTH or MPUB is missing, too big or malformed."),
  E_BAD_TOPIC: fatal(400, "The topic name is not valid."),
  E_BAD_CHANNEL: fatal(400, "The channel name is not valid."),
  E_BAD_MESSAGE: fatal(413, "A message body is missing, empty or too big."),
  E_IDENTIFY_FAILED: fatal(
    null,
    "The features asked for exclude each other or the upgrade failed.",
  ),
  E_SUB_FAILED: fatalForNow(null, "The subscription could not be made."),
  E_PUB_FAILED: fatalForNow(503, "The message could not be stored."),
  E_MPUB_FAILED: fatalForNow(503, "The messages could not be stored."),
  E_DPUB_FAILED: fatalForNow(503, "The deferred message could not be stored."),
  E_FIN_FAILED: soft("The message to finish is not in flight on this connection."),
  E_REQ_FAILED: soft("The message to requeue is not in flight on this connection."),
  E_TOUCH_FAILED: soft("The message to touch is not in flight on this connection."),
  E_AUTH_DISABLED: fatal(null, "AUTH was sent but the server asks for no authorization."),
  E_AUTH_FAILED: fatalForNow(503, "The authorization server gave no usable answer."),
  E_AUTH_FIRST: fatal(401, "The command needs an AUTH before it."),
  E_AUTH_ERROR: fatalForNow(null, "The reply to AUTH could not be sent."),
  E_UNAUTHORIZED: fatal(403, "The authorizations do not cover the topic and channel."),
  E_THROTTLED: fatalForNow(429, "A limit is reached: a rate, a memory budget or free disk space."),
  E_AMBIGUOUS: fatal(
    504,
    "A broker was sent the publish and gave no answer in time: whether it is stored is not known.",
  ),
  E_SEQUENCE_TOO_OLD: fatal(
    409,
    "The sequence of the publish is below the producer's window: whether it is stored is not known.",
  ),
  E_CLOSING: fatalForNow(
    null,
    "The server stops: what was sent to it and not answered before this was not taken and never will be.",
  ),
};

/**
 * A refusal as a value: returned, never thrown, so it keeps no stack. Text that a peer sent and an
 * error repeats is UTF-8; bytes of it that are not become U+FFFD (`%q` texts escape them).
 */
export class ProtocolError {
  readonly code: ErrorCode;
  /** The whole body of the error frame. */
  readonly text: string;

  constructor(code: ErrorCode, description = "") {
    this.code = code;
    this.text = description === "" ? code : `${code} ${description}`;
  }

  /**
   * The text for a log: without what the peer sent where that was not what it should be, since out of
   * step with itself a client sends bodies and secrets in the place of commands.
   */
  get logText(): string {
    if (!REPEATS_PEER.has(this.code)) return this.text;
    return this.text
      .replace(/"(?:[^"\\]|\\.)*"|'[^']*'/gs, '"..."')
      .replace(/(invalid command|could not parse \w+) .*/s, "$1");
  }

  /** Whether the server closes the connection after sending it. */
  get fatal(): boolean {
    return ERROR_CODES[this.code].fatal;
  }
}

/** The codes whose texts may repeat what a peer sent and what has been judged to be wrong. */
const REPEATS_PEER: ReadonlySet<ErrorCode> = new Set(["E_INVALID", "E_BAD_TOPIC", "E_BAD_CHANNEL"]);

/** The code an error frame's body starts with; `undefined` when it is none of ours. */
export function errorCodeOf(text: string): ErrorCode | undefined {
  const space = text.indexOf(" ");
  const word = space < 0 ? text : text.slice(0, space);
  return isErrorCode(word) ? word : undefined;
}

/** How a client must take an error frame: all but the three soft codes end the connection. */
export function isFatalErrorText(text: string): boolean {
  const code = errorCodeOf(text);
  return code === undefined || ERROR_CODES[code].fatal;
}

function isErrorCode(word: string): word is ErrorCode {
  return Object.hasOwn(ERROR_CODES, word);
}
