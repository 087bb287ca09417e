/** The policy of a topic over HTTP, and what it changes for publishers and consumers. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { encodeSub } from "@sluice/shared/protocol";
import { nsqHttp } from "@sluice/shared/http";
import { Logger } from "@sluice/shared/telemetry";
import { settle, SimDisk } from "@sluice/shared/testing";
import { HttpPublisher } from "./http_publish.ts";
import { JSON_BODY_BYTES_MAX } from "./json_body.ts";
import { topicPolicyRoutes } from "./topic_policy_http.ts";
import { pub, World } from "./world_test.ts";

/** What is answered for a topic with so much of a policy. */
function answer(mode: string | null): [number, string] {
  return [
    200,
    JSON.stringify({
      ack_mode: mode,
      quota_bytes: null,
      quota_action: null,
      publish_rate: null,
      publish_bytes_rate: null,
      effective: {
        ack_mode: mode ?? "durable",
        quota_bytes: 0,
        quota_action: "refuse",
        publish_rate: 0,
        publish_bytes_rate: 0,
      },
      held_bytes: 0,
    }),
  ];
}

async function ask(
  world: World,
  topic: string,
  body?: unknown,
): Promise<[number, string]> {
  const app = nsqHttp({
    logger: new Logger({ sink: () => {}, clock: world.clock }),
    routes: topicPolicyRoutes(world.broker),
  });
  const init = body === undefined
    ? { method: "GET" }
    : { method: "PUT", body: typeof body === "string" ? body : JSON.stringify(body) };
  const request = new Request(`http://127.0.0.1:4151/v1/topics/${topic}/policy`, init);
  const response = await app.fetch(request);
  return [response.status, await response.text()];
}

Deno.test("a PUT that is not right names the reason and changes nothing", async () => {
  await World.use({}, async (world) => {
    world.broker.ensureTopic("t");
    await settle();
    const { position } = world.broker;
    const FIELDS = "ack_mode, quota_bytes, quota_action, publish_rate, publish_bytes_rate";
    const bytes = "a number of bytes, 0 for any, or null for the setting of the broker";
    const modes = "durable, write_ack, nsq_relaxed";
    for (
      const [body, detail] of [
        ["", "the body names no field"],
        ["{", "the body is not JSON"],
        ["[]", "the body is not a JSON object"],
        ["null", "the body is not a JSON object"],
        ["{}", "the body names no field"],
        [
          { ack_mode: "fast" },
          `ack_mode is one of ${modes}, or null for the setting of the broker`,
        ],
        [{ ack_mode: 1 }, `ack_mode is one of ${modes}, or null for the setting of the broker`],
        [{ mode: "durable" }, `there is no field "mode"; there are: ${FIELDS}`],
        [{ quota_bytes: -1 }, `quota_bytes is ${bytes}`],
        [{ quota_bytes: 1.5 }, `quota_bytes is ${bytes}`],
        [{ quota_bytes: "1MiB" }, `quota_bytes is ${bytes}`],
        [
          { publish_rate: -1 },
          "publish_rate is a number of messages a second, 0 for any, or null for the setting of the broker",
        ],
        [
          { quota_action: "drop" },
          "quota_action is one of refuse, drop_oldest, or null for the setting of the broker",
        ],
        [{ ack_mode: "write_ack", x: 1 }, `there is no field "x"; there are: ${FIELDS}`],
      ]
    ) {
      const [status, text] = await ask(world, "t", body);
      equal([status, JSON.parse(text)], [400, { message: "INVALID_POLICY", detail }]);
    }
    equal((await ask(world, "t", " ".repeat(JSON_BODY_BYTES_MAX + 1)))[0], 413);
    equal(await ask(world, "none", { ack_mode: null }), [404, `{"message":"TOPIC_NOT_FOUND"}`]);
    equal(await ask(world, "no%20name"), [400, `{"message":"INVALID_TOPIC"}`]);
    equal(world.broker.position, position);
    equal(
      new TextDecoder().decode(world.simDisk.bytes("/data/COMPATIBILITY")),
      `{"reader":1,"writer":1}\n`,
    );
  });
});

Deno.test("a PUT is durable when it is answered, raises the levels, and null takes it back", async () => {
  await World.use({}, async (world) => {
    world.broker.ensureTopic("t");
    equal(await ask(world, "t"), answer(null));
    equal(
      await ask(world, "t", { ack_mode: "write_ack" }),
      answer("write_ack"),
    );
    equal(world.broker.storage.log.durableEnd, world.broker.position);
    equal(
      new TextDecoder().decode(world.simDisk.bytes("/data/COMPATIBILITY")),
      `{"reader":2,"writer":2}\n`,
    );
    const { position } = world.broker;
    equal((await ask(world, "t", { ack_mode: "write_ack" }))[0], 200);
    equal(world.broker.position, position);
    equal(
      await ask(world, "t", { ack_mode: null }),
      answer(null),
    );
    equal(world.broker.topics.get("t")?.state.policy, {});
    await world.clock.run(2000);
    const trail = new TextDecoder().decode(
      world.simDisk.bytes(world.simDisk.files().find((path) => path.includes("/audit/"))!),
    );
    equal(trail.trim().split("\n").map((line) => JSON.parse(line).policy), [
      `{"ack_mode":"write_ack"}`,
      "{}",
    ]);
  });
});

Deno.test("a topic has a limit of its own, above or below the broker's, over a restart too", async () => {
  const simDisk = new SimDisk();
  const options = {
    disk: simDisk,
    broker: { quota: { bytesMax: 500, action: "refuse" } },
  } as const;
  const body = "x".repeat(100);
  await World.use(options, async (world) => {
    world.broker.ensureTopic("more");
    await ask(world, "more", { quota_bytes: 2000, quota_action: "drop_oldest" });
    await ask(world, "more", { quota_bytes: 0 });
    for (let count = 0; count < 20; count++) {
      equal((await world.client(pub("more", body))).take(), ["OK"]);
    }
    const full = await world.client(...Array.from({ length: 9 }, () => pub("less", body)));
    equal(full.take().at(-2), "E_THROTTLED PUB the topic has reached its limit");
  });
  await World.use(options, async (world) => {
    const topic = world.broker.topics.get("more")!;
    equal([topic.state.liveFrom, topic.state.tail], [0, 20]);
    await ask(world, "more", { quota_bytes: 2000 });
    const [, text] = await ask(world, "more");
    equal(JSON.parse(text).effective.quota_action, "drop_oldest");
    equal((await world.client(pub("more", body))).take(), ["OK"]);
    ok(topic.state.liveFrom > 0);
    ok(JSON.parse((await ask(world, "more"))[1]).held_bytes <= 2000);
  });
});

Deno.test("a PUT is refused when the levels cannot be raised, and changes nothing", async () => {
  await World.use({}, async (world) => {
    world.broker.ensureTopic("t");
    await settle();
    world.simDisk.failNext({ operation: "sync", kind: "io", path: "/data/COMPATIBILITY.tmp" });
    equal(
      await ask(world, "t", { ack_mode: "write_ack" }),
      [503, `{"message":"STORAGE_FAULT"}`],
    );
    equal(world.broker.topics.get("t")?.state.policy, {});
    equal((await ask(world, "t", { ack_mode: "write_ack" }))[0], 200);
  });
});

for (
  const [mode, confirmed, delivered] of [
    ["durable", false, false],
    ["write_ack", true, false],
    ["nsq_relaxed", true, true],
  ] as const
) {
  Deno.test(`${mode}: what a publisher and a consumer are told before the sync`, async () => {
    await World.use({}, async (world) => {
      const consumer = await world.client();
      await consumer.send(encodeSub("t", "c"), "RDY 10\n");
      const publisher = await world.client();
      equal((await ask(world, "t", { ack_mode: mode }))[0], 200);
      consumer.take();
      const release = world.disk.hold();
      await publisher.send(pub("t", "a"), pub("t", "b"));
      equal(publisher.take(), confirmed ? ["OK", "OK"] : []);
      equal(consumer.take(), delivered ? ["a #1", "b #1"] : []);
      await world.clock.run(20);
      release();
      await settle();
      equal(publisher.take(), confirmed ? [] : ["OK", "OK"]);
      equal(consumer.take(), delivered ? [] : ["a #1", "b #1"]);
      equal(world.broker.storage.log.durableEnd, world.broker.position);
    });
  });
}

Deno.test("answers stay in order: an OK that may go out waits for one before it that may not", async () => {
  await World.use({}, async (world) => {
    world.broker.ensureTopic("safe");
    world.broker.ensureTopic("fast");
    equal((await ask(world, "fast", { ack_mode: "write_ack" }))[0], 200);
    const client = await world.client();
    const other = await world.client();
    const release = world.disk.hold();
    await client.send(pub("fast", "1"), pub("safe", "2"), pub("fast", "3"));
    equal(client.take(), ["OK"]);
    await other.send(pub("fast", "4"));
    // The disk is at the sync that `safe` asked for.
    equal(other.take(), []);
    release();
    await settle();
    equal([client.take(), other.take()], [["OK", "OK"], ["OK"]]);
  });
});

for (const mode of ["durable", "write_ack"] as const) {
  Deno.test(`${mode}: POST /pub and /mpub are answered as the topic's mode says`, async () => {
    await World.use({}, async (world) => {
      world.broker.ensureTopic("t");
      equal((await ask(world, "t", { ack_mode: mode }))[0], 200);
      const publisher = new HttpPublisher(world.broker, {
        messageBytesMax: 1000,
        bodyBytesMax: 5000,
        deferMsMax: 0,
        maxDeflateLevel: 6,
        bodyTimeoutMs: 60_000,
      });
      const post = (body: string) =>
        new Request("http://127.0.0.1:4151/?topic=t", { method: "POST", body });
      const release = world.disk.hold();
      const answers: number[] = [];
      for (const path of ["publish", "publishMany"] as const) {
        void publisher[path](post("a")).then(({ status }) => answers.push(status));
      }
      await settle();
      equal(answers, mode === "durable" ? [] : [200, 200]);
      release();
      await settle();
      equal(answers, [200, 200]);
    });
  });
}

Deno.test("what does not fit the loss window is answered and delivered once it is durable", async () => {
  const lossWindow = { messages: 2, bytes: 1000, intervalMs: 10 };
  await World.use({ storage: { ackMode: "nsq_relaxed", lossWindow } }, async (world) => {
    const consumer = await world.client();
    await consumer.send(encodeSub("t", "c"), "RDY 10\n");
    const client = await world.client();
    consumer.take();
    const release = world.disk.hold();
    await client.send(pub("t", "a"), pub("t", "b"));
    equal([client.take(), consumer.take()], [["OK", "OK"], ["a #1", "b #1"]]);
    await client.send(pub("t", "c"));
    equal([client.take(), consumer.take()], [[], []]);
    release();
    await settle();
    equal([client.take(), consumer.take()], [["OK"], ["c #1"]]);
    equal(world.broker.storage.lossWindow.messagesHighest, 2);
  });
});

Deno.test("the OK to SUB is durable whatever the topic's mode is", async () => {
  await World.use({ storage: { ackMode: "nsq_relaxed" } }, async (world) => {
    const client = await world.client();
    const release = world.disk.hold();
    await client.send(encodeSub("t", "c"), "RDY 1\n");
    equal(client.take(), []);
    release();
    await settle();
    equal(client.take(), ["OK"]);
  });
});

Deno.test("a failed sync answers no relaxed publish that was not answered, and stops the broker", async () => {
  await World.use({ storage: { ackMode: "write_ack" } }, async (world) => {
    world.broker.ensureTopic("t");
    const client = await world.client();
    await client.send(pub("t", "a"));
    equal([client.take(), world.broker.storage.lossWindow.messages], [["OK"], 1]);
    world.simDisk.failNext({ operation: "sync", kind: "io" });
    await world.clock.run(20);
    ok(world.broker.failure !== null);
    await client.send(pub("t", "b"));
    ok(client.take()[0]?.startsWith("E_PUB_FAILED"));
  });
});
