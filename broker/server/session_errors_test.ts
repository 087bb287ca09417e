/** Every error text of the protocol, and how a connection goes on after it. */
import { deepStrictEqual as equal } from "node:assert/strict";
import { encodeMpubBody, utf8Bytes } from "@sluice/shared/protocol";
import { Client, int32, pub, sized, World, type WorldOptions } from "./world_test.ts";

const UNKNOWN_ID = "0001000000000fff";
const BODY = utf8Bytes("hi");
const SUB = "SUB t c\n";
const LONG = "x".repeat(65);

type Sent = readonly (string | Uint8Array)[];

/** What is sent after the magic, the frames that come, and how the connection goes on. */
type Case = readonly [sent: Sent, frames: readonly string[]];

const FATAL: readonly Case[] = [
  // Lines
  [["\n"], ["E_INVALID invalid command "]],
  [["\r\n"], ["E_INVALID invalid command "]],
  [["ASDF\n"], ["E_INVALID invalid command ASDF"]],
  [["nop\n"], ["E_INVALID invalid command nop"]],
  [[" NOP\n"], ["E_INVALID invalid command "]],
  // IDENTIFY
  [[SUB, identify("{}")], ["OK", "E_INVALID cannot IDENTIFY in current state"]],
  [["IDENTIFY\n", int32(0)], ["E_BAD_BODY IDENTIFY invalid body size 0"]],
  [["IDENTIFY\n", int32(-7)], ["E_BAD_BODY IDENTIFY invalid body size -7"]],
  [["IDENTIFY\n", int32(5001)], ["E_BAD_BODY IDENTIFY body too big 5001 > 5000"]],
  [[identify("[]")], ["E_BAD_BODY IDENTIFY failed to decode JSON body"]],
  [[identify("{")], ["E_BAD_BODY IDENTIFY failed to decode JSON body"]],
  [[identify('{"sample_rate":1.5}')], ["E_BAD_BODY IDENTIFY failed to decode JSON body"]],
  [[identify('{"heartbeat_interval":999}')], [
    "E_BAD_BODY IDENTIFY heartbeat interval (999) is invalid",
  ]],
  [[identify('{"heartbeat_interval":60001}')], [
    "E_BAD_BODY IDENTIFY heartbeat interval (60001) is invalid",
  ]],
  [[identify('{"output_buffer_timeout":24}')], [
    "E_BAD_BODY IDENTIFY output buffer timeout (24) is invalid",
  ]],
  [[identify('{"output_buffer_size":65537}')], [
    "E_BAD_BODY IDENTIFY output buffer size (65537) is invalid",
  ]],
  [[identify('{"sample_rate":100}')], ["E_BAD_BODY IDENTIFY sample rate (100) is invalid"]],
  [[identify('{"msg_timeout":999}')], ["E_BAD_BODY IDENTIFY msg timeout (999) is invalid"]],
  [[identify('{"heartbeat_interval":1,"msg_timeout":1}')], [
    "E_BAD_BODY IDENTIFY heartbeat interval (1) is invalid",
  ]],
  [[identify('{"feature_negotiation":true,"snappy":true,"deflate":true}')], [
    "E_IDENTIFY_FAILED cannot enable both deflate and snappy compression",
  ]],
  // AUTH
  [[SUB, sized("AUTH\n", BODY)], ["OK", "E_INVALID cannot AUTH in current state"]],
  [["AUTH x\n"], ["E_INVALID AUTH invalid number of parameters"]],
  [["AUTH\n", int32(0)], ["E_BAD_BODY AUTH invalid body size 0"]],
  [["AUTH\n", int32(5001)], ["E_BAD_BODY AUTH body too big 5001 > 5000"]],
  [[sized("AUTH\n", BODY)], ["E_AUTH_DISABLED AUTH disabled"]],
  // SUB, in the order of its checks
  [[SUB, "SUB\n"], ["OK", "E_INVALID cannot SUB in current state"]],
  [[identify('{"heartbeat_interval":-1}'), "SUB\n"], [
    "OK",
    "E_INVALID cannot SUB with heartbeats disabled",
  ]],
  [["SUB\n"], ["E_INVALID SUB insufficient number of parameters"]],
  [["SUB t\n"], ["E_INVALID SUB insufficient number of parameters"]],
  [["SUB t$ c$\n"], ['E_BAD_TOPIC SUB topic name "t$" is not valid']],
  [["SUB  c\n"], ['E_BAD_TOPIC SUB topic name "" is not valid']],
  [[`SUB ${LONG} c\n`], [`E_BAD_TOPIC SUB topic name "${LONG}" is not valid`]],
  [["SUB test:ephemeral c\n"], ['E_BAD_TOPIC SUB topic name "test:ephemeral" is not valid']],
  [["SUB t c$\n"], ['E_BAD_CHANNEL SUB channel name "c$" is not valid']],
  [['SUB t c"\\\u0001\n'], ['E_BAD_CHANNEL SUB channel name "c\\"\\\\\\x01" is not valid']],
  // RDY
  [["RDY 1\n"], ["E_INVALID cannot RDY in current state"]],
  [[SUB, "RDY x\n"], ["OK", "E_INVALID RDY could not parse count x"]],
  [[SUB, "RDY -1\n"], ["OK", "E_INVALID RDY could not parse count -1"]],
  [[SUB, "RDY +1\n"], ["OK", "E_INVALID RDY could not parse count +1"]],
  [[SUB, "RDY 2501\n"], ["OK", "E_INVALID RDY count 2501 out of range 0-2500"]],
  [[SUB, "RDY 99999999999999999999\n"], [
    "OK",
    "E_INVALID RDY count 99999999999999999999 out of range 0-2500",
  ]],
  // FIN, REQ, TOUCH
  [["FIN\n"], ["E_INVALID cannot FIN in current state"]],
  [[`FIN ${UNKNOWN_ID}\n`], ["E_INVALID cannot FIN in current state"]],
  [["REQ\n"], ["E_INVALID cannot REQ in current state"]],
  [["TOUCH\n"], ["E_INVALID cannot TOUCH in current state"]],
  [[SUB, "FIN\n"], ["OK", "E_INVALID FIN insufficient number of params"]],
  [[SUB, "FIN \n"], ["OK", "E_INVALID invalid message ID"]],
  [[SUB, "FIN 123\n"], ["OK", "E_INVALID invalid message ID"]],
  [[SUB, `REQ ${UNKNOWN_ID}\n`], ["OK", "E_INVALID REQ insufficient number of params"]],
  [[SUB, "REQ 123 0\n"], ["OK", "E_INVALID invalid message ID"]],
  [[SUB, `REQ ${UNKNOWN_ID} x\n`], ["OK", "E_INVALID REQ could not parse timeout x"]],
  [[SUB, `REQ ${UNKNOWN_ID} -1\n`], ["OK", "E_INVALID REQ could not parse timeout -1"]],
  [[SUB, "TOUCH\n"], ["OK", "E_INVALID TOUCH insufficient number of params"]],
  [[SUB, "TOUCH 1\n"], ["OK", "E_INVALID invalid message ID"]],
  // PUB
  [["PUB\n"], ["E_INVALID PUB insufficient number of parameters"]],
  [["PUB t$\n"], ['E_BAD_TOPIC PUB topic name "t$" is not valid']],
  [["PUB t\n", int32(0)], ["E_BAD_MESSAGE PUB invalid message body size 0"]],
  [["PUB t\n", int32(-1)], ["E_BAD_MESSAGE PUB invalid message body size -1"]],
  [["PUB t\n", int32(1001)], ["E_BAD_MESSAGE PUB message too big 1001 > 1000"]],
  // DPUB, in the order of its checks
  [["DPUB t\n"], ["E_INVALID DPUB insufficient number of parameters"]],
  [["DPUB t$ x\n"], ['E_BAD_TOPIC DPUB topic name "t$" is not valid']],
  [["DPUB t x\n"], ["E_INVALID DPUB could not parse timeout x"]],
  [["DPUB t 3600001\n"], ["E_INVALID DPUB timeout 3600001 out of range 0-3600000"]],
  [["DPUB t 1\n", int32(0)], ["E_BAD_MESSAGE DPUB invalid message body size 0"]],
  [["DPUB t 1\n", int32(1001)], ["E_BAD_MESSAGE DPUB message too big 1001 > 1000"]],
  // MPUB
  [["MPUB\n"], ["E_INVALID MPUB insufficient number of parameters"]],
  [["MPUB t$\n"], ['E_BAD_TOPIC E_BAD_TOPIC MPUB topic name "t$" is not valid']],
  [["MPUB t\n", int32(0)], ["E_BAD_BODY MPUB invalid body size 0"]],
  [["MPUB t\n", int32(5001)], ["E_BAD_BODY MPUB body too big 5001 > 5000"]],
  [[sized("MPUB t\n", int32(0))], ["E_BAD_BODY MPUB invalid message count 0"]],
  [[sized("MPUB t\n", int32(1000))], ["E_BAD_BODY MPUB invalid message count 1000"]],
  [[mpub("a", "b", "c", "d", "e", "")], ["E_BAD_MESSAGE MPUB invalid message(5) body size 0"]],
  [[mpub("a", "x".repeat(1001))], ["E_BAD_MESSAGE MPUB message too big 1001 > 1000"]],
  // CLS
  [["CLS\n"], ["E_INVALID cannot CLS in current state"]],
  [[SUB, "CLS\n", "CLS\n"], ["OK", "CLOSE_WAIT", "E_INVALID cannot CLS in current state"]],
  [[SUB, "CLS\n", SUB], ["OK", "CLOSE_WAIT", "E_INVALID cannot SUB in current state"]],
  [[SUB, "CLS\n", identify("{}")], [
    "OK",
    "CLOSE_WAIT",
    "E_INVALID cannot IDENTIFY in current state",
  ]],
];

const SOFT: readonly Case[] = [
  [[SUB, `FIN ${UNKNOWN_ID}\n`], ["OK", `E_FIN_FAILED FIN ${UNKNOWN_ID} failed ID not in flight`]],
  [[SUB, `REQ ${UNKNOWN_ID} 1\n`], [
    "OK",
    `E_REQ_FAILED REQ ${UNKNOWN_ID} failed ID not in flight`,
  ]],
  [[SUB, `TOUCH ${UNKNOWN_ID}\n`], [
    "OK",
    `E_TOUCH_FAILED TOUCH ${UNKNOWN_ID} failed ID not in flight`,
  ]],
  [[SUB, "FIN zzzzzzzzzzzzzzzz\n"], [
    "OK",
    "E_FIN_FAILED FIN zzzzzzzzzzzzzzzz failed ID not in flight",
  ]],
];

const FINE: readonly Case[] = [
  [["NOP\n", "NOP\r\n", "NOP surplus\n"], []],
  [[SUB, "RDY\n", "RDY \n", "RDY 2500\n", "RDY 0 surplus\n"], ["OK"]],
  [["SUB t c surplus\n"], ["OK"]],
  [["SUB test-with_period. test#ephemeral\n"], ["OK"]],
  [[SUB, "CLS\n", "RDY x\n", "RDY -1\n"], ["OK", "CLOSE_WAIT"]],
  [[sized("DPUB t 3600000\n", BODY), sized("DPUB t 0\n", BODY)], ["OK", "OK"]],
  [[identify('{"client_id":"me"}'), identify("{}")], ["OK", "OK"]],
  [[identify('{"heartbeat_interval":60000,"unknown":[1],"hostname":null}')], ["OK"]],
  [[mpub("a", "b"), pub("u", "x".repeat(1000)), SUB, pub("t", "y"), "CLS\n", pub("t", "z")], [
    "OK",
    "OK",
    "OK",
    "OK",
    "CLOSE_WAIT",
    "OK",
  ]],
];

/** Runs cases in one world, each on a connection of its own; `after` says how that goes on. */
async function runCases(
  cases: readonly Case[],
  options: WorldOptions,
  after: (client: Client) => Promise<void>,
): Promise<void> {
  await World.use(options, async (world) => {
    for (const [sent, frames] of cases) {
      const client = await world.client(...sent);
      equal(client.take().filter((frame) => frame !== "end"), frames);
      await after(client);
      client.close();
    }
  });
}

Deno.test("a session answers each mistake with its text, then ends the stream", async () => {
  await runCases(FATAL, {}, (client) => {
    equal(client.state, "end");
    return Promise.resolve();
  });
});

Deno.test("a session goes on after the three soft errors", async () => {
  await runCases(SOFT, {}, async (client) => {
    await client.send(pub("t", "x"));
    equal(client.take(), ["OK"]);
  });
});

Deno.test("a session takes what is unusual and allowed", async () => {
  await runCases(FINE, {}, async (client) => {
    await client.send("ASDF\n");
    equal(client.take(), ["E_INVALID invalid command ASDF", "end"]);
  });
});

Deno.test("a session answers a body that is cut off by the end of the stream", async () => {
  const cases: readonly Case[] = [
    [["PUB t\n"], ["E_BAD_MESSAGE PUB failed to read message body size"]],
    [["PUB t\n", int32(3), "ab"], ["E_BAD_MESSAGE PUB failed to read message body"]],
    [["DPUB t 1\n", int32(3)], ["E_BAD_MESSAGE DPUB failed to read message body"]],
    [["MPUB t\n"], ["E_BAD_BODY MPUB failed to read body size"]],
    [["MPUB t\n", int32(20)], ["E_BAD_BODY MPUB failed to read message count"]],
    [["MPUB t\n", int32(20), int32(2)], ["E_BAD_MESSAGE MPUB failed to read message(0) body size"]],
    [["MPUB t\n", int32(20), int32(2), int32(3), "a"], [
      "E_BAD_MESSAGE MPUB failed to read message body",
    ]],
    [["IDENTIFY\n"], ["E_BAD_BODY IDENTIFY failed to read body size"]],
    [["IDENTIFY\n", int32(2), "{"], ["E_BAD_BODY IDENTIFY failed to read body"]],
    [["AUTH\n", int32(2)], ["E_BAD_BODY AUTH failed to read body"]],
    [["NO"], []],
    [[pub("t", "x"), "NOP"], ["OK"]],
  ];
  await World.use({}, async (world) => {
    for (const [sent, frames] of cases) {
      const client = await world.client(...sent);
      await client.end();
      equal(client.take(), [...frames, "end"]);
      client.close();
    }
  });
});

Deno.test("a session answers a wrong magic with E_BAD_PROTOCOL, and part of one with nothing", async () => {
  await World.use({}, async (world) => {
    for (
      const [sent, frames] of [["  V1", ["E_BAD_PROTOCOL"]], ["GET / HTTP/1.1\r\n", [
        "E_BAD_PROTOCOL",
      ]], ["  V", []]] as const
    ) {
      const client = await world.rawClient();
      await client.send(sent);
      await client.end();
      equal(client.take(), [...frames, "end"]);
      client.close();
    }
  });
});

Deno.test("a session drops a connection whose line is too long, without an error", async () => {
  await World.use({}, async (world) => {
    const client = await world.client(pub("t", "x"), "A".repeat(16 * 1024));
    equal(client.take(), ["OK", "end"]);
  });
});

Deno.test("a session names the limit when a channel has all the consumers it may", async () => {
  await World.use({ channel: { consumersMax: 1 } }, async (world) => {
    equal((await world.client(SUB)).take(), ["OK"]);
    equal((await world.client(SUB)).take(), [
      "E_SUB_FAILED SUB failed consumers for t:c exceeds limit of 1",
      "end",
    ]);
  });
});

Deno.test("a session refuses to publish and subscribe where there are too many names", async () => {
  await World.use({ broker: { topicsMax: 1, channelsPerTopicMax: 1 } }, async (world) => {
    const client = await world.client(SUB);
    await client.send(pub("u", "x"));
    equal(client.take(), ["OK", "E_PUB_FAILED PUB failed there are 1 topics already", "end"]);
    equal((await world.client("SUB t d\n")).take(), [
      "E_SUB_FAILED SUB failed topic t has 1 channels already",
      "end",
    ]);
  });
});

Deno.test("a session refuses everything that is new while the broker stops", async () => {
  await World.use({}, async (world) => {
    world.broker.exiting = true;
    equal((await world.client(SUB)).take(), ["E_SUB_FAILED SUB failed exiting", "end"]);
    equal((await world.client(pub("t", "x"))).take(), ["E_PUB_FAILED PUB failed exiting", "end"]);
    equal((await world.client(mpub("x"))).take(), ["E_MPUB_FAILED MPUB failed exiting", "end"]);
    equal((await world.client(sized("DPUB t 1\n", BODY))).take(), [
      "E_DPUB_FAILED DPUB failed exiting",
      "end",
    ]);
  });
});

function identify(json: string): Uint8Array {
  return sized("IDENTIFY\n", utf8Bytes(json));
}

function mpub(...bodies: string[]): Uint8Array {
  return sized("MPUB t\n", encodeMpubBody(bodies.map(utf8Bytes)));
}
