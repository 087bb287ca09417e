import { deepStrictEqual as equal, ok, throws } from "node:assert/strict";
import { utf8Bytes } from "../protocol/mod.ts";
import { EventStreamError, EventStreamParser, type StreamEvent } from "./event_stream.ts";

/** The events in pieces of a stream, as `name=data`. */
function parse(pieces: readonly Uint8Array[], bytesMax?: number): string[] {
  const parser = new EventStreamParser(bytesMax);
  const events: StreamEvent[] = [];
  for (const piece of pieces) parser.feed(piece, (event) => events.push(event));
  return events.map(({ name, data }) => `${name}=${data}`);
}

const STREAM = '\ufeffevent: added\nid: 7\ndata: {"a":"ä€😀"}\n\n: still here\n\n' +
  "event:crlf\r\ndata: one\r\ndata:two\r\ndata\r\n\r\nevent: cr\rdata:  spaced\r\rid: 8\n\n" +
  "data: unnamed\nretry: 5\nunknown: x\n\nevent: no data\n\ndata: cut off\n";
const EVENTS = ['added={"a":"ä€😀"}', "crlf=one\ntwo\n", "cr= spaced", "message=unnamed"];

Deno.test("EventStreamParser reads a stream alike however it is cut: whole, at every byte, and byte by byte", () => {
  const bytes = utf8Bytes(STREAM);
  equal(parse([bytes]), EVENTS);
  for (let cut = 0; cut <= bytes.length; cut++) {
    equal(parse([bytes.subarray(0, cut), bytes.subarray(cut)]), EVENTS, `cut at ${cut}`);
  }
  equal(parse(Array.from(bytes, (byte) => Uint8Array.of(byte))), EVENTS);
  for (let size = 2; size < 20; size++) {
    const pieces: Uint8Array[] = [];
    for (let at = 0; at < bytes.length; at += size) pieces.push(bytes.slice(at, at + size));
    equal(parse(pieces), EVENTS, `pieces of ${size}`);
  }
});

Deno.test("EventStreamParser drops a byte order mark at the beginning and nowhere else", () => {
  equal(parse([utf8Bytes("\ufeff\ndata: a\n\n")]), ["message=a"]);
  equal(parse([utf8Bytes(":\n\ufeffdata: a\n\ndata: \ufeffb\n\n")]), ["message=\ufeffb"]);
});

Deno.test("EventStreamParser gives no event for what is cut off, empty, or only a comment", () => {
  for (const text of ["", "\n\n\r\r\n", "data: a", "data: a\n", ":data: a\n\n", "event: a\n\n"]) {
    equal(parse([utf8Bytes(text)]), []);
  }
});

Deno.test("EventStreamParser takes an event of exactly the bytes allowed, and says so beyond", () => {
  const line = "data: 456789";
  const refused = /^EventStreamError: (a line|an event) has more than 12 bytes$/;
  for (const isCut of [false, true]) {
    const pieces = (text: string) =>
      isCut ? Array.from(utf8Bytes(text), (byte) => Uint8Array.of(byte)) : [utf8Bytes(text)];
    equal(parse(pieces(`${line}\n\n`), 12), ["message=456789"]);
    for (const text of [`${line}0\n\n`, `${line}\ndata:\n\n`, `:${line}`, "x".repeat(13)]) {
      throws(() => parse(pieces(text), 12), refused, text);
    }
  }
});

Deno.test("EventStreamParser gives out what was whole before an event that is too large, and nothing after", () => {
  const parser = new EventStreamParser(20);
  const names: string[] = [];
  const take = ({ name }: StreamEvent) => names.push(name);
  const stream = utf8Bytes(`event: a\ndata: x\n\ndata: ${"y".repeat(20)}\n\nevent: b\ndata: x\n\n`);
  throws(() => parser.feed(stream, take), EventStreamError);
  throws(() => parser.feed(utf8Bytes("\n\nevent: c\ndata: x\n\n"), take), {
    code: "event_too_large",
  });
  equal(names, ["a"]);
});

Deno.test("EventStreamParser reads 4 MiB that come byte by byte, or as empty lines, in little time", () => {
  const large = "z".repeat(4 * 2 ** 20 - 6);
  const byte = new Uint8Array(1);
  const parser = new EventStreamParser();
  let bytes = 0;
  for (const code of utf8Bytes(`data: ${large}\n\n`)) {
    byte[0] = code;
    parser.feed(byte, ({ data }) => bytes += data.length);
  }
  equal(bytes, large.length);
  const sinceMs = performance.now();
  parser.feed(utf8Bytes("\r".repeat(2 ** 20)), () => {});
  parser.feed(utf8Bytes("\n".repeat(2 ** 20)), () => {});
  ok(performance.now() - sinceMs < 5_000);
});
