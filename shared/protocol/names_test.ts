import assert from "node:assert/strict";
import fc from "fast-check";
import { concatBytes, utf8Bytes } from "./bytes.ts";
import {
  goQuote,
  goQuoteBytes,
  isEphemeral,
  isEphemeralBytes,
  isValidName,
  isValidNameBytes,
  nameText,
} from "./names.ts";

const VALID = [
  "a",
  "test",
  "test-with_period.",
  "test#ephemeral",
  "A.b_c-9",
  ".",
  "x".repeat(64),
  "x".repeat(54) + "#ephemeral",
];
const INVALID = [
  "",
  "#ephemeral",
  "test:ephemeral",
  "a b",
  "a$",
  "a\n",
  "a#",
  "a#ephemera",
  "a#ephemeralx",
  "a#ephemeral#ephemeral",
  "a#EPHEMERAL",
  "é",
  "x".repeat(65),
  "x".repeat(55) + "#ephemeral",
];

Deno.test("isValidName() accepts exactly the names of the contract, as text and as bytes", () => {
  for (const name of [...VALID, ...INVALID]) {
    const bytes = utf8Bytes(`/${name}/`);
    assert.equal(isValidName(name), VALID.includes(name), name);
    assert.equal(isValidNameBytes(bytes, 1, bytes.length - 1), VALID.includes(name), name);
  }
});

Deno.test("isValidName() and isValidNameBytes() never differ", () => {
  const piece = fc.constantFrom("a", ".", "-", "_", "9", "#ephemeral", "#", " ", "$", "\u00e9");
  fc.assert(fc.property(fc.array(piece, { maxLength: 70 }), (pieces) => {
    const name = pieces.join("");
    const bytes = utf8Bytes(name);
    assert.equal(isValidNameBytes(bytes, 0, bytes.length), isValidName(name));
  }));
});

Deno.test("isEphemeral() looks at the suffix, as text and as bytes", () => {
  for (const name of VALID) {
    const bytes = utf8Bytes(`#ephemeral${name}`);
    assert.equal(isEphemeral(name), name.endsWith("#ephemeral"));
    assert.equal(isEphemeralBytes(bytes, 10, bytes.length), name.endsWith("#ephemeral"), name);
    assert.equal(nameText(bytes, 10, bytes.length), name);
  }
});

Deno.test("goQuote() escapes as Go does", () => {
  const cases: [string, string][] = [
    ["", '""'],
    ["a b", '"a b"'],
    ['say "hi"\\', '"say \\"hi\\"\\\\"'],
    ["\x07\b\f\n\r\t\v", '"\\a\\b\\f\\n\\r\\t\\v"'],
    ["\x00\x1b\x7f", '"\\x00\\x1b\\x7f"'],
    ["é漢😀", '"é漢😀"'],
    ["\u0085\u00a0\u200b\u2028", '"\\u0085\\u00a0\\u200b\\u2028"'],
    ["\ue000", '"\\ue000"'],
    ["\u{e0001}", '"\\U000e0001"'],
    ["\ufffd", '"\ufffd"'],
  ];
  for (const [text, quoted] of cases) assert.equal(goQuote(text), quoted);
});

Deno.test("goQuoteBytes() writes bytes that are not UTF-8 as \\x", () => {
  const cases: [number[], string][] = [
    [[0xff], '"\\xff"'],
    [[0x80], '"\\x80"'],
    [[0x61, 0xc3], '"a\\xc3"'],
    [[0xc3, 0x28], '"\\xc3("'],
    [[0xc0, 0x80], '"\\xc0\\x80"'],
    [[0xe0, 0x80, 0x80], '"\\xe0\\x80\\x80"'],
    [[0xed, 0xa0, 0x80], '"\\xed\\xa0\\x80"'],
    [[0xf0, 0x80, 0x80, 0x80], '"\\xf0\\x80\\x80\\x80"'],
    [[0xf4, 0x90, 0x80, 0x80], '"\\xf4\\x90\\x80\\x80"'],
    [[0xf5, 0x80, 0x80, 0x80], '"\\xf5\\x80\\x80\\x80"'],
  ];
  for (const [bytes, quoted] of cases) assert.equal(goQuoteBytes(Uint8Array.from(bytes)), quoted);
});

Deno.test("goQuoteBytes() stops at the end of its range", () => {
  const bytes = concatBytes(utf8Bytes("x"), Uint8Array.of(0xc3, 0xa9));
  assert.equal(goQuoteBytes(bytes, 0, 2), '"x\\xc3"');
});
