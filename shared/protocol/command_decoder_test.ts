import assert from "node:assert/strict";
import fc from "fast-check";
import { InvariantError } from "../runtime/invariant.ts";
import { concatBytes, utf8Bytes, utf8Text } from "./bytes.ts";
import { CommandDecoder, CommandEvent } from "./command_decoder.ts";
import { hexBytes, lineOf, traceOf } from "./decode_test_trace.ts";
import { LINE_BYTES_MAX } from "./limits.ts";
import { encodeDpub, encodeMpub, encodePub } from "./publish_commands.ts";
import { encodeIdentify, MAGIC_V2 } from "./session_commands.ts";
import { Verb } from "./verb.ts";

const { NEED_MORE, MAGIC, BAD_MAGIC, LINE, LINE_TOO_LONG, BODY_SIZE, BODY, BODY_PART } =
  CommandEvent;

/** A decoder that has seen its magic and `bytes`. */
function started(bytes: Uint8Array | string, lineBytesMax = LINE_BYTES_MAX): CommandDecoder {
  const decoder = new CommandDecoder({ lineBytesMax });
  const rest = typeof bytes === "string" ? utf8Bytes(bytes) : bytes;
  decoder.feed(concatBytes(MAGIC_V2, rest));
  assert.equal(decoder.next(), MAGIC);
  return decoder;
}

function everyCut(bytes: Uint8Array): number[] {
  return Array.from({ length: bytes.length }, (_, index) => index);
}

// Failures ---------------------------------------------------------------------------------------

Deno.test("a wrong magic is told once all four bytes are here, and again on every call", () => {
  for (const magic of ["  V1", "GET ", "\x16\x03\x01\x02", "V2  ", " V2\n"]) {
    const decoder = new CommandDecoder();
    decoder.feed(utf8Bytes(magic.slice(0, 3)));
    assert.equal(decoder.next(), NEED_MORE);
    assert.equal(decoder.position, "in_magic");
    decoder.feed(utf8Bytes(magic.slice(3) + "PUB t\n"));
    assert.equal(decoder.next(), BAD_MAGIC);
    assert.equal(decoder.next(), BAD_MAGIC);
  }
});

Deno.test("a line of exactly the cap with its end is read, one byte more is too long", () => {
  const fits = utf8Bytes("x".repeat(9) + "\n");
  const over = utf8Bytes("x".repeat(10) + "\n");
  for (const cuts of [[], [4], [4, 13], [8], everyCut(over).map((index) => 4 + index)]) {
    for (const [line, event] of [[fits, LINE], [over, LINE_TOO_LONG]] as const) {
      const stream = concatBytes(MAGIC_V2, line);
      const decoder = new CommandDecoder({ lineBytesMax: 10 });
      const events: CommandEvent[] = [];
      let start = 0;
      for (const end of [...cuts.filter((cut) => cut < stream.length), stream.length]) {
        decoder.feed(stream, start, end);
        for (let seen = decoder.next(); seen !== NEED_MORE; seen = decoder.next()) {
          events.push(seen);
          if (seen === LINE_TOO_LONG) break;
        }
        start = end;
        if (events.at(-1) === LINE_TOO_LONG) break;
      }
      assert.deepEqual(events, [MAGIC, event]);
    }
  }
});

Deno.test("a line is too long as soon as the cap is reached without an end", () => {
  assert.equal(started("x".repeat(10), 10).next(), LINE_TOO_LONG);
  const split = started("x".repeat(9), 10);
  assert.equal(split.next(), NEED_MORE);
  split.feed(utf8Bytes("x"));
  assert.equal(split.next(), LINE_TOO_LONG);
});

Deno.test("a line that never ends holds no more memory than its cap and is given up", () => {
  const decoder = started("");
  assert.equal(decoder.next(), NEED_MORE);
  const chunk = new Uint8Array(1000).fill(0x61);
  let fed = 0;
  for (;;) {
    decoder.feed(chunk);
    fed += chunk.length;
    assert.ok(decoder.stagedBytes <= 2 * LINE_BYTES_MAX);
    if (decoder.next() === LINE_TOO_LONG) break;
  }
  assert.equal(Math.ceil(LINE_BYTES_MAX / 1000) * 1000, fed);
  assert.equal(decoder.stagedBytes, 0);
  assert.equal(decoder.next(), LINE_TOO_LONG);
  assert.equal(decoder.remainingBytes, 0);
});

Deno.test("using the decoder out of order is our mistake", () => {
  const unfinished = started("NOP\n");
  assert.throws(() => unfinished.feed(MAGIC_V2), InvariantError);
  assert.throws(() => unfinished.acceptBody(), InvariantError);
  const unjudged = started(encodePub("t", utf8Bytes("x")));
  assert.equal(unjudged.next(), LINE);
  unjudged.expectBody();
  assert.throws(() => unjudged.expectBody(), InvariantError);
  assert.equal(unjudged.next(), BODY_SIZE);
  assert.throws(() => unjudged.next(), InvariantError);
});

Deno.test("a negative body size is shown as it is and cannot be accepted", () => {
  const decoder = started(concatBytes(utf8Bytes("PUB t\n"), hexBytes("fffffffe")));
  decoder.next();
  decoder.expectBody();
  assert.equal(decoder.next(), BODY_SIZE);
  assert.equal(decoder.bodySize, -2);
  assert.throws(() => decoder.acceptBody(), InvariantError);
});

// Lines ------------------------------------------------------------------------------------------

Deno.test("a line is split on single spaces, without its \\n and one \\r", () => {
  const cases: [string, Verb, string[]][] = [
    ["NOP", Verb.NOP, []],
    ["NOP\r", Verb.NOP, []],
    ["NOP\r\r", Verb.UNKNOWN, []],
    ["", Verb.UNKNOWN, []],
    ["\r", Verb.UNKNOWN, []],
    [" ", Verb.UNKNOWN, [""]],
    ["  V2", Verb.UNKNOWN, ["", "V2"]],
    ["RDY ", Verb.RDY, [""]],
    ["RDY \r", Verb.RDY, [""]],
    ["RDY  5", Verb.RDY, ["", "5"]],
    ["SUB t c", Verb.SUB, ["t", "c"]],
    ["SUB t c\r", Verb.SUB, ["t", "c"]],
    ["SUB t c d e f g", Verb.SUB, ["t", "c", "d", "e", "f", "g"]],
    ["sub t c", Verb.UNKNOWN, ["t", "c"]],
    [" SUB t c", Verb.UNKNOWN, ["SUB", "t", "c"]],
    ["PUB\tt", Verb.UNKNOWN, []],
    ["PING", Verb.UNKNOWN, []],
    ["REGISTER t", Verb.UNKNOWN, ["t"]],
  ];
  for (const [text, verb, params] of cases) {
    const line = lineOf(text);
    assert.equal(line.verb, verb, text);
    assert.equal(line.paramCount, params.length, text);
    params.slice(0, 4).forEach((param, index) => assert.equal(line.paramText(index), param, text));
    assert.equal(line.text(), text.replace(/\r$/, ""));
    assert.equal(line.verbText(), text.replace(/\r$/, "").split(" ")[0]);
  }
});

Deno.test("only parameters that are there and among the first four have bounds", () => {
  const line = lineOf("SUB a b c d e");
  assert.equal(line.paramText(3), "d");
  assert.throws(() => line.paramStart(4), InvariantError);
  assert.throws(() => lineOf("NOP").paramStart(0), InvariantError);
  assert.throws(() => lineOf("NOP").paramEnd(0), InvariantError);
});

Deno.test("a V1 line is trimmed and has V1's verbs", () => {
  const cases: [string, Verb, string[]][] = [
    ["PING", Verb.PING, []],
    [" \t PING \r", Verb.PING, []],
    ["IDENTIFY", Verb.IDENTIFY, []],
    ["REGISTER t c", Verb.REGISTER, ["t", "c"]],
    ["  UNREGISTER t  c \v\f", Verb.UNREGISTER, ["t", "", "c"]],
    ["REGISTER a b c d e f", Verb.REGISTER, ["a", "b", "c", "d", "e", "f"]],
    ["   ", Verb.UNKNOWN, []],
    ["PUB t", Verb.UNKNOWN, ["t"]],
    ["ping", Verb.UNKNOWN, []],
  ];
  for (const [text, verb, params] of cases) {
    const line = lineOf(text, "V1");
    assert.equal(line.verb, verb, text);
    assert.equal(line.paramCount, params.length, text);
    params.slice(0, 4).forEach((param, index) => assert.equal(line.paramText(index), param, text));
  }
});

Deno.test("a V1 decoder wants V1's magic", () => {
  const decoder = new CommandDecoder({ protocol: "V1" });
  decoder.feed(MAGIC_V2);
  assert.equal(decoder.next(), BAD_MAGIC);
});

// Bodies -----------------------------------------------------------------------------------------

Deno.test("a body that is whole in its chunk is a view of it", () => {
  const stream = concatBytes(MAGIC_V2, encodePub("t", utf8Bytes("hello")));
  const decoder = new CommandDecoder();
  decoder.feed(stream);
  decoder.next();
  decoder.next();
  decoder.expectBody();
  decoder.next();
  decoder.acceptBody();
  assert.equal(decoder.next(), BODY);
  assert.equal(decoder.bodyBuffer, stream);
  assert.equal(utf8Text(stream, decoder.bodyStart, decoder.bodyEnd), "hello");
  assert.equal(decoder.stagedBytes, 0);
});

Deno.test("a body in pieces shows what is here, keeps its line, and takes only its own size", () => {
  const command = encodePub("topic", new Uint8Array(5000).fill(0x62));
  const decoder = new CommandDecoder();
  decoder.feed(MAGIC_V2);
  decoder.next();
  assert.equal(decoder.next(), NEED_MORE);

  const chunk = command.slice(0, 2000);
  decoder.feed(chunk);
  assert.equal(decoder.next(), LINE);
  decoder.expectBody();
  assert.equal(decoder.next(), BODY_SIZE);
  decoder.acceptBody();
  assert.equal(decoder.next(), NEED_MORE);
  chunk.fill(0);
  assert.equal(decoder.position, "in_body");
  assert.equal(decoder.bodyEnd - decoder.bodyStart, 2000 - "PUB topic\n".length - 4);
  assert.ok(decoder.stagedBytes >= 5000 && decoder.stagedBytes <= 5120 + 256);
  assert.equal(decoder.line.paramText(0), "topic");

  decoder.feed(command, 2000);
  assert.equal(decoder.next(), BODY);
  const body = decoder.bodyBuffer.subarray(decoder.bodyStart, decoder.bodyEnd);
  assert.deepEqual(body, new Uint8Array(5000).fill(0x62));
  assert.equal(decoder.line.verb, Verb.PUB);
  assert.equal(decoder.line.paramText(0), "topic");

  assert.equal(decoder.next(), NEED_MORE);
  assert.ok(decoder.stagedBytes <= 4096, "between commands little is held");
  assert.equal(decoder.bodyBuffer.length, 0, "and nothing of the chunk or the body");
  assert.equal(decoder.line.buffer.length, 0);
});

Deno.test("no memory is taken for an accepted body before its first byte", () => {
  const decoder = started(concatBytes(utf8Bytes("MPUB t\n"), hexBytes("00500000")));
  decoder.next();
  decoder.expectBody();
  decoder.next();
  decoder.acceptBody();
  assert.equal(decoder.next(), NEED_MORE);
  assert.ok(decoder.stagedBytes <= 256);
  assert.equal(decoder.bodyEnd - decoder.bodyStart, 0);
  decoder.feed(Uint8Array.of(0));
  assert.equal(decoder.next(), NEED_MORE);
  assert.ok(decoder.stagedBytes >= 0x500000);
});

Deno.test("a body of size 0 is complete at once", () => {
  const decoder = started(concatBytes(utf8Bytes("PUB t\n"), hexBytes("00000000")));
  decoder.next();
  decoder.expectBody();
  decoder.next();
  decoder.acceptBody();
  assert.equal(decoder.next(), BODY);
  assert.equal(decoder.bodyEnd, decoder.bodyStart);
});

Deno.test("a blank line after a body that ends in \\r is blank", () => {
  const decoder = started(concatBytes(encodePub("t", utf8Bytes("x\r")), utf8Bytes("\n")));
  decoder.next();
  decoder.expectBody();
  decoder.next();
  decoder.acceptBody();
  assert.equal(decoder.next(), BODY);
  assert.equal(decoder.next(), LINE);
  assert.equal(decoder.line.start, decoder.line.end);
});

Deno.test("a session may pause between any two events", () => {
  const decoder = started(concatBytes(utf8Bytes("NOP\n"), encodePub("t", utf8Bytes("x"))));
  assert.equal(decoder.next(), LINE);
  assert.equal(decoder.position, "between_commands");
  assert.equal(decoder.remainingBytes, 11);
  assert.equal(decoder.next(), LINE);
  assert.equal(decoder.remainingBytes, 5);
});

Deno.test("what follows an IDENTIFY is handed back for an upgrade, and decoding goes on after it", () => {
  const decoder = started(concatBytes(encodeIdentify({}), hexBytes("160301")));
  decoder.next();
  decoder.expectBody();
  decoder.next();
  decoder.acceptBody();
  assert.equal(decoder.next(), BODY);
  assert.deepEqual(decoder.takeRemaining(), hexBytes("160301"));
  assert.equal(decoder.remainingBytes, 0);
  decoder.feed(utf8Bytes("NOP\n"));
  assert.equal(decoder.next(), LINE);
  assert.equal(decoder.line.verb, Verb.NOP);
});

// Cuts -------------------------------------------------------------------------------------------

const SESSION = concatBytes(
  MAGIC_V2,
  encodeIdentify({ client_id: "é" }),
  utf8Bytes("SUB t c\r\nRDY 5\n\nFIN 0001000000000005\nASDF  x\n"),
  encodePub("t", utf8Bytes("one\ntwo")),
  encodeMpub("t", [utf8Bytes("a"), utf8Bytes("b\n")]),
  encodeDpub("t", 100, utf8Bytes("later")),
  encodePub("t", utf8Bytes("ends in \r")),
  utf8Bytes("\nNOP\nCLS\n"),
);

Deno.test("events are the same for every split point and byte by byte", () => {
  const whole = traceOf(SESSION, []);
  assert.equal(whole.length, 25);
  assert.equal(whole.at(-1), "END between_commands");
  for (let first = 0; first <= SESSION.length; first++) {
    assert.deepEqual(traceOf(SESSION, [first]), whole, `cut at ${first}`);
    const second = Math.min(SESSION.length, first + 3);
    assert.deepEqual(traceOf(SESSION, [first, second]), whole, `cut at ${first} and ${second}`);
  }
  assert.deepEqual(traceOf(SESSION, everyCut(SESSION)), whole);
});

Deno.test("a stream that ends anywhere says where it stood, whole or byte by byte", () => {
  const positions = new Set<string>();
  for (let end = 0; end < SESSION.length; end++) {
    const stream = SESSION.subarray(0, end);
    const whole = traceOf(stream, []);
    assert.deepEqual(traceOf(stream, everyCut(stream)), whole, `ends at ${end}`);
    positions.add(whole.at(-1)!);
  }
  assert.deepEqual([...positions].sort(), [
    "END between_commands",
    "END in_body E_BAD_BODY IDENTIFY failed to read body",
    "END in_body E_BAD_BODY MPUB failed to read message count",
    "END in_body E_BAD_MESSAGE DPUB failed to read message body",
    "END in_body E_BAD_MESSAGE MPUB failed to read message body",
    "END in_body E_BAD_MESSAGE MPUB failed to read message(0) body size",
    "END in_body E_BAD_MESSAGE MPUB failed to read message(1) body size",
    "END in_body E_BAD_MESSAGE PUB failed to read message body",
    "END in_body_size E_BAD_BODY IDENTIFY failed to read body size",
    "END in_body_size E_BAD_BODY MPUB failed to read body size",
    "END in_body_size E_BAD_MESSAGE DPUB failed to read message body size",
    "END in_body_size E_BAD_MESSAGE PUB failed to read message body size",
    "END in_line",
    "END in_magic",
  ]);
});

Deno.test("commands of any content come back from any cuts", () => {
  const body = fc.uint8Array({ minLength: 1, maxLength: 300 });
  fc.assert(fc.property(fc.array(body, { maxLength: 20 }), fc.array(fc.nat()), (bodies, raw) => {
    const stream = concatBytes(MAGIC_V2, ...bodies.map((each) => encodePub("topic", each)));
    const cuts = raw.map((value) => value % (stream.length + 1)).sort((a, b) => a - b);
    const expected = bodies.flatMap((each) => [
      'LINE PUB 1:[topic] "PUB topic"',
      `BODY_SIZE ${each.length}`,
      `BODY ${each.join(",")} of PUB 1:[topic] "PUB topic"`,
    ]);
    assert.deepEqual(traceOf(stream, cuts), ["MAGIC", ...expected, "END between_commands"]);
  }));
});

Deno.test("extendBody() gives the body again with what follows it, wherever the bytes are cut", () => {
  const stream = concatBytes(MAGIC_V2, utf8Bytes("MPUB t\n\0\0\0\x02abcdefNOP\n"));
  for (const cut of everyCut(stream)) {
    const decoder = new CommandDecoder();
    const bodies: string[] = [];
    const lines: string[] = [];
    for (const chunk of [stream.slice(0, cut), stream.slice(cut)]) {
      decoder.feed(chunk);
      let event = decoder.next();
      for (; event !== NEED_MORE; event = decoder.next()) {
        if (event === LINE) {
          lines.push(decoder.line.text());
          if (decoder.line.verb === Verb.MPUB) decoder.expectBody();
        } else if (event === BODY_SIZE) {
          decoder.acceptBody();
        } else if (event === BODY) {
          const { bodyBuffer, bodyStart, bodyEnd } = decoder;
          bodies.push(utf8Text(bodyBuffer, bodyStart, bodyEnd));
          if (decoder.bodySize < 6) decoder.extendBody(decoder.bodySize === 2 ? 3 : 1);
        }
      }
      chunk.fill(0xee);
    }
    assert.deepEqual(bodies, ["ab", "abcde", "abcdef"], `cut at ${cut}`);
    assert.deepEqual(lines, ["MPUB t", "NOP"], `cut at ${cut}`);
  }
});

// Streamed bodies --------------------------------------------------------------------------------

Deno.test("a streamed body comes in pieces without being kept, and the next command follows", () => {
  const decoder = started(concatBytes(utf8Bytes("PUB t\n"), Uint8Array.of(0, 0, 0, 10)));
  assert.equal(decoder.next(), LINE);
  decoder.expectBody();
  assert.equal(decoder.next(), BODY_SIZE);
  decoder.streamBody();
  assert.equal(decoder.next(), NEED_MORE);
  assert.equal(decoder.position, "in_body");
  const seen: string[] = [];
  for (const text of ["ab", "cdefg", "hijNOP\n"]) {
    const chunk = utf8Bytes(text);
    decoder.feed(chunk);
    assert.equal(decoder.next(), BODY_PART);
    assert.equal(decoder.bodyBuffer, chunk);
    seen.push(utf8Text(decoder.bodyBuffer, decoder.bodyStart, decoder.bodyEnd));
    // The line is there until the body is.
    assert.equal(decoder.line.paramText(0), "t");
    if (decoder.bodyBytesLeft > 0) assert.equal(decoder.next(), NEED_MORE);
  }
  assert.deepEqual(seen, ["ab", "cdefg", "hij"]);
  assert.equal(decoder.next(), LINE);
  assert.equal(decoder.line.verb, Verb.NOP);
  assert.ok(decoder.stagedBytes <= 2048, "only the line was kept");
});

Deno.test("streamBody() is only for a size that was just given and is not 0", () => {
  const decoder = started(concatBytes(utf8Bytes("PUB t\n"), Uint8Array.of(0, 0, 0, 0)));
  assert.equal(decoder.next(), LINE);
  assert.throws(() => decoder.streamBody(), InvariantError);
  decoder.expectBody();
  assert.equal(decoder.next(), BODY_SIZE);
  assert.throws(() => decoder.streamBody(), InvariantError);
});
