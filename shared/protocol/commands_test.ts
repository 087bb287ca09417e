/** Every text a command can be refused with, and what is accepted instead. */
import assert from "node:assert/strict";
import fc from "fast-check";
import { concatBytes, utf8Bytes } from "./bytes.ts";
import {
  checkFin,
  checkSub,
  checkTouch,
  consumersExceedLimit,
  encodeFin,
  encodeRdy,
  encodeReq,
  encodeSub,
  FIN_BYTES,
  heartbeatsDisabled,
  messageFailed,
  MessageFailure,
  parseRdy,
  parseReq,
  subFailed,
  subToDeleted,
  writeFin,
} from "./consume_commands.ts";
import { hexBytes, lineOf, refusalOf } from "./decode_test_trace.ts";
import type { CommandLine } from "./command_line.ts";
import { endOfStreamError } from "./end_of_stream.ts";
import { MpubScanner } from "./mpub.ts";
import { parseProducerId, producerIdText } from "./producer_id.ts";
import {
  checkMessageSize,
  checkMpub,
  checkMpubBodySize,
  checkPub,
  encodeDpub,
  encodeMpub,
  encodePub,
  encodePubLine,
  encodeSmpub,
  encodeSpub,
  parseDpub,
  parseSequence,
  parseSpubDefer,
  publishFailed,
  writePub,
} from "./publish_commands.ts";
import {
  authAlreadySet,
  authDisabled,
  authFailed,
  authReply,
  authReplyFailed,
  authRequired,
  badProtocol,
  checkAuth,
  checkSessionBodySize,
  encodeAuth,
  identifyFailed,
  noAuthorizations,
  throttled,
  tlsRequired,
  unauthorized,
  unknownCommand,
  wrongState,
} from "./session_commands.ts";
import { type SequencedVerb, Verb } from "./verb.ts";

const ID = "0001000000000005";
const RDY_MAX = 2500;
const REQ_MAX = 3_600_000;

function refuses(
  name: string,
  check: (line: CommandLine) => unknown,
  cases: readonly (readonly [string, string])[],
): void {
  Deno.test(`${name} refuses with the exact text`, () => {
    for (const [line, text] of cases) assert.equal(refusalOf(check(lineOf(line))), text, line);
  });
}

// PUB, DPUB, MPUB --------------------------------------------------------------------------------

refuses("checkPub()", checkPub, [
  ["PUB", "E_INVALID PUB insufficient number of parameters"],
  ["PUB ", 'E_BAD_TOPIC PUB topic name "" is not valid'],
  ["PUB a$ x", 'E_BAD_TOPIC PUB topic name "a$" is not valid'],
  ['PUB "\\\t', 'E_BAD_TOPIC PUB topic name "\\"\\\\\\t" is not valid'],
  [`PUB ${"x".repeat(65)}`, `E_BAD_TOPIC PUB topic name "${"x".repeat(65)}" is not valid`],
]);

refuses("checkMpub()", checkMpub, [
  ["MPUB", "E_INVALID MPUB insufficient number of parameters"],
  ["MPUB t:x", 'E_BAD_TOPIC E_BAD_TOPIC MPUB topic name "t:x" is not valid'],
]);

refuses("parseDpub()", (line) => parseDpub(line, REQ_MAX), [
  ["DPUB", "E_INVALID DPUB insufficient number of parameters"],
  ["DPUB t", "E_INVALID DPUB insufficient number of parameters"],
  ["DPUB t$ x", 'E_BAD_TOPIC DPUB topic name "t$" is not valid'],
  ["DPUB t x", "E_INVALID DPUB could not parse timeout x"],
  ["DPUB t -1", "E_INVALID DPUB could not parse timeout -1"],
  ["DPUB t 3600001", "E_INVALID DPUB timeout 3600001 out of range 0-3600000"],
  ["DPUB t 3600100", "E_INVALID DPUB timeout 3600100 out of range 0-3600000"],
  [
    "DPUB t 0018446744073709551616",
    "E_INVALID DPUB timeout 18446744073709551616 out of range 0-3600000",
  ],
]);

refuses("parseSequence()", (line) => parseSequence(line.verb as SequencedVerb, line), [
  ["SPUB", "E_INVALID SPUB insufficient number of parameters"],
  ["SPUB t", "E_INVALID SPUB insufficient number of parameters"],
  ["SMPUB t", "E_INVALID SMPUB insufficient number of parameters"],
  ["SPUB t$ 1", 'E_BAD_TOPIC SPUB topic name "t$" is not valid'],
  ["SMPUB t$ 1", 'E_BAD_TOPIC SMPUB topic name "t$" is not valid'],
  ["SPUB t ", "E_INVALID SPUB could not parse sequence "],
  ["SPUB t -1", "E_INVALID SPUB could not parse sequence -1"],
  ["SMPUB t 1e3", "E_INVALID SMPUB could not parse sequence 1e3"],
  [
    "SPUB t 9007199254740991",
    "E_INVALID SPUB sequence 9007199254740991 out of range 0-9007199254740990",
  ],
  [
    "SPUB t 018446744073709551616",
    "E_INVALID SPUB sequence 18446744073709551616 out of range 0-9007199254740990",
  ],
]);

refuses("parseSpubDefer()", (line) => parseSpubDefer(line, REQ_MAX), [
  ["SPUB t 1 x", "E_INVALID SPUB could not parse timeout x"],
  ["SPUB t 1 3600001", "E_INVALID SPUB timeout 3600001 out of range 0-3600000"],
]);

Deno.test("SPUB and SMPUB are read as they were encoded", () => {
  const spub = encodeSpub("t", 2 ** 53 - 2, utf8Bytes("a"), 15);
  const line = lineOf(spub.subarray(0, spub.indexOf(0x0a)));
  assert.equal(line.text(), "SPUB t 9007199254740990 15");
  assert.equal(parseSequence(Verb.SPUB, line), 2 ** 53 - 2);
  assert.equal(parseSpubDefer(line, REQ_MAX), 15);
  assert.equal(parseSpubDefer(lineOf("SPUB t 0"), REQ_MAX), 0);
  const smpub = encodeSmpub("t", 0, [utf8Bytes("a")]);
  assert.equal(lineOf(smpub.subarray(0, smpub.indexOf(0x0a))).text(), "SMPUB t 0");
  for (const sequence of [-1, 0.5, 2 ** 53 - 1, NaN]) {
    assert.throws(() => encodeSpub("t", sequence, utf8Bytes("a")), TypeError);
  }
});

Deno.test("a producer id is 32 hex digits of either case", () => {
  const text = "00FF" + "0a".repeat(14);
  const id = parseProducerId(text)!;
  assert.deepEqual([id.length, id[0], id[1], id[15]], [16, 0, 255, 10]);
  assert.equal(producerIdText(id), text.toLowerCase());
  for (const bad of ["", text.slice(1), text + "0", "x".repeat(32), text + "\n"]) {
    assert.equal(parseProducerId(bad), null);
  }
});

Deno.test("checkPub() and checkMpub() accept a topic and ignore what follows it", () => {
  for (const params of ["t", "t#ephemeral", "t surplus more"]) {
    assert.equal(checkPub(lineOf(`PUB ${params}`)), undefined);
    assert.equal(checkMpub(lineOf(`MPUB ${params}`)), undefined);
  }
});

Deno.test("parseDpub() takes 0 to the maximum, and empty as 0", () => {
  assert.equal(parseDpub(lineOf("DPUB t 0"), REQ_MAX), 0);
  assert.equal(parseDpub(lineOf("DPUB t "), REQ_MAX), 0);
  assert.equal(parseDpub(lineOf("DPUB t 1500 x"), REQ_MAX), 1500);
  assert.equal(parseDpub(lineOf("DPUB t 3600000"), REQ_MAX), REQ_MAX);
});

Deno.test("sizes of published bodies are judged with the exact texts", () => {
  assert.equal(checkMessageSize(Verb.PUB, 100, 100), undefined);
  assert.equal(checkMpubBodySize(1000, 1000), undefined);
  const cases: [unknown, string][] = [
    [checkMessageSize(Verb.PUB, 0, 100), "E_BAD_MESSAGE PUB invalid message body size 0"],
    [checkMessageSize(Verb.PUB, -7, 100), "E_BAD_MESSAGE PUB invalid message body size -7"],
    [checkMessageSize(Verb.PUB, 105, 100), "E_BAD_MESSAGE PUB message too big 105 > 100"],
    [checkMessageSize(Verb.DPUB, 0, 100), "E_BAD_MESSAGE DPUB invalid message body size 0"],
    [checkMessageSize(Verb.DPUB, 101, 100), "E_BAD_MESSAGE DPUB message too big 101 > 100"],
    [checkMpubBodySize(0, 1000), "E_BAD_BODY MPUB invalid body size 0"],
    [checkMpubBodySize(-1, 1000), "E_BAD_BODY MPUB invalid body size -1"],
    [checkMpubBodySize(1148, 1000), "E_BAD_BODY MPUB body too big 1148 > 1000"],
  ];
  for (const [refusal, text] of cases) assert.equal(refusalOf(refusal), text);
});

Deno.test("publishFailed() has a code for each verb", () => {
  assert.equal(publishFailed(Verb.PUB, "exiting").text, "E_PUB_FAILED PUB failed exiting");
  assert.equal(publishFailed(Verb.MPUB, "exiting").text, "E_MPUB_FAILED MPUB failed exiting");
  assert.equal(publishFailed(Verb.DPUB, "exiting").text, "E_DPUB_FAILED DPUB failed exiting");
});

// SUB, RDY, FIN, REQ, TOUCH ----------------------------------------------------------------------

refuses("checkSub()", checkSub, [
  ["SUB", "E_INVALID SUB insufficient number of parameters"],
  ["SUB t", "E_INVALID SUB insufficient number of parameters"],
  ["SUB a$ c$", 'E_BAD_TOPIC SUB topic name "a$" is not valid'],
  ["SUB t c$", 'E_BAD_CHANNEL SUB channel name "c$" is not valid'],
  ["SUB t ", 'E_BAD_CHANNEL SUB channel name "" is not valid'],
  ["SUB  c", 'E_BAD_TOPIC SUB topic name "" is not valid'],
]);

refuses("parseRdy()", (line) => parseRdy(line, RDY_MAX), [
  ["RDY x", "E_INVALID RDY could not parse count x"],
  ["RDY -1", "E_INVALID RDY could not parse count -1"],
  ["RDY +1", "E_INVALID RDY could not parse count +1"],
  ["RDY 1.5", "E_INVALID RDY could not parse count 1.5"],
  ["RDY 2501", "E_INVALID RDY count 2501 out of range 0-2500"],
  ["RDY 002501", "E_INVALID RDY count 2501 out of range 0-2500"],
  ["RDY 18446744073709551617", "E_INVALID RDY count 18446744073709551617 out of range 0-2500"],
]);

refuses("checkFin()", checkFin, [
  ["FIN", "E_INVALID FIN insufficient number of params"],
  ["FIN ", "E_INVALID invalid message ID"],
  ["FIN 000100000000000", "E_INVALID invalid message ID"],
  ["FIN 00010000000000055", "E_INVALID invalid message ID"],
]);

refuses("checkTouch()", checkTouch, [
  ["TOUCH", "E_INVALID TOUCH insufficient number of params"],
  ["TOUCH x", "E_INVALID invalid message ID"],
]);

refuses("parseReq()", (line) => parseReq(line, REQ_MAX), [
  ["REQ", "E_INVALID REQ insufficient number of params"],
  [`REQ ${ID}`, "E_INVALID REQ insufficient number of params"],
  ["REQ x y", "E_INVALID invalid message ID"],
  [`REQ ${ID} y`, "E_INVALID REQ could not parse timeout y"],
  [`REQ ${ID} -1`, "E_INVALID REQ could not parse timeout -1"],
]);

Deno.test("parseRdy() takes a missing count as 1 and an empty one as 0", () => {
  const cases: [string, number][] = [["RDY", 1], ["RDY ", 0], ["RDY 0", 0], ["RDY 2500 x", 2500]];
  for (const [line, count] of cases) assert.equal(parseRdy(lineOf(line), RDY_MAX), count, line);
});

Deno.test("parseReq() clamps a timeout that is too long instead of refusing it", () => {
  const cases: [string, number][] = [
    ["0", 0],
    ["", 0],
    ["1500", 1500],
    ["3600000", REQ_MAX],
    ["3600001", REQ_MAX],
    ["99999999999999999999999", REQ_MAX],
  ];
  for (const [timeout, expected] of cases) {
    assert.equal(parseReq(lineOf(`REQ ${ID} ${timeout}`), REQ_MAX), expected, timeout);
  }
});

Deno.test("an id is any 16 bytes", () => {
  const line = lineOf(concatBytes(utf8Bytes("FIN "), hexBytes("ff".repeat(16))));
  assert.equal(checkFin(line), undefined);
  assert.equal(checkTouch(lineOf(`TOUCH ${ID} x`)), undefined);
});

Deno.test("FIN, REQ and TOUCH fail softly with their id", () => {
  const { NOT_IN_FLIGHT, NOT_OWNER, EXITING } = MessageFailure;
  const cases = [
    [Verb.FIN, NOT_IN_FLIGHT, `E_FIN_FAILED FIN ${ID} failed ID not in flight`],
    [Verb.REQ, NOT_OWNER, `E_REQ_FAILED REQ ${ID} failed client does not own message`],
    [Verb.REQ, EXITING, `E_REQ_FAILED REQ ${ID} failed exiting`],
    [Verb.TOUCH, NOT_IN_FLIGHT, `E_TOUCH_FAILED TOUCH ${ID} failed ID not in flight`],
  ] as const;
  for (const [verb, reason, text] of cases) {
    const error = messageFailed(verb, lineOf(`X ${ID}`), reason);
    assert.equal(error.text, text);
    assert.equal(error.fatal, false);
  }
});

Deno.test("SUB fails with the exact texts", () => {
  assert.equal(heartbeatsDisabled().text, "E_INVALID cannot SUB with heartbeats disabled");
  assert.equal(subFailed("exiting").text, "E_SUB_FAILED SUB failed exiting");
  assert.equal(
    consumersExceedLimit("t", "c", 1).text,
    "E_SUB_FAILED SUB failed consumers for t:c exceeds limit of 1",
  );
  assert.equal(subToDeleted().text, "E_SUB_FAILED SUB failed to deleted topic/channel");
});

// Sessions ---------------------------------------------------------------------------------------

refuses("unknownCommand()", unknownCommand, [
  ["", "E_INVALID invalid command "],
  ["ASDF", "E_INVALID invalid command ASDF"],
  ["ASDF x\r", "E_INVALID invalid command ASDF"],
  ["pub t", "E_INVALID invalid command pub"],
]);

refuses("tlsRequired()", tlsRequired, [
  ["PUB t", "E_INVALID cannot PUB in current state (TLS required)"],
  ["ASDF", "E_INVALID cannot ASDF in current state (TLS required)"],
]);

refuses("checkAuth()", checkAuth, [
  ["AUTH x", "E_INVALID AUTH invalid number of parameters"],
  ["AUTH ", "E_INVALID AUTH invalid number of parameters"],
]);

Deno.test("session errors have the exact texts", () => {
  assert.equal(checkAuth(lineOf("AUTH")), undefined);
  const { IDENTIFY, AUTH } = Verb;
  const cases: [unknown, string][] = [
    [badProtocol(), "E_BAD_PROTOCOL"],
    [wrongState(IDENTIFY), "E_INVALID cannot IDENTIFY in current state"],
    [wrongState(Verb.CLS), "E_INVALID cannot CLS in current state"],
    [wrongState(Verb.FIN), "E_INVALID cannot FIN in current state"],
    [throttled(Verb.PUB, "disk is nearly full"), "E_THROTTLED PUB disk is nearly full"],
    [checkSessionBodySize(IDENTIFY, 11, 10), "E_BAD_BODY IDENTIFY body too big 11 > 10"],
    [checkSessionBodySize(IDENTIFY, 0, 10), "E_BAD_BODY IDENTIFY invalid body size 0"],
    [checkSessionBodySize(AUTH, -1, 10), "E_BAD_BODY AUTH invalid body size -1"],
    [checkSessionBodySize(AUTH, 11, 10), "E_BAD_BODY AUTH body too big 11 > 10"],
    [identifyFailed("EOF"), "E_IDENTIFY_FAILED IDENTIFY failed EOF"],
    [authAlreadySet(), "E_INVALID AUTH already set"],
    [authDisabled(), "E_AUTH_DISABLED AUTH disabled"],
    [authFailed(), "E_AUTH_FAILED AUTH failed"],
    [noAuthorizations(), "E_UNAUTHORIZED AUTH no authorizations found"],
    [authReplyFailed("EOF"), "E_AUTH_ERROR AUTH error EOF"],
    [authRequired(Verb.SUB), "E_AUTH_FIRST AUTH required before SUB"],
    [authRequired(Verb.MPUB), "E_AUTH_FIRST AUTH required before MPUB"],
    [unauthorized(Verb.PUB, "zzz", ""), 'E_UNAUTHORIZED AUTH failed for PUB on "zzz" ""'],
  ];
  for (const [error, text] of cases) assert.equal(refusalOf(error), text);
  assert.equal(checkSessionBodySize(IDENTIFY, 10, 10), undefined);
});

Deno.test("authReply() is the JSON of the contract", () => {
  assert.equal(
    authReply("joe", "http://x/", 3),
    '{"identity":"joe","identity_url":"http://x/","permission_count":3}',
  );
});

Deno.test("endOfStreamError() answers only inside a body that is due", () => {
  const mpub = new MpubScanner({ messageBytesMax: 10, bodyBytesMax: 100 });
  assert.equal(
    endOfStreamError(Verb.AUTH, "in_body_size", mpub)?.text,
    "E_BAD_BODY AUTH failed to read body size",
  );
  assert.equal(
    endOfStreamError(Verb.AUTH, "in_body", mpub)?.text,
    "E_BAD_BODY AUTH failed to read body",
  );
  for (const position of ["in_magic", "in_line", "between_commands"] as const) {
    assert.equal(endOfStreamError(Verb.PUB, position, mpub), undefined);
  }
  assert.equal(endOfStreamError(Verb.NOP, "in_body", mpub), undefined);
});

// Encoders ---------------------------------------------------------------------------------------

Deno.test("encoders refuse what would become another command", () => {
  for (const name of ["", "a b", "a\nNOP", "x".repeat(65)]) {
    assert.throws(() => encodePub(name, utf8Bytes("x")), TypeError);
    assert.throws(() => encodePubLine(name), TypeError);
    assert.throws(() => encodeMpub(name, [utf8Bytes("x")]), TypeError);
    assert.throws(() => encodeDpub(name, 0, utf8Bytes("x")), TypeError);
    assert.throws(() => encodeSub(name, "c"), TypeError);
    assert.throws(() => encodeSub("t", name), TypeError);
  }
  for (const count of [-1, 1.5, NaN, Infinity, 1e300]) {
    assert.throws(() => encodeRdy(count), RangeError);
    assert.throws(() => encodeDpub("t", count, utf8Bytes("x")), RangeError);
    assert.throws(() => encodeReq(utf8Bytes(ID), count), RangeError);
  }
});

Deno.test("writePub() and writeFin() write what the encoders make", () => {
  fc.assert(fc.property(fc.uint8Array({ maxLength: 200 }), fc.nat(20), (body, offset) => {
    const buffer = new Uint8Array(300);
    const bytes = writePub(buffer, offset, encodePubLine("topic"), body);
    assert.deepEqual(buffer.subarray(offset, offset + bytes), encodePub("topic", body));
  }));
  const buffer = new Uint8Array(40);
  const bytes = writeFin(buffer, 3, utf8Bytes(`??${ID}`), 2);
  assert.equal(bytes, FIN_BYTES);
  assert.deepEqual(buffer.subarray(3, 3 + bytes), encodeFin(utf8Bytes(ID)));
});

Deno.test("encodeAuth() sends the secret as it is", () => {
  assert.deepEqual(encodeAuth(hexBytes("00ff")), hexBytes("415554480a 00000002 00ff"));
});
