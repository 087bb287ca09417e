import assert from "node:assert/strict";
import fc from "fast-check";
import { type BlockDecoder, BlockEvent } from "./block_decoder.ts";
import { concatBytes, utf8Bytes, utf8Text } from "./bytes.ts";
import { CommandDecoder, CommandEvent } from "./command_decoder.ts";
import { hexBytes, lineOf, refusalOf } from "./decode_test_trace.ts";
import { ProtocolError } from "./error_code.ts";
import {
  checkLookupBodySize,
  checkRegistration,
  createLookupReplyDecoder,
  decodeLookupIdentify,
  decodeLookupReply,
  encodeLookupError,
  encodeLookupIdentify,
  encodeLookupIdentifyReply,
  encodeLookupReply,
  encodeRegister,
  encodeUnregister,
  identifyAgain,
  LOOKUP_BODY_BYTES_MAX,
  LOOKUP_OK_REPLY,
  lookupEndOfStreamError,
  type LookupPeer,
  lookupReplyText,
  MAGIC_V1,
  mustIdentify,
  PING_COMMAND,
  registrationChannel,
} from "./lookup_protocol.ts";
import { unknownCommand } from "./session_commands.ts";
import { Verb } from "./verb.ts";

const PEER: LookupPeer = {
  broadcastAddress: "broker-1",
  hostname: "h",
  httpPort: 4151,
  tcpPort: 4150,
  version: "1.3.0",
  topologyZone: "z",
  topologyRegion: "r",
};

/** The commands of a V1 stream cut at `cuts`, bodies included. */
function commandsOf(stream: Uint8Array, cuts: readonly number[]): string[] {
  const decoder = new CommandDecoder({ protocol: "V1" });
  const seen: string[] = [];
  let start = 0;
  for (const end of [...cuts, stream.length]) {
    const chunk = stream.slice(start, end);
    decoder.feed(chunk);
    for (let event = decoder.next(); event !== CommandEvent.NEED_MORE; event = decoder.next()) {
      if (event === CommandEvent.LINE) {
        seen.push(decoder.line.text());
        if (decoder.line.verb === Verb.IDENTIFY) decoder.expectBody();
      } else if (event === CommandEvent.BODY_SIZE) {
        decoder.acceptBody();
      } else if (event === CommandEvent.BODY) {
        seen.push(utf8Text(decoder.bodyBuffer, decoder.bodyStart, decoder.bodyEnd));
      } else {
        seen.push(`event ${event}`);
      }
    }
    chunk.fill(0xee);
    start = end;
  }
  return seen;
}

Deno.test("commands are encoded as brokers send them and decoded from any cut", () => {
  const stream = concatBytes(
    MAGIC_V1,
    encodeLookupIdentify(PEER),
    encodeRegister("t"),
    encodeRegister("t", "c#ephemeral"),
    PING_COMMAND,
    encodeUnregister("t", "c#ephemeral"),
    encodeUnregister("t"),
  );
  const whole = commandsOf(stream, []);
  assert.deepEqual(whole, [
    `event ${CommandEvent.MAGIC}`,
    "IDENTIFY",
    '{"broadcast_address":"broker-1","hostname":"h","http_port":4151,"tcp_port":4150,' +
    '"version":"1.3.0","topology_zone":"z","topology_region":"r"}',
    "REGISTER t",
    "REGISTER t c#ephemeral",
    "PING",
    "UNREGISTER t c#ephemeral",
    "UNREGISTER t",
  ]);
  for (let cut = 0; cut <= stream.length; cut++) assert.deepEqual(commandsOf(stream, [cut]), whole);
  const everywhere = Array.from({ length: stream.length }, (_, index) => index);
  assert.deepEqual(commandsOf(stream, everywhere), whole);
});

Deno.test("encoders refuse names that would become another command", () => {
  assert.throws(() => encodeRegister("t c"), TypeError);
  assert.throws(() => encodeRegister("t", "c\nPING"), TypeError);
  assert.throws(() => encodeUnregister(""), TypeError);
});

Deno.test("registrations are refused with the exact text, names in single quotes", () => {
  const cases: [string, string][] = [
    ["REGISTER", "E_INVALID REGISTER insufficient number of params"],
    ["REGISTER a$", "E_BAD_TOPIC REGISTER topic name 'a$' is not valid"],
    ["REGISTER a$ c$", "E_BAD_TOPIC REGISTER topic name 'a$' is not valid"],
    ["REGISTER t c$", "E_BAD_CHANNEL REGISTER channel name 'c$' is not valid"],
    ["UNREGISTER", "E_INVALID UNREGISTER insufficient number of params"],
    ["UNREGISTER a$", "E_BAD_TOPIC UNREGISTER topic name 'a$' is not valid"],
    ["UNREGISTER t c$", "E_BAD_CHANNEL UNREGISTER channel name 'c$' is not valid"],
  ];
  for (const [text, refusal] of cases) {
    const line = lineOf(text, "V1");
    const verb = text.startsWith("UN") ? Verb.UNREGISTER : Verb.REGISTER;
    assert.equal(line.verb, verb);
    assert.equal(refusalOf(checkRegistration(verb, line)), refusal, text);
  }
});

Deno.test("a registration has a topic and maybe a channel; an empty channel is none", () => {
  const cases: [string, string][] = [
    ["REGISTER t", ""],
    ["REGISTER t ", ""],
    ["REGISTER t  x", ""],
    ["REGISTER t c", "c"],
    ["  REGISTER t c surplus \r", "c"],
  ];
  for (const [text, channel] of cases) {
    const line = lineOf(text, "V1");
    assert.equal(checkRegistration(Verb.REGISTER, line), undefined, text);
    assert.equal(line.paramText(0), "t");
    assert.equal(registrationChannel(line), channel, text);
  }
});

Deno.test("the other errors have the exact texts", () => {
  const tooBig = LOOKUP_BODY_BYTES_MAX + 1;
  const cases: [unknown, string][] = [
    [identifyAgain(), "E_INVALID cannot IDENTIFY again"],
    [mustIdentify(), "E_INVALID client must IDENTIFY"],
    [unknownCommand(lineOf("FOO x", "V1")), "E_INVALID invalid command FOO"],
    [unknownCommand(lineOf("PUB t", "V1")), "E_INVALID invalid command PUB"],
    [lookupEndOfStreamError("in_body_size"), "E_BAD_BODY IDENTIFY failed to read body size"],
    [lookupEndOfStreamError("in_body"), "E_BAD_BODY IDENTIFY failed to read body"],
    [checkLookupBodySize(tooBig), `E_BAD_BODY IDENTIFY body too big ${tooBig} > 65536`],
    [checkLookupBodySize(-1), "E_BAD_BODY IDENTIFY invalid body size -1"],
  ];
  for (const [error, text] of cases) assert.equal(refusalOf(error), text);
  assert.equal(lookupEndOfStreamError("in_line"), undefined);
  assert.equal(checkLookupBodySize(0), undefined);
  assert.equal(checkLookupBodySize(LOOKUP_BODY_BYTES_MAX), undefined);
  assert.deepEqual(
    encodeLookupError(mustIdentify()),
    concatBytes(hexBytes("0000001e"), utf8Bytes("E_INVALID client must IDENTIFY")),
  );
});

Deno.test("an IDENTIFY of bad JSON or with fields missing is refused", () => {
  const whole = { broadcast_address: "b", tcp_port: 1, http_port: 2, version: "v" };
  const badJson = "E_BAD_BODY IDENTIFY failed to decode JSON body";
  const missing = "E_BAD_BODY IDENTIFY missing fields";
  const cases: [string, string][] = [
    ["", badJson],
    ["[]", badJson],
    [JSON.stringify({ ...whole, tcp_port: "4150" }), badJson],
    [JSON.stringify({ ...whole, tcp_port: 1.5 }), badJson],
    [JSON.stringify({ ...whole, hostname: 1 }), badJson],
    ["{}", missing],
    ["null", missing],
    [JSON.stringify({ ...whole, broadcast_address: "" }), missing],
    [JSON.stringify({ ...whole, tcp_port: 0 }), missing],
    [JSON.stringify({ ...whole, http_port: null }), missing],
    [JSON.stringify({ ...whole, version: "" }), missing],
  ];
  for (const [body, text] of cases) {
    assert.equal(refusalOf(decodeLookupIdentify(utf8Bytes(body))), text, body);
  }
});

Deno.test("an IDENTIFY comes back as it was sent; hostname and topology may be absent", () => {
  const command = encodeLookupIdentify(PEER);
  assert.deepEqual(decodeLookupIdentify(command, "IDENTIFY\n".length + 4), PEER);
  const least = '{"broadcast_address":"b","tcp_port":1,"http_port":-1,"version":"v"}';
  const peer = decodeLookupIdentify(utf8Bytes(least));
  assert.ok(!(peer instanceof ProtocolError));
  assert.deepEqual([peer.hostname, peer.topologyZone, peer.httpPort], ["", "", -1]);
});

// Replies ----------------------------------------------------------------------------------------

function repliesOf(stream: Uint8Array, cuts: readonly number[], decoder: BlockDecoder): string[] {
  const seen: string[] = [];
  let start = 0;
  for (const end of [...cuts, stream.length]) {
    const chunk = stream.slice(start, end);
    decoder.feed(chunk);
    let event = decoder.next();
    for (; event === BlockEvent.BLOCK; event = decoder.next()) seen.push(lookupReplyText(decoder));
    if (event === BlockEvent.BAD_SIZE) return [...seen, `BAD_SIZE ${decoder.size}`];
    chunk.fill(0xee);
    start = end;
  }
  return seen;
}

Deno.test("replies come back from any cuts", () => {
  fc.assert(
    fc.property(fc.array(fc.string({ unit: "grapheme" })), fc.array(fc.nat()), (texts, raw) => {
      const stream = concatBytes(...texts.map(encodeLookupReply));
      const cuts = raw.map((value) => value % (stream.length + 1)).sort((a, b) => a - b);
      assert.deepEqual(repliesOf(stream, cuts, createLookupReplyDecoder(10_000)), texts);
    }),
  );
});

Deno.test("a reply of a size out of bounds is refused for good", () => {
  const cases: [string, string][] = [["ffffffff", "BAD_SIZE -1"], ["00000065", "BAD_SIZE 101"]];
  for (const [hex, outcome] of cases) {
    const decoder = createLookupReplyDecoder(100);
    const stream = concatBytes(LOOKUP_OK_REPLY, hexBytes(hex), utf8Bytes("x"));
    assert.deepEqual(repliesOf(stream, [8], decoder), ["OK", outcome]);
    assert.equal(decoder.next(), BlockEvent.BAD_SIZE);
  }
});

Deno.test("a reply to IDENTIFY tells who discovery is; anything else does not", () => {
  const { topologyZone: _zone, topologyRegion: _region, ...server } = PEER;
  assert.deepEqual(decodeLookupReply(encodeLookupIdentifyReply(server), 4), server);
  for (const text of ["OK", "E_INVALID client must IDENTIFY", "[]", '{"http_port":"x"}']) {
    assert.equal(decodeLookupReply(utf8Bytes(text)), undefined, text);
  }
});
