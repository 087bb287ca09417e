import assert from "node:assert/strict";
import {
  ERROR_CODES,
  type ErrorCode,
  errorCodeOf,
  isFatalErrorText,
  ProtocolError,
} from "./error_code.ts";

const CODES = Object.keys(ERROR_CODES) as ErrorCode[];

Deno.test("the table has every code of the contract, and ours", () => {
  const contract = "E_INVALID E_BAD_PROTOCOL E_BAD_BODY E_BAD_TOPIC E_BAD_CHANNEL E_BAD_MESSAGE " +
    "E_IDENTIFY_FAILED E_SUB_FAILED E_PUB_FAILED E_MPUB_FAILED E_DPUB_FAILED E_FIN_FAILED " +
    "E_REQ_FAILED E_TOUCH_FAILED E_AUTH_DISABLED E_AUTH_FAILED E_AUTH_FIRST E_AUTH_ERROR " +
    "E_UNAUTHORIZED";
  assert.deepEqual(CODES, [
    ...contract.split(" "),
    "E_THROTTLED",
    "E_AMBIGUOUS",
    "E_SEQUENCE_TOO_OLD",
    "E_CLOSING",
  ]);
});

Deno.test("only FIN, REQ and TOUCH fail softly, since nsqjs closes on any other code", () => {
  const soft = CODES.filter((code) => !ERROR_CODES[code].fatal);
  assert.deepEqual(soft, ["E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"]);
  for (const code of CODES) {
    assert.equal(new ProtocolError(code, "x").fatal, ERROR_CODES[code].fatal);
    assert.equal(isFatalErrorText(`${code} x`), ERROR_CODES[code].fatal);
  }
});

Deno.test("E_THROTTLED may be tried again and is 429 over HTTP", () => {
  assert.equal(ERROR_CODES.E_THROTTLED.retryable, true);
  assert.equal(ERROR_CODES.E_THROTTLED.httpStatus, 429);
});

Deno.test("E_CLOSING may be tried again, and only happens over TCP", () => {
  const { fatal, retryable, httpStatus } = ERROR_CODES.E_CLOSING;
  assert.deepEqual([fatal, retryable, httpStatus], [true, true, null]);
});

Deno.test("a ProtocolError's text is the code, alone or with a description", () => {
  assert.equal(new ProtocolError("E_BAD_PROTOCOL").text, "E_BAD_PROTOCOL");
  assert.equal(
    new ProtocolError("E_INVALID", "invalid command ").text,
    "E_INVALID invalid command ",
  );
});

Deno.test("errorCodeOf() knows our codes only; an unknown one is fatal", () => {
  assert.equal(errorCodeOf("E_BAD_PROTOCOL"), "E_BAD_PROTOCOL");
  assert.equal(errorCodeOf("E_FIN_FAILED FIN x failed"), "E_FIN_FAILED");
  for (const text of ["", "E_NEW soft", "toString", "e_invalid x", "E_FIN_FAILEDx"]) {
    assert.equal(errorCodeOf(text), undefined, text);
    assert.equal(isFatalErrorText(text), true, text);
  }
});
