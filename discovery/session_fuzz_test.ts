/**
 * Any stream at discovery's TCP door, however it is cut: the same answers, each a whole frame, none
 * after the end, and nothing of it is left in the registry when the connection is gone.
 */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { encodeLookupIdentify, MAGIC_V1, PING_COMMAND, utf8Bytes } from "@sluice/shared/protocol";
import { Logger } from "@sluice/shared/telemetry";
import { fuzz, SeededRandom } from "@sluice/shared/testing";
import { Registry, REGISTRY_LIMITS } from "./registry.ts";
import { LookupSession, SessionCounters } from "./session.ts";

const SERVER = {
  broadcastAddress: "lookup",
  hostname: "vm",
  httpPort: 4161,
  tcpPort: 4160,
  version: "1.3.0",
};
const IDENTIFY = encodeLookupIdentify({
  ...SERVER,
  topologyRegion: "north",
  topologyZone: "z1",
});
const NAMES = ["t", "u", "t#ephemeral", "", "a b", "x".repeat(65)];

fuzz({
  name: "lookup-session",
  corpus: new URL("testdata/fuzz/session/", import.meta.url),
  words: [
    "  V1",
    "  V2",
    "IDENTIFY\n",
    "REGISTER ",
    "UNREGISTER ",
    "PING\n",
    "t c\n",
    "\r\n",
    "\xff\xff\xff\xff",
    "{}",
    "__proto__",
    "x".repeat(2000),
  ],
  fresh: (random) => {
    const parts = Array.from({ length: random.below(8) }, () => {
      const [topic, channel] = [random.pick(NAMES), random.pick([...NAMES, undefined])];
      switch (random.below(5)) {
        case 0:
          return IDENTIFY;
        case 1:
        case 2: {
          const verb = random.pick(["REGISTER", "UNREGISTER"]);
          return utf8Bytes(`${verb} ${topic}${channel === undefined ? "" : ` ${channel}`}\n`);
        }
        case 3:
          return PING_COMMAND;
        default:
          return random.bytes(random.below(30));
      }
    });
    return joined(MAGIC_V1, ...(random.chance(0.8) ? [IDENTIFY] : []), ...parts);
  },
  cases: 1000,
  check: (input) => {
    const random = new SeededRandom(String.fromCharCode(...input));
    const whole = answers(input, [input.length]);
    const cuts = Array.from({ length: random.below(6) }, () => random.between(0, input.length));
    equal(answers(input, [...cuts.sort((a, b) => a - b), input.length]), whole);
    equal(answers(input, Array.from({ length: input.length }, (_, index) => index + 1)), whole);
  },
});

/** All that is answered to the stream, with its end, when it comes in pieces that end at `ends`. */
function answers(input: Uint8Array, ends: readonly number[]): string {
  const registry = new Registry({
    inactiveTimeoutMs: 300_000,
    tombstoneLifetimeMs: 45_000,
    limits: { ...REGISTRY_LIMITS, topicsMax: 3 },
  });
  const logger = new Logger({ sink: () => {}, clock: { wallMs: () => 0 } });
  const context = { registry, server: SERVER, counters: new SessionCounters() };
  const session = new LookupSession("1", "10.0.0.1:5", context, logger);
  let text = "";
  let closed = false;
  const take = ({ replies, close }: ReturnType<LookupSession["receive"]>) => {
    ok(!closed || replies.length === 0, "nothing is said after the end");
    for (const reply of replies) {
      equal(new DataView(reply.buffer, reply.byteOffset).getInt32(0), reply.length - 4);
      text += new TextDecoder().decode(reply.subarray(4)) + "\n";
    }
    closed ||= close;
  };
  let start = 0;
  for (const end of ends) {
    const piece = input.slice(start, end);
    take(session.receive(piece, 0));
    piece.fill(0xee);
    start = end;
  }
  take(session.endOfStream());
  equal(registry.nodes(0), []);
  return text;
}

function joined(...parts: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(parts.flatMap((part) => [...part]));
}
