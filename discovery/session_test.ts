import { deepStrictEqual as equal } from "node:assert/strict";
import {
  encodeLookupIdentify,
  encodeRegister,
  encodeUnregister,
  type LookupPeer,
  MAGIC_V1,
  PING_COMMAND,
} from "@sluice/shared/protocol";
import { Logger } from "@sluice/shared/telemetry";
import { Registry, REGISTRY_LIMITS, type RegistryLimits } from "./registry.ts";
import {
  IDENTIFY_BODY_BYTES_MAX,
  LINE_BYTES_MAX_V1,
  LookupSession,
  SessionCounters,
} from "./session.ts";

const SERVER = {
  broadcastAddress: "lookup",
  hostname: "vm",
  httpPort: 4161,
  tcpPort: 4160,
  version: "1.3.0",
};
const SERVER_JSON =
  '{"broadcast_address":"lookup","hostname":"vm","http_port":4161,"tcp_port":4160,"version":"1.3.0"}';
const BROKER: LookupPeer = {
  broadcastAddress: "broker",
  hostname: "host",
  httpPort: 4151,
  tcpPort: 4150,
  version: "1.3.0",
  topologyRegion: "north",
  topologyZone: "z1",
};
const IDENTIFY = encodeLookupIdentify(BROKER);

function newSession(limits: Partial<RegistryLimits> = {}) {
  const registry = new Registry({
    inactiveTimeoutMs: 300_000,
    tombstoneLifetimeMs: 45_000,
    limits: { ...REGISTRY_LIMITS, ...limits },
  });
  const counters = new SessionCounters();
  const logger = new Logger({ sink: () => {}, clock: { wallMs: () => 0 } });
  const context = { registry, server: SERVER, counters };
  return { session: new LookupSession("1", "10.0.0.1:5", context, logger), registry, counters };
}

function bytesOf(...parts: (string | Uint8Array)[]): Uint8Array {
  const encoder = new TextEncoder();
  const list = parts.map((part) => typeof part === "string" ? encoder.encode(part) : part);
  const whole: number[] = [];
  for (const part of list) whole.push(...part);
  return new Uint8Array(whole);
}

/** Replies as text, each checked for its size field; then "closed" when the session ends. */
function shown(output: { replies: readonly Uint8Array[]; close: boolean }): string[] {
  const texts = output.replies.map((reply) => {
    equal(new DataView(reply.buffer, reply.byteOffset).getInt32(0), reply.length - 4);
    return new TextDecoder().decode(reply.subarray(4));
  });
  return output.close ? [...texts, "closed"] : texts;
}

/** What a new session answers to bytes that come as one. */
function answered(...parts: (string | Uint8Array)[]): string[] {
  return shown(newSession().session.receive(bytesOf(...parts), 0));
}

Deno.test("LookupSession answers PING, IDENTIFY, REGISTER and UNREGISTER", () => {
  const { session, registry, counters } = newSession();
  const input = bytesOf(
    MAGIC_V1,
    PING_COMMAND,
    IDENTIFY,
    encodeRegister("t"),
    encodeRegister("t", "c"),
    encodeRegister("u", "d"),
    encodeUnregister("u", "d"),
    encodeUnregister("u"),
  );
  equal(shown(session.receive(input, 7)), ["OK", SERVER_JSON, "OK", "OK", "OK", "OK", "OK"]);
  equal(registry.nodes(7), [{
    producer: registry.lookup("t", 7)?.[0],
    topics: ["t"],
    tombstones: [false],
  }]);
  const producer = registry.lookup("t", 7)?.[0];
  equal([producer?.remoteAddress, producer?.info], ["10.0.0.1:5", BROKER]);
  equal(registry.channels("t"), ["c"]);
  equal([...counters.commands], [["PING", 1], ["IDENTIFY", 1], ["REGISTER", 3], ["UNREGISTER", 2]]);
});

Deno.test("LookupSession gives the same replies at every split and byte by byte", () => {
  const input = bytesOf(
    MAGIC_V1,
    IDENTIFY,
    "  REGISTER topic chan \r\n",
    PING_COMMAND,
    "UNREGISTER topic chan\n",
    "REGISTER bad$\n",
  );
  const expected = [
    SERVER_JSON,
    "OK",
    "OK",
    "OK",
    "E_BAD_TOPIC REGISTER topic name 'bad$' is not valid",
    "closed",
  ];
  for (let split = 0; split <= input.length; split++) {
    const { session, registry } = newSession();
    const parts = [input.slice(0, split), input.slice(split)];
    equal(parts.flatMap((part) => shown(session.receive(part, 0))).slice(0, 6), expected);
    equal(registry.producerCount, 0);
  }
  const { session } = newSession();
  const texts = [...input].flatMap((byte) => shown(session.receive(new Uint8Array([byte]), 0)));
  equal(texts, expected);
});

Deno.test("LookupSession refuses each bad input with its exact text and closes", () => {
  const cases: [(string | Uint8Array)[], string][] = [
    [["  V2"], "E_BAD_PROTOCOL"],
    [["GET / HTTP/1.1\r\n"], "E_BAD_PROTOCOL"],
    [[MAGIC_V1, "FOO\n"], "E_INVALID invalid command FOO"],
    [[MAGIC_V1, "\n"], "E_INVALID invalid command "],
    [[MAGIC_V1, "ping\n"], "E_INVALID invalid command ping"],
    [[MAGIC_V1, "REGISTER t\n"], "E_INVALID client must IDENTIFY"],
    [[MAGIC_V1, "UNREGISTER\n"], "E_INVALID client must IDENTIFY"],
    [[MAGIC_V1, IDENTIFY, IDENTIFY], "E_INVALID cannot IDENTIFY again"],
    [[MAGIC_V1, IDENTIFY, "REGISTER\n"], "E_INVALID REGISTER insufficient number of params"],
    [[MAGIC_V1, IDENTIFY, "UNREGISTER\n"], "E_INVALID UNREGISTER insufficient number of params"],
    [
      [MAGIC_V1, IDENTIFY, "REGISTER a$\n"],
      "E_BAD_TOPIC REGISTER topic name 'a$' is not valid",
    ],
    [
      [MAGIC_V1, IDENTIFY, "UNREGISTER a c$\n"],
      "E_BAD_CHANNEL UNREGISTER channel name 'c$' is not valid",
    ],
    [
      [MAGIC_V1, "IDENTIFY\n\x00\x00\x00\x01{"],
      "E_BAD_BODY IDENTIFY failed to decode JSON body",
    ],
    [[MAGIC_V1, "IDENTIFY\n\x00\x00\x00\x02{}"], "E_BAD_BODY IDENTIFY missing fields"],
    [
      [MAGIC_V1, "IDENTIFY\n\x00\x00\x20\x01"],
      `E_BAD_BODY IDENTIFY body too big ${
        IDENTIFY_BODY_BYTES_MAX + 1
      } > ${IDENTIFY_BODY_BYTES_MAX}`,
    ],
  ];
  for (const [input, text] of cases) equal(answered(...input).slice(-2), [text, "closed"], text);
});

Deno.test("LookupSession drops a line that is too long without a reply", () => {
  const longest = `REGISTER ${"t".repeat(64)}`.padEnd(LINE_BYTES_MAX_V1 - 1, " ");
  equal(answered(MAGIC_V1, IDENTIFY, `${longest}\n`), [SERVER_JSON, "OK"]);
  equal(answered(MAGIC_V1, IDENTIFY, `${longest} \n`), [SERVER_JSON, "closed"]);
});

Deno.test("LookupSession tells a broker that ends inside IDENTIFY what was missing", () => {
  const cases: [string, string[]][] = [
    ["", ["closed"]],
    ["  V", ["closed"]],
    ["  V1PIN", ["closed"]],
    ["  V1PING\n", ["closed"]],
    ["  V1IDENTIFY\n\x00", ["E_BAD_BODY IDENTIFY failed to read body size", "closed"]],
    ["  V1IDENTIFY\n\x00\x00\x00\x02{", ["E_BAD_BODY IDENTIFY failed to read body", "closed"]],
  ];
  for (const [input, expected] of cases) {
    const { session } = newSession();
    session.receive(bytesOf(input), 0);
    equal(shown(session.endOfStream()), expected, input);
    equal(shown(session.endOfStream()), ["closed"], input);
  }
});

Deno.test("LookupSession answers nothing after its last word", () => {
  const { session, counters } = newSession();
  equal(shown(session.receive(bytesOf(MAGIC_V1, "FOO\n", PING_COMMAND), 0)).length, 2);
  equal(shown(session.receive(bytesOf(PING_COMMAND), 0)), ["closed"]);
  equal([...counters.errors], [["E_INVALID", 1]]);
});

Deno.test("LookupSession counts IDENTIFY and PING as signs of life, but not REGISTER", () => {
  const { session, registry } = newSession();
  session.receive(bytesOf(MAGIC_V1, IDENTIFY, encodeRegister("t")), 1_000);
  session.receive(bytesOf(encodeRegister("t", "c")), 200_000);
  equal(registry.nodes(301_000).length, 1);
  equal(registry.nodes(301_001).length, 0);
  session.receive(bytesOf(PING_COMMAND), 301_001);
  equal(registry.nodes(601_001).length, 1);
});

Deno.test("LookupSession takes its registrations back when it closes, however it closes", () => {
  for (const how of ["close", "end", "error"]) {
    const { session, registry } = newSession();
    session.receive(bytesOf(MAGIC_V1, IDENTIFY, encodeRegister("t", "c")), 0);
    equal(registry.producerCount, 1);
    if (how === "close") session.close();
    else if (how === "end") session.endOfStream();
    else session.receive(bytesOf("FOO\n"), 0);
    session.close();
    equal([registry.producerCount, registry.registrationCount], [0, 0], how);
    equal(registry.channels("t"), ["c"], how);
  }
});

Deno.test("LookupSession refuses what the registry has no room for", () => {
  const cases: [Partial<RegistryLimits>, string][] = [
    [{ producersMax: 0 }, "E_INVALID IDENTIFY limit reached: at most 0 producers"],
    [{ topicsMax: 0 }, "E_INVALID REGISTER limit reached: at most 0 topics"],
    [{ channelsPerTopicMax: 0 }, "E_INVALID REGISTER limit reached: at most 0 channels per topic"],
    [{ channelsMax: 0 }, "E_INVALID REGISTER limit reached: at most 0 channels"],
    [{ registrationsMax: 1 }, "E_INVALID REGISTER limit reached: at most 1 registrations"],
    [
      { registrationsPerProducerMax: 1 },
      "E_INVALID REGISTER limit reached: at most 1 registrations per producer",
    ],
  ];
  for (const [limits, text] of cases) {
    const { session, registry } = newSession(limits);
    const output = session.receive(bytesOf(MAGIC_V1, IDENTIFY, encodeRegister("t", "c")), 0);
    equal(shown(output).slice(-2), [text, "closed"]);
    equal(registry.producerCount, 0);
  }
});
