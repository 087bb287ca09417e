/** Management over HTTP, and what a tombstone does to publishers and consumers. */
import { deepStrictEqual as equal, match, ok } from "node:assert/strict";
import { encodeIdentify, encodeSub } from "@sluice/shared/protocol";
import { SeededRandom, settle } from "@sluice/shared/testing";
import { nsqHttp } from "@sluice/shared/http";
import { HttpPublisher } from "./http_publish.ts";
import { worldHttpOptions } from "./http_world_test.ts";
import { manageRoutes } from "./manage_http.ts";
import { RegistryRevision } from "./registry_http.ts";
import { pub, sized, World, type WorldOptions } from "./world_test.ts";

type Document = ReturnType<typeof JSON.parse>;

const ID = "operation-of-a-test";

class Stage {
  readonly revision = new RegistryRevision(new SeededRandom(3));
  readonly #app;

  constructor(readonly world: World) {
    world.broker.administration.registry = this.revision;
    const publisher = new HttpPublisher(world.broker, worldHttpOptions());
    this.#app = nsqHttp({
      logger: world.broker.logger,
      routes: [
        ...manageRoutes(world.broker, this.revision),
        { method: "POST", path: "/pub", handle: ({ request }) => publisher.publish(request) },
      ],
    });
  }

  async ask(method: string, path: string, body?: unknown): Promise<[number, Document]> {
    const text = typeof body === "string" ? body : JSON.stringify(body);
    const response = await this.#app.fetch(
      new Request(`http://h${path}`, { method, ...(body === undefined ? {} : { body: text }) }),
    );
    const answer = await response.text();
    return [response.status, answer.startsWith("{") ? JSON.parse(answer) : answer];
  }

  /** Status, and what matters of the answer. */
  async manage(kind: "topics" | "channels", action: string, body: unknown): Promise<unknown[]> {
    const [status, answer] = await this.ask("POST", `/v1/manage/${kind}/${action}`, body);
    if (status !== 200) return [status, answer.message, ...(answer.detail ? [answer.detail] : [])];
    return [status, answer.changed, answer.repeated];
  }
}

function test(
  promise: string,
  run: (stage: Stage) => Promise<void>,
  options: WorldOptions = {},
): void {
  Deno.test(promise, () => World.use(options, (world) => run(new Stage(world))));
}

test("each action says whether it has changed anything, and doing it twice changes nothing", async (stage) => {
  const { broker } = stage.world;
  const twice = async (kind: "topics" | "channels", action: string, body: object) => {
    equal(await stage.manage(kind, action, body), [200, true, false], `${kind} ${action}`);
    equal(await stage.manage(kind, action, body), [200, false, false], `${kind} ${action} again`);
  };
  await twice("topics", "create", { topic: "t", policy: { ack_mode: "write_ack" } });
  await twice("topics", "configure", { topic: "t", policy: { ack_mode: null } });
  await twice("topics", "pause", { topic: "t" });
  ok(broker.topics.get("t")?.state.paused);
  await twice("topics", "unpause", { topic: "t" });
  await stage.ask("POST", "/pub?topic=t", "a");
  await twice("topics", "empty", { topic: "t" });
  await twice("channels", "create", { topic: "t", channel: "c" });
  await twice("channels", "pause", { topic: "t", channel: "c" });
  await twice("channels", "unpause", { topic: "t", channel: "c" });
  await stage.ask("POST", "/pub?topic=t", "a");
  await twice("channels", "empty", { topic: "t", channel: "c" });
  await twice("channels", "delete", { topic: "t", channel: "c" });
  await twice("topics", "delete", { topic: "t" });
  equal(broker.topics.size, 0);
});

test("what is not there is 404, but to delete it is done already", async (stage) => {
  for (const action of ["configure", "pause", "unpause", "empty"]) {
    const policy = action === "configure" ? { policy: { ack_mode: null } } : {};
    const asked = { topic: "none", ...policy };
    equal(await stage.manage("topics", action, asked), [404, "TOPIC_NOT_FOUND"]);
  }
  const asked = { topic: "none", channel: "c" };
  for (const action of ["create", "pause", "unpause", "empty"]) {
    equal(await stage.manage("channels", action, asked), [404, "TOPIC_NOT_FOUND"]);
  }
  equal(await stage.manage("channels", "delete", asked), [200, false, false]);
  stage.world.broker.ensureTopic("none");
  equal(await stage.manage("channels", "pause", asked), [404, "CHANNEL_NOT_FOUND"]);
});

test("a body that is not right names the reason and changes nothing", async (stage) => {
  const { position } = stage.world.broker;
  const fields = "operation_id, topic, expected_revision, expected_instance, policy, tombstone_ms";
  const rows: readonly (readonly [action: string, body: unknown, detail: string])[] = [
    ["create", "{", "the body is not JSON"],
    ["create", "[]", "the body is not a JSON object"],
    ["create", "", "topic is the name of a topic"],
    ["create", { topic: "a b" }, "topic is the name of a topic"],
    ["create", { topic: "t", name: 1 }, `there is no field "name"; there are: ${fields}`],
    ["create", { topic: "t", channel: "c" }, `there is no field "channel"; there are: ${fields}`],
    [
      "create",
      { topic: "t", operation_id: "short" },
      "operation_id is 16 to 128 characters of A-Z, a-z, 0-9, _ and -",
    ],
    [
      "create",
      { topic: "t", expected_revision: -1 },
      `expected_revision is a whole number from 0 to ${Number.MAX_SAFE_INTEGER}`,
    ],
    ["create", { topic: "t", tombstone_ms: 1 }, "tombstone_ms is for delete and tombstone"],
    ["pause", { topic: "t", policy: {} }, "policy is for create and configure"],
    ["configure", { topic: "t" }, "policy is needed"],
    ["configure", { topic: "t", policy: {} }, "policy: it names no field"],
    [
      "tombstone",
      { topic: "t" },
      "tombstone_ms is needed: how long the name is kept away, 0 for no longer",
    ],
  ];
  for (const [action, body, detail] of rows) {
    equal(await stage.manage("topics", action, body), [400, "INVALID_OPERATION", detail]);
  }
  equal(await stage.manage("topics", "explode", { topic: "t" }), [400, "UNKNOWN_ACTION"]);
  equal(await stage.manage("channels", "configure", { topic: "t" }), [400, "UNKNOWN_ACTION"]);
  equal(await stage.manage("topics", "create", " ".repeat(9000)), [413, "BODY_TOO_BIG"]);
  equal(stage.world.broker.position, position);
});

test("a repeat with the same id gets the first answer and does nothing", async (stage) => {
  const { broker } = stage.world;
  const asked = { topic: "t", operation_id: ID };
  const [, first] = await stage.ask("POST", "/v1/manage/topics/create", asked);
  equal(first, {
    operation_id: ID,
    instance: stage.revision.instance,
    revision: 1,
    changed: true,
    repeated: false,
  });
  broker.administration.deleteTopic(broker.topics.get("t")!);
  equal(await stage.ask("POST", "/v1/manage/topics/create", asked), [
    200,
    { ...first, repeated: true },
  ]);
  equal(broker.topics.size, 0, "the repeat has made nothing");
  for (const other of [{ ...asked, topic: "u" }, { ...asked, expected_revision: 1 }]) {
    equal(await stage.manage("topics", "create", other), [409, "OPERATION_CONFLICT"]);
  }
  equal(await stage.manage("topics", "delete", asked), [409, "OPERATION_CONFLICT"]);
});

test("a repeat that comes while the first one is under way waits for it", async (stage) => {
  const release = stage.world.disk.hold();
  const asked = { topic: "t", operation_id: ID };
  const both = [1, 2].map(() => stage.manage("topics", "create", asked));
  const other = stage.manage("topics", "create", { topic: "u", operation_id: ID });
  equal(await other, [409, "OPERATION_CONFLICT"]);
  let isAnswered = false;
  void Promise.race(both).then(() => isAnswered = true);
  await settle();
  equal(isAnswered, false, "nothing is answered before it is durable");
  release();
  equal(await Promise.all(both), [[200, true, false], [200, true, true]]);
});

test("what was refused leaves its id free", async (stage) => {
  const asked = { topic: "t", channel: "c", operation_id: ID };
  equal(await stage.manage("channels", "create", asked), [404, "TOPIC_NOT_FOUND"]);
  stage.world.broker.ensureTopic("t");
  equal(await stage.manage("channels", "create", asked), [200, true, false]);
});

test("an operation on another revision or start is refused, and told where the registry is", async (stage) => {
  const { instance } = stage.revision;
  const create = { topic: "t", expected_revision: 0, expected_instance: instance };
  equal(await stage.manage("topics", "create", create), [200, true, false]);
  const [status, answer] = await stage.ask("POST", "/v1/manage/topics/delete", create);
  equal([status, answer], [409, { message: "REVISION_CONFLICT", instance, revision: 1 }]);
  const other = { topic: "t", expected_revision: 1, expected_instance: "0".repeat(16) };
  equal((await stage.manage("topics", "delete", other))[1], "REVISION_CONFLICT");
  equal(stage.world.broker.topics.size, 1);
});

test("a tombstone keeps a topic away from publishers, consumers and requests until its time", async (stage) => {
  const { world } = stage;
  const subscriber = await world.client(encodeSub("t", "c"));
  const producer = await world.client(pub("t", "a"));
  equal([subscriber.take(), producer.take()], [["OK"], ["OK"]]);
  equal(
    await stage.manage("topics", "tombstone", { topic: "t", tombstone_ms: 60_000 }),
    [200, true, false],
  );
  await settle();
  equal(subscriber.take(), ["end"]);
  await producer.send(pub("t", "b"));
  equal(producer.take(), ["E_PUB_FAILED PUB failed topic is tombstoned", "end"]);
  const other = await world.client(encodeSub("t", "c"));
  const [text = ""] = other.take();
  match(text, /^E_SUB_FAILED .*topic is tombstoned$/);
  equal(await stage.ask("POST", "/pub?topic=t", "b"), [409, { message: "TOMBSTONED" }]);
  equal(await stage.manage("topics", "create", { topic: "t" }), [409, "TOMBSTONED"]);
  equal(world.broker.topics.size, 0);
  equal(await stage.ask("GET", "/v1/manage/tombstones"), [200, {
    limit: 4096,
    tombstones: [{ topic: "t", channel: null, until_ms: world.clock.wallMs() + 60_000 }],
  }]);
  world.clock.advance(60_000);
  equal((await stage.ask("GET", "/v1/manage/tombstones"))[1].tombstones, []);
  equal(await stage.ask("POST", "/pub?topic=t", "b"), [200, "OK"]);
});

test("a producer that has named itself is told that nothing is stored", async (stage) => {
  const { world } = stage;
  await stage.manage("topics", "tombstone", { topic: "t", tombstone_ms: 60_000 });
  const identify = { feature_negotiation: true, sluice_producer: "0123456789abcdef".repeat(2) };
  const producer = await world.client(encodeIdentify(identify));
  producer.take();
  await producer.send(sized("SPUB t 1\n", new TextEncoder().encode("a")));
  equal(producer.take(), ["E_THROTTLED SPUB topic is tombstoned", "end"]);
}, { identify: { producers: true } });

test("a tombstone of a channel leaves its topic alone, and one of 0 ms ends it", async (stage) => {
  const { world } = stage;
  world.broker.ensureChannel(world.broker.ensureTopic("t"), "c");
  const names = { topic: "t", channel: "c" };
  await stage.manage("channels", "delete", { ...names, tombstone_ms: 1000 });
  const refused = await world.client(encodeSub("t", "c"));
  match(refused.take()[0] ?? "", /^E_SUB_FAILED .*channel is tombstoned$/);
  const other = await world.client(encodeSub("t", "d"));
  equal(other.take(), ["OK"]);
  equal(await stage.manage("channels", "tombstone", { ...names, tombstone_ms: 0 }), [
    200,
    true,
    false,
  ]);
  equal(await stage.manage("channels", "create", names), [200, true, false]);
});

test("there are only so many tombstones, and those that have ended make room", async (stage) => {
  const { tombstones } = stage.world.broker.administration;
  const untilMs = stage.world.clock.wallMs() + 1000;
  for (let number = 0; number < 4096; number++) {
    tombstones.set({ topic: `t${number}`, channel: null, untilMs });
  }
  const asked = { topic: "one-more", tombstone_ms: 1000 };
  equal(await stage.manage("topics", "tombstone", asked), [429, "TOO_MANY_TOMBSTONES"]);
  equal(
    await stage.manage("topics", "tombstone", { topic: "t1", tombstone_ms: 10 }),
    [200, true, false],
  );
  stage.world.clock.advance(1000);
  equal(await stage.manage("topics", "tombstone", asked), [200, true, false]);
  equal(tombstones.all().length, 1);
});

test("channels that others know are made when a topic is, but for those kept away", async (stage) => {
  const { broker } = stage.world;
  broker.administration.knownChannels = () => Promise.resolve(["a", "b", "c"]);
  const untilMs = stage.world.clock.wallMs() + 1000;
  broker.administration.tombstones.set({ topic: "t", channel: "b", untilMs });
  const topic = broker.ensureTopic("t");
  await settle();
  equal([...topic.channels.keys()], ["a", "c"]);
});

test("a broker that stops refuses", async (stage) => {
  stage.world.broker.exiting = true;
  equal(await stage.manage("topics", "create", { topic: "t" }), [503, "EXITING"]);
});

test("a log that fails is told, and is no answer to remember", async (stage) => {
  stage.world.disk.failSyncs();
  const asked = { topic: "t", operation_id: ID };
  equal(await stage.manage("topics", "create", asked), [503, "STORAGE_FAULT"]);
  equal(stage.world.broker.management.rememberedCount, 0);
});
