import assert from "node:assert/strict";
import fc from "fast-check";
import { InvariantError } from "../runtime/invariant.ts";
import { utf8Bytes, writeInt32 } from "./bytes.ts";
import { hexBytes } from "./decode_test_trace.ts";
import { encodeMpubBody, MpubScanner } from "./mpub.ts";

const LIMITS = { messageBytesMax: 100, bodyBytesMax: 1000 };

/** The refusal of a whole body, seen at once and byte by byte; both must agree. */
function refusalOf(body: Uint8Array, limits = LIMITS): string | undefined {
  const scanner = new MpubScanner(limits);
  scanner.begin(body.length);
  const whole = scanner.check(body, 0, body.length)?.text;
  scanner.begin(body.length);
  let piecewise: string | undefined;
  const shifted = new Uint8Array(body.length + 3);
  shifted.set(body, 3);
  for (let end = 0; end <= body.length; end++) piecewise = scanner.check(shifted, 3, 3 + end)?.text;
  assert.equal(piecewise, whole);
  return whole;
}

function sizes(...values: number[]): Uint8Array {
  const bytes = new Uint8Array(4 * values.length);
  values.forEach((value, index) => writeInt32(bytes, 4 * index, value));
  return bytes;
}

Deno.test("a bad body is refused with the exact text, however it arrives", () => {
  const ones = (count: number) => new Array<Uint8Array>(count).fill(utf8Bytes("x"));
  const sixth = encodeMpubBody([...ones(5), new Uint8Array(0)]);
  const cases: [string, Uint8Array, string][] = [
    ["count cut", hexBytes("000000"), "E_BAD_BODY MPUB failed to read message count"],
    ["count 0", sizes(0), "E_BAD_BODY MPUB invalid message count 0"],
    ["count -1", sizes(-1), "E_BAD_BODY MPUB invalid message count -1"],
    ["count 200", sizes(200), "E_BAD_BODY MPUB invalid message count 200"],
    ["no size", sizes(1), "E_BAD_MESSAGE MPUB failed to read message(0) body size"],
    [
      "size cut",
      hexBytes("00000001 0000"),
      "E_BAD_MESSAGE MPUB failed to read message(0) body size",
    ],
    ["size 0", sizes(1, 0), "E_BAD_MESSAGE MPUB invalid message(0) body size 0"],
    ["size -5", sizes(1, -5), "E_BAD_MESSAGE MPUB invalid message(0) body size -5"],
    ["sixth empty", sixth, "E_BAD_MESSAGE MPUB invalid message(5) body size 0"],
    ["too big", sizes(1, 101), "E_BAD_MESSAGE MPUB message too big 101 > 100"],
    ["body missing", sizes(1, 5), "E_BAD_MESSAGE MPUB failed to read message body"],
    [
      "body cut",
      hexBytes("00000001 00000005 61626364"),
      "E_BAD_MESSAGE MPUB failed to read message body",
    ],
    [
      "second size cut",
      hexBytes("00000002 00000001 61 000000"),
      "E_BAD_MESSAGE MPUB failed to read message(1) body size",
    ],
    [
      "a byte to spare",
      hexBytes("00000001 00000001 61 62"),
      "E_BAD_BODY MPUB body size 10 does not match its messages",
    ],
    [
      "a message to spare",
      hexBytes("00000001 00000001 61 00000001 62"),
      "E_BAD_BODY MPUB body size 14 does not match its messages",
    ],
  ];
  for (const [name, body, text] of cases) assert.equal(refusalOf(body), text, name);
});

Deno.test("the count may be as high as one-byte messages would fit", () => {
  const limits = { messageBytesMax: 100, bodyBytesMax: 24 };
  assert.equal(
    refusalOf(encodeMpubBody(new Array<Uint8Array>(4).fill(Uint8Array.of(1))), limits),
    undefined,
  );
  assert.equal(refusalOf(sizes(5), limits), "E_BAD_BODY MPUB invalid message count 5");
});

Deno.test("a refusal is found as soon as its bytes are here and stays", () => {
  const scanner = new MpubScanner(LIMITS);
  const body = new Uint8Array(500);
  body.set(sizes(3, 101));
  scanner.begin(body.length);
  assert.equal(scanner.check(body, 0, 7), undefined);
  const refusal = scanner.check(body, 0, 8);
  assert.equal(refusal?.text, "E_BAD_MESSAGE MPUB message too big 101 > 100");
  assert.equal(scanner.check(body, 0, 500), refusal);
  assert.equal(scanner.endOfStream(), refusal);
});

Deno.test("a body that overruns or leaves bytes is refused before all of it is here", () => {
  const scanner = new MpubScanner(LIMITS);
  scanner.begin(20);
  assert.equal(
    scanner.check(sizes(1, 13), 0, 8)?.text,
    "E_BAD_MESSAGE MPUB failed to read message body",
  );
  scanner.begin(20);
  assert.equal(
    scanner.check(sizes(1, 11), 0, 8)?.text,
    "E_BAD_BODY MPUB body size 20 does not match its messages",
  );
});

Deno.test("a body that may be longer than announced tells what it lacks, until it has it", () => {
  fc.assert(fc.property(
    fc.array(fc.uint8Array({ minLength: 1, maxLength: 20 }), { minLength: 1, maxLength: 8 }),
    fc.double({ min: 0, max: 1, noNaN: true }),
    (list, share) => {
      const body = encodeMpubBody(list);
      const scanner = new MpubScanner(LIMITS);
      let known = 1 + Math.floor(share * (body.length - 1));
      scanner.begin(known, true);
      for (let steps = 0; known < body.length; steps++) {
        assert.ok(steps <= 2 * list.length + 1);
        assert.equal(scanner.check(body, 0, known), undefined);
        assert.ok(scanner.missingBytes > 0 && known + scanner.missingBytes <= body.length);
        known += scanner.missingBytes;
        scanner.extend();
      }
      assert.equal(scanner.check(body, 0, known), undefined);
      assert.equal(scanner.missingBytes, 0);
      scanner.rewind();
      assert.equal(scanner.messageCount, list.length);
    },
  ));
});

Deno.test("a body that may be longer is refused beyond the limit of a body, and when it ends early", () => {
  const scanner = new MpubScanner({ messageBytesMax: 100, bodyBytesMax: 60 });
  scanner.begin(4, true);
  assert.equal(scanner.check(sizes(1, 80), 0, 4), undefined);
  scanner.extend();
  assert.equal(scanner.check(sizes(1, 80), 0, 8)?.text, "E_BAD_BODY MPUB body too big 88 > 60");
  scanner.begin(10, true);
  assert.equal(scanner.check(sizes(1, 20), 0, 8), undefined);
  assert.equal(scanner.endOfStream().text, "E_BAD_MESSAGE MPUB failed to read message body");
});

Deno.test("messages come back in order without their sizes, from any place of a buffer", () => {
  const bodies = fc.array(fc.uint8Array({ minLength: 1, maxLength: 40 }), {
    minLength: 1,
    maxLength: 20,
  });
  const scanner = new MpubScanner(LIMITS);
  fc.assert(fc.property(bodies, fc.nat(10), (list, start) => {
    const body = encodeMpubBody(list);
    const buffer = new Uint8Array(start + body.length + 5).fill(0xff);
    buffer.set(body, start);
    scanner.begin(body.length);
    assert.equal(scanner.check(buffer, start, start + body.length), undefined);
    assert.equal(scanner.messageCount, list.length);
    for (let round = 0; round < 2; round++) {
      scanner.rewind();
      const seen: Uint8Array[] = [];
      while (scanner.nextMessage(buffer, start)) {
        seen.push(buffer.slice(scanner.messageStart, scanner.messageEnd));
      }
      assert.deepEqual(seen, list);
    }
  }));
});

Deno.test("a body that was not checked whole is not walked", () => {
  const scanner = new MpubScanner(LIMITS);
  const body = encodeMpubBody([utf8Bytes("a"), utf8Bytes("b")]);
  scanner.begin(body.length);
  assert.throws(() => scanner.rewind(), InvariantError);
  scanner.check(body, 0, 6);
  assert.throws(() => scanner.rewind(), InvariantError);
  assert.throws(() => scanner.check(new Uint8Array(99), 0, 99), InvariantError);
});
