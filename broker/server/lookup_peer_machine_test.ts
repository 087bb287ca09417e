import { deepStrictEqual as equal, match } from "node:assert/strict";
import {
  encodeLookupIdentify,
  encodeLookupIdentifyReply,
  encodeLookupReply,
  LOOKUP_OK_REPLY,
} from "@sluice/shared/protocol";
import { SeededRandom } from "@sluice/shared/testing";
import {
  BATCH_COMMANDS_MAX,
  CHANGES_MAX,
  LookupPeerMachine,
  type PeerEffect,
  PING_INTERVAL_MS,
  REPLY_BYTES_MAX,
  REPLY_TIMEOUT_MS,
  RETRY_DELAY_MS_MAX,
  RETRY_DELAY_MS_MIN,
} from "./lookup_peer_machine.ts";

const IDENTITY = {
  broadcastAddress: "broker",
  hostname: "vm",
  httpPort: 4151,
  tcpPort: 4150,
  version: "1.3.0",
  topologyRegion: "r",
  topologyZone: "z",
};
const SERVER = {
  broadcastAddress: "lookup",
  hostname: "l",
  httpPort: 4161,
  tcpPort: 4160,
  version: "1.3.0",
};
const IDENTIFIED = encodeLookupIdentifyReply(SERVER);

type Topics = Record<string, string[]>;

function newMachine(topics: Topics = {}): LookupPeerMachine {
  const source = {
    topics: () => Object.entries(topics).map(([name, channels]) => ({ name, channels })),
  };
  return new LookupPeerMachine({ identity: IDENTITY, source, random: new SeededRandom(1) });
}

/** Effects in short; sent commands one by one. */
function shown(effects: PeerEffect[]): string[] {
  return effects.flatMap((effect) => {
    if (effect.kind === "send") return textOf(effect.bytes).trimEnd().split("\n");
    return effect.kind === "failed" ? [`failed: ${effect.reason}`] : [effect.kind];
  });
}

function textOf(bytes: Uint8Array): string {
  return new TextDecoder("latin1").decode(bytes);
}

/** A machine that has connected at time 0 and got the reply to IDENTIFY. */
function upMachine(topics: Topics = {}): { machine: LookupPeerMachine; effects: string[] } {
  const machine = newMachine(topics);
  machine.step({ kind: "tick" }, 0);
  machine.step({ kind: "connected" }, 0);
  const effects = shown(machine.step({ kind: "received", bytes: IDENTIFIED }, 0));
  return { machine, effects };
}

function received(machine: LookupPeerMachine, bytes: Uint8Array, nowMs = 0): string[] {
  return shown(machine.step({ kind: "received", bytes }, nowMs));
}

function oks(count: number): Uint8Array {
  return new Uint8Array(Array.from({ length: count }, () => [...LOOKUP_OK_REPLY]).flat());
}

Deno.test("LookupPeerMachine connects at once, says who it is and registers everything", () => {
  const machine = newMachine({ lone: [], t: ["a", "b"] });
  equal(shown(machine.step({ kind: "tick" }, 0)), ["connect"]);
  equal(machine.deadlineMs, null);
  const [hello] = machine.step({ kind: "connected" }, 0);
  equal(
    hello?.kind === "send" ? textOf(hello.bytes) : hello,
    "  V1" + textOf(encodeLookupIdentify(IDENTITY)),
  );
  const effects = machine.step({ kind: "received", bytes: IDENTIFIED }, 0);
  equal(effects[0], { kind: "identified", server: SERVER });
  equal(shown(effects), ["identified", "REGISTER lone", "REGISTER t a", "REGISTER t b"]);
  equal(received(machine, oks(2)), []);
  equal(received(machine, oks(1)), ["synced"]);
});

Deno.test("LookupPeerMachine takes replies that are cut anywhere", () => {
  const stream = new Uint8Array([...IDENTIFIED, ...oks(2)]);
  for (let split = 0; split <= stream.length; split++) {
    const machine = newMachine({ t: ["a"], u: [] });
    machine.step({ kind: "tick" }, 0);
    machine.step({ kind: "connected" }, 0);
    const parts = [stream.slice(0, split), stream.slice(split)];
    const effects = parts.flatMap((part) => received(machine, part));
    equal(effects, ["identified", "REGISTER t a", "REGISTER u", "synced"], `split at ${split}`);
  }
});

Deno.test("LookupPeerMachine sends the next batch only after the replies to the last", () => {
  const channels = Array.from({ length: BATCH_COMMANDS_MAX + 1 }, (_, index) => `c${index}`);
  const { machine, effects } = upMachine({ t: channels });
  equal(effects.length, 1 + BATCH_COMMANDS_MAX);
  const change = { kind: "unregister", topic: "t", channel: "c0" } as const;
  equal(shown(machine.step({ kind: "changed", change }, 0)), []);
  equal(received(machine, oks(BATCH_COMMANDS_MAX - 1)), []);
  equal(received(machine, oks(1)), [`REGISTER t c${BATCH_COMMANDS_MAX}`, "UNREGISTER t c0"]);
  equal(received(machine, oks(2)), ["synced"]);
});

Deno.test("LookupPeerMachine sends changes at once while nothing is awaited, then in order", () => {
  const { machine, effects } = upMachine();
  equal(effects, ["identified", "synced"]);
  const changed = (kind: "register" | "unregister", topic: string, channel: string | null) =>
    shown(machine.step({ kind: "changed", change: { kind, topic, channel } }, 0));
  equal(changed("register", "t", null), ["REGISTER t"]);
  equal(changed("register", "t", "c"), []);
  equal(changed("unregister", "t", "c"), []);
  equal(changed("unregister", "t", null), []);
  equal(received(machine, oks(1)), ["REGISTER t c", "UNREGISTER t c", "UNREGISTER t"]);
  equal(received(machine, oks(3)), []);
});

Deno.test("LookupPeerMachine leaves changes to the next full registration while it is not up", () => {
  const topics: Topics = {};
  const machine = newMachine(topics);
  const change = { kind: "register", topic: "t", channel: null } as const;
  equal(machine.step({ kind: "changed", change }, 0), []);
  machine.step({ kind: "tick" }, 0);
  machine.step({ kind: "connected" }, 0);
  topics.t = [];
  equal(machine.step({ kind: "changed", change }, 0), []);
  equal(received(machine, IDENTIFIED), ["identified", "REGISTER t"]);
});

Deno.test("LookupPeerMachine pings at its interval, also in the middle of a batch run", () => {
  const { machine } = upMachine();
  equal(machine.deadlineMs, PING_INTERVAL_MS);
  equal(machine.step({ kind: "tick" }, PING_INTERVAL_MS - 1), []);
  equal(shown(machine.step({ kind: "tick" }, PING_INTERVAL_MS)), ["PING"]);
  equal(received(machine, oks(1), PING_INTERVAL_MS), []);
  equal(machine.deadlineMs, 2 * PING_INTERVAL_MS);
  const change = { kind: "register", topic: "t", channel: null } as const;
  equal(shown(machine.step({ kind: "changed", change }, 2 * PING_INTERVAL_MS)), [
    "PING",
    "REGISTER t",
  ]);
});

Deno.test("LookupPeerMachine gives up when a reply is late, to the millisecond", () => {
  const late = `failed: no reply within ${REPLY_TIMEOUT_MS} ms`;
  const identifying = newMachine();
  identifying.step({ kind: "tick" }, 0);
  identifying.step({ kind: "connected" }, 50);
  equal(identifying.deadlineMs, 50 + REPLY_TIMEOUT_MS);
  equal(identifying.step({ kind: "tick" }, 49 + REPLY_TIMEOUT_MS), []);
  equal(shown(identifying.step({ kind: "tick" }, 50 + REPLY_TIMEOUT_MS)), ["disconnect", late]);

  const { machine } = upMachine({ t: ["a", "b"] });
  received(machine, oks(1), 900);
  equal(machine.step({ kind: "tick" }, 899 + REPLY_TIMEOUT_MS), []);
  equal(shown(machine.step({ kind: "tick" }, 900 + REPLY_TIMEOUT_MS)), ["disconnect", late]);
});

Deno.test("LookupPeerMachine gives up on a bad reply and says what it was", () => {
  const error = encodeLookupReply("E_INVALID no");
  const cases: [Topics, Uint8Array, RegExp][] = [
    [{ t: [] }, error, /the reply to a command was "E_INVALID no"/],
    [{}, oks(1), /the reply to nothing was "OK"/],
    [
      { t: [] },
      new Uint8Array([0, 1, 0, 1]),
      new RegExp(`a reply of ${REPLY_BYTES_MAX + 1} bytes`),
    ],
    [{ t: [] }, new Uint8Array([255, 255, 255, 255]), /a reply of -1 bytes/],
  ];
  for (const [topics, bytes, reason] of cases) {
    const { machine } = upMachine(topics);
    const effects = received(machine, bytes);
    equal(effects[0], "disconnect");
    match(effects[1] ?? "", reason);
    equal(received(machine, oks(1)), []);
  }
  for (const text of ["E_INVALID cannot IDENTIFY again", "OK", "{", '{"http_port":"x"}']) {
    const machine = newMachine();
    machine.step({ kind: "tick" }, 0);
    machine.step({ kind: "connected" }, 0);
    match(received(machine, encodeLookupReply(text))[1] ?? "", /the reply to IDENTIFY was/);
  }
});

Deno.test("LookupPeerMachine starts over when more changes wait than it keeps", () => {
  const { machine } = upMachine({ t: [] });
  const change = { kind: "register", topic: "u", channel: null } as const;
  for (let index = 0; index < CHANGES_MAX; index++) {
    equal(machine.step({ kind: "changed", change }, 0), []);
  }
  equal(shown(machine.step({ kind: "changed", change }, 0)), [
    "disconnect",
    `failed: more than ${CHANGES_MAX} changes wait`,
  ]);
  const retryAtMs = machine.deadlineMs ?? NaN;
  equal(shown(machine.step({ kind: "tick" }, retryAtMs)), ["connect"]);
  machine.step({ kind: "connected" }, retryAtMs);
  equal(received(machine, IDENTIFIED, retryAtMs), ["identified", "REGISTER t"]);
});

Deno.test("LookupPeerMachine waits longer after each failure, up to a limit, and starts over", () => {
  const machine = newMachine({ t: [] });
  let nowMs = 0;
  const delays: number[] = [];
  for (let attempt = 0; attempt < 20; attempt++) {
    equal(shown(machine.step({ kind: "tick" }, nowMs)), ["connect"]);
    const [, failed] = machine.step({ kind: "lost", reason: "refused" }, nowMs);
    equal(failed?.kind === "failed" && failed.failures, attempt + 1);
    const delayMs = (machine.deadlineMs ?? NaN) - nowMs;
    const fullMs = Math.min(RETRY_DELAY_MS_MAX, RETRY_DELAY_MS_MIN * 2 ** attempt);
    equal(delayMs <= fullMs && delayMs >= fullMs / 2, true, `${delayMs} of ${fullMs}`);
    delays.push(delayMs);
    nowMs += delayMs;
  }
  equal(new Set(delays.slice(-10)).size > 1, true, "the delay is random");
  machine.step({ kind: "tick" }, nowMs);
  machine.step({ kind: "connected" }, nowMs);
  received(machine, IDENTIFIED, nowMs);
  received(machine, oks(1), nowMs);
  machine.step({ kind: "lost", reason: "reset" }, nowMs);
  equal((machine.deadlineMs ?? NaN) - nowMs <= RETRY_DELAY_MS_MIN, true);
});

Deno.test("LookupPeerMachine does not start the delay over before everything is registered", () => {
  const machine = newMachine({ t: [] });
  let nowMs = 0;
  for (let attempt = 0; attempt < 10; attempt++) {
    machine.step({ kind: "tick" }, nowMs);
    machine.step({ kind: "connected" }, nowMs);
    received(machine, IDENTIFIED, nowMs);
    received(machine, encodeLookupReply("E_INVALID full"), nowMs);
    nowMs = machine.deadlineMs ?? NaN;
  }
  machine.step({ kind: "tick" }, nowMs);
  machine.step({ kind: "lost", reason: "refused" }, nowMs);
  equal((machine.deadlineMs ?? NaN) - nowMs >= RETRY_DELAY_MS_MAX / 2, true);
});

Deno.test("LookupPeerMachine ignores what a lost connection still says", () => {
  const { machine } = upMachine({ t: [] });
  machine.step({ kind: "lost", reason: "reset" }, 0);
  equal(machine.step({ kind: "lost", reason: "again" }, 0), []);
  equal(machine.step({ kind: "received", bytes: oks(1) }, 0), []);
  equal(machine.stateKind, "waiting");
});
