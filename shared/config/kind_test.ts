import assert from "node:assert/strict";
import fc from "fast-check";
import { type Address, address } from "./address.ts";
import { bytes } from "./bytes.ts";
import { durationMs } from "./duration.ts";
import {
  boolean,
  choice,
  fraction,
  integer,
  type Kind,
  list,
  LIST_VALUES_MAX,
  percentile,
  text,
  TEXT_CHARACTERS_MAX,
} from "./kind.ts";

function parsesTo<T>(kind: Kind<T>, rows: readonly (readonly [given: string, wanted: T])[]) {
  for (const [given, wanted] of rows) {
    assert.deepEqual(kind.parse(given), wanted, JSON.stringify(given));
    assert.deepEqual(kind.parse(kind.show(wanted)), wanted, `shown ${kind.show(wanted)}`);
  }
}

function refuses<T>(kind: Kind<T>, rows: readonly string[]) {
  for (const given of rows) {
    assert.equal(kind.parse(given), undefined, JSON.stringify(given));
    assert.equal(kind.fromDocument(given), undefined, `document ${JSON.stringify(given)}`);
  }
}

Deno.test("durationMs() refuses what is no whole number of milliseconds in bounds", () => {
  refuses(durationMs(), [
    "",
    " ",
    "x",
    "1x",
    "1 s",
    "s",
    ".s",
    "-1s",
    "1.5",
    "1ms2",
    "1e3",
    "0x10",
  ]);
  refuses(durationMs(), [
    "1us",
    "0.5ns",
    "1ms0.5ns",
    "1500us",
    "1.0001ms",
    "1h2",
    "999999h",
    "9".repeat(400),
    "1s\n",
  ]);
  refuses(durationMs({ min: 5, max: 10 }), ["4ms", "11ms", "0"]);
});

Deno.test("durationMs() takes Go's durations and bare milliseconds exactly", () => {
  parsesTo(durationMs(), [
    ["1h2m3s4ms", 3_723_004],
    ["250ms", 250],
    ["1.5s", 1500],
    ["1.001s", 1001],
    ["0.1h", 360_000],
    [".5s", 500],
  ]);
  parsesTo(durationMs(), [["2000us", 2], ["2000\u00b5s", 2], ["3000000ns", 3], ["10m", 600_000]]);
  parsesTo(durationMs(), [["0", 0], ["0s", 0], ["60000", 60_000], ["100m100m", 12_000_000]]);
  assert.equal(durationMs().fromDocument(1500), 1500);
  assert.equal(durationMs().fromDocument("1.5s"), 1500);
  assert.equal(durationMs().fromDocument(1.5), undefined);
});

Deno.test("durationMs() answers /config with integer nanoseconds, beyond what a double holds", () => {
  assert.deepEqual(durationMs().toOption(60_000), { body: "60000000000", json: true });
  assert.equal(durationMs().toOption(315_359_999_999).body, "315359999999000000");
});

Deno.test("durationMs() reads back every value it shows", () => {
  const kind = durationMs();
  fc.assert(fc.property(fc.integer({ min: 0, max: 10 * 365 * 86_400_000 }), (value) => {
    assert.equal(kind.parse(kind.show(value)), value);
  }));
});

Deno.test("bytes() refuses fractions of bytes, unknown units and what is out of bounds", () => {
  refuses(bytes(), [
    "",
    "-1",
    "1.5",
    "0.3KiB",
    "1XB",
    "MiB",
    "1  MiB",
    "1MiBs",
    "1e3",
    "9".repeat(17),
  ]);
  refuses(bytes({ min: 1024, max: 2048 }), ["1023", "3KiB"]);
  refuses(bytes({ powerOfTwo: true }), ["0", "3", "48MiB", "64MB"]);
});

Deno.test("bytes() takes numbers and units of 1000 and 1024", () => {
  parsesTo(bytes(), [
    ["1048576", 1_048_576],
    ["64MiB", 67_108_864],
    ["64 mib", 67_108_864],
    ["5MB", 5_000_000],
    ["1.5KiB", 1536],
    ["2GiB", 2_147_483_648],
    ["1TB", 1e12],
    ["10b", 10],
    ["0", 0],
  ]);
  assert.equal(bytes({ powerOfTwo: true }).parse("64MiB"), 67_108_864);
  assert.equal(bytes().fromDocument(4096), 4096);
  assert.deepEqual(bytes().toOption(1_048_576), { body: "1048576", json: true });
  assert.equal(bytes().show(104_857_600), "100MiB");
  assert.equal(bytes().show(1_000_000), "1000000");
});

Deno.test("address() refuses what names no place to listen on", () => {
  refuses(address(), ["", "4150", "host", "host:", "host:65536", "host:-1", "host:http", "a b:1"]);
  refuses(address(), ["::1:4150", "[::1]", "[host]:1", "http://host:1/", "/tmp/a\nb", "host:1\n"]);
  refuses(address({ use: "connect" }), [":4160", "host:0", "[]:1"]);
});

Deno.test("address() takes hosts, bracketed IPv6, no host, port 0 and socket paths", () => {
  const tcp = (host: string, port: number): Address => ({ transport: "tcp", host, port });
  parsesTo(address(), [
    ["0.0.0.0:4150", tcp("0.0.0.0", 4150)],
    [":4150", tcp("0.0.0.0", 4150)],
    ["127.0.0.1:0", tcp("127.0.0.1", 0)],
    ["sluice-0.sluice.default.svc:4150", tcp("sluice-0.sluice.default.svc", 4150)],
    ["[::1]:4150", tcp("::1", 4150)],
    ["[fe80::1%eth0]:1", tcp("fe80::1%eth0", 1)],
    ["/run/sluice.sock", { transport: "unix", path: "/run/sluice.sock" }],
    ["./s", { transport: "unix", path: "./s" }],
  ]);
  assert.deepEqual(address().toOption(tcp("::1", 1)), { body: "[::1]:1", json: false });
});

Deno.test("text() refuses control characters and more than it holds", () => {
  refuses(text(), ["a\nb", "\u0000", "\u009b", "x".repeat(TEXT_CHARACTERS_MAX + 1)]);
  parsesTo(text(), [["", ""], ["[nsqd] ", "[nsqd] "], ["\u00e9", "\u00e9"]]);
  assert.equal(text().fromDocument(5), undefined);
});

Deno.test("integer() refuses text around the number, fractions and what is out of bounds", () => {
  refuses(integer(), [
    "",
    "1.0",
    "1e3",
    "0x1",
    " 1",
    "1 ",
    "--1",
    "9007199254740993",
    "9".repeat(20),
  ]);
  refuses(integer({ min: 0, max: 1023 }), ["-1", "1024"]);
  parsesTo(integer(), [["0", 0], ["-5", -5], ["+5", 5], ["9007199254740991", 9007199254740991]]);
  assert.equal(integer().fromDocument(1.5), undefined);
  assert.equal(integer({ min: 0, max: 9 }).wanted, "a whole number from 0 to 9");
  assert.equal(integer({ min: 1 }).wanted, "a whole number, at least 1");
});

Deno.test("boolean() takes Go's spellings and nothing else", () => {
  refuses(boolean(), ["", "yes", "no", "on", "2", "truee"]);
  parsesTo(boolean(), [["true", true], ["T", true], ["1", true], ["False", false], ["0", false]]);
  assert.equal(boolean().fromDocument(true), true);
  assert.equal(boolean().fromDocument(1), undefined);
  assert.equal(boolean().bare, "true");
});

Deno.test("choice() takes its words in any case", () => {
  const level = choice(["debug", "info", "warn"]);
  refuses(level, ["", "verbose", "inf", "debug "]);
  parsesTo(level, [["debug", "debug"], ["WARN", "warn"]]);
  assert.deepEqual(choice(["text", "json"]).toOption("text"), { body: "text", json: false });
  assert.equal(choice(["false", "true"]).fromDocument(true), "true");
});

Deno.test("percentile() takes fractions above 0 and at most 1", () => {
  refuses(percentile(), ["", "0", "1.01", "-0.5", "99", "NaN", "Infinity", "1e-1", "0.5."]);
  parsesTo(percentile(), [["0.99", 0.99], [".5", 0.5], ["1", 1], ["1.0", 1]]);
});

Deno.test("fraction() takes what is from 0 to 1", () => {
  refuses(fraction(), ["", "1.01", "-0.5", "NaN", "1e-1"]);
  parsesTo(fraction(), [["0", 0], ["0.01", 0.01], ["1", 1]]);
});

Deno.test("list() refuses the whole list for one bad or empty item, or for too many", () => {
  refuses(list(integer()), ["1,x", "1,,2", ",", "1,"]);
  refuses(list(integer()), [Array(LIST_VALUES_MAX + 1).fill("1").join(",")]);
  assert.equal(list(integer()).fromDocument([1, "x"]), undefined);
  assert.equal(list(integer()).fromDocument(1), undefined);
  assert.equal(list(integer()).fromDocument(Array(LIST_VALUES_MAX + 1).fill(1)), undefined);
});

Deno.test("list() takes commas, arrays and nothing, and answers /config with JSON", () => {
  const addresses = list(address({ use: "connect" }));
  parsesTo(list(integer()), [["1, 2,3", [1, 2, 3]], ["", []], ["7", [7]]]);
  assert.deepEqual(list(integer()).fromDocument([1, 2]), [1, 2]);
  assert.deepEqual(list(integer()).fromDocument("1,2"), [1, 2]);
  assert.deepEqual(list(integer()).toOption([1, 2]), { body: "[1,2]", json: true });
  const two = addresses.parse("a:1,b:2") ?? [];
  assert.deepEqual(addresses.toOption(two), { body: '["a:1","b:2"]', json: true });
  assert.deepEqual(addresses.toOption([]), { body: "[]", json: true });
});
