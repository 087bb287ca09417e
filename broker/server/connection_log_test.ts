/** What the log says of connections: when they open, and why they end. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { encodeIdentify, encodeSub } from "@sluice/shared/protocol";
import { settle } from "@sluice/shared/testing";
import { type Client, pub, sized, World, type WorldOptions } from "./world_test.ts";

/** The fields of the lines about connections that have ended, without address and duration. */
async function ends(
  options: WorldOptions,
  act: (world: World) => Promise<void>,
): Promise<Record<string, unknown>[]> {
  const lines: string[] = [];
  await World.use({ ...options, log: (line) => lines.push(line) }, act);
  return lines.map((line) => JSON.parse(line))
    .filter(({ message }) => /^Connection/.test(message))
    .map(({ time: _time, level: _level, client, open_ms: _openMs, component, ...fields }) => {
      equal(component, "nsq");
      ok(/^127\.0\.0\.1:\d+$/.test(client), client);
      return fields;
    });
}

async function leave(client: Client): Promise<void> {
  client.close();
  await settle();
}

const NOBODY = { client_id: "127.0.0.1", hostname: "127.0.0.1" };

/** Why connections end, as told in `reason`, with what else that line says. */
const CASES: [
  name: string,
  options: WorldOptions,
  act: (world: World) => Promise<void>,
  said: Record<string, unknown>,
][] = [
  [
    "a client that closes",
    {},
    async (world) => {
      const client = await world.client(
        encodeIdentify({ client_id: "me", hostname: "box", user_agent: "go-nsq/1" }),
        encodeSub("t", "c"),
      );
      await leave(client);
    },
    {
      reason: "client_closed",
      client_id: "me",
      hostname: "box",
      user_agent: "go-nsq/1",
      topic: "t",
      channel: "c",
    },
  ],
  [
    "a client that closes in the middle of a publish",
    {},
    async (world) => leave(await world.client(sized("PUB t\n", new Uint8Array(3), 9))),
    { reason: "client_closed", error: "E_BAD_MESSAGE PUB failed to read message body", ...NOBODY },
  ],
  [
    "a client that is silent for two heartbeats",
    {},
    async (world) => {
      await world.client();
      await world.clock.run(70_000);
    },
    { reason: "heartbeat_timeout", ...NOBODY },
  ],
  [
    "a client that does not read",
    { bufferBytesMax: 100 },
    async (world) => {
      const client = await world.rawClient(false);
      await client.send("  V2", encodeSub("t", "c"), "RDY 100\n");
      const publisher = await world.client();
      for (let at = 0; at < 20; at++) await publisher.send(pub("t", "x".repeat(100)));
      await leave(publisher);
      await world.clock.run(70_000);
    },
    { reason: "not_reading", ...NOBODY, topic: "t", channel: "c" },
  ],
  [
    "a client that is refused what it asks, without what it sent",
    {},
    async (world) => {
      await world.client("hunter2 is my body\n");
    },
    { reason: "protocol_error", error: "E_INVALID invalid command", ...NOBODY },
  ],
  [
    "a client that names a topic wrongly",
    {},
    async (world) => {
      await world.client(pub("hunter2!", "x"));
    },
    {
      reason: "protocol_error",
      error: 'E_BAD_TOPIC PUB topic name "..." is not valid',
      ...NOBODY,
    },
  ],
  [
    "a consumer of a channel that is deleted",
    {},
    async (world) => {
      await world.client(encodeSub("t", "c"));
      const topic = world.broker.topics.get("t")!;
      world.broker.administration.deleteChannel(topic, topic.channels.get("c")!);
      await settle();
    },
    { reason: "channel_deleted", ...NOBODY, topic: "t", channel: "c" },
  ],
  [
    "a broker that stops",
    {},
    async (world) => {
      await world.client();
      await world.clock.runUntil(world.server.close(), 20_000);
    },
    { reason: "stop", ...NOBODY },
  ],
];

for (const [name, options, act, said] of CASES) {
  Deno.test(`the log says in one line why a connection ends: ${name}`, async () => {
    const lines = await ends(options, act);
    equal(lines.find(({ reason }) => reason === said.reason), {
      message: "Connection closed",
      ...said,
    });
    equal(lines.filter(({ reason }) => reason === said.reason).length, 1);
  });
}

Deno.test("the log says of a connection beyond the limit that it is refused", async () => {
  const lines = await ends({ connectionsMax: 1 }, async (world) => {
    await world.client();
    await world.client();
  });
  equal(lines[0], { message: "Connection refused", reason: "limit", connections_max: 1 });
});
