/** Topics and channels over the real storage on a simulated disk, across restarts. */
import { deepStrictEqual as equal, ok, rejects, throws } from "node:assert/strict";
import { encodeSub, utf8Bytes } from "@sluice/shared/protocol";
import { readWhole } from "@sluice/shared/runtime";
import { settle, SimDisk } from "@sluice/shared/testing";
import { type Broker, RefusedError } from "./broker.ts";
import type { Channel } from "./queue/mod.ts";
import { type Client, pub, sized, World, type WorldOptions } from "./server/world_test.ts";

/** What a new consumer of a channel is given at once, as `body #attempts`; it finishes all of it. */
async function drained(world: World, topic: string, channel: string): Promise<string[]> {
  const client = await world.client(encodeSub(topic, channel), "RDY 100\n");
  const got = client.take().filter((frame) => frame !== "OK");
  await client.send(client.ids.map((id) => `FIN ${id}\n`).join(""));
  client.close();
  await settle();
  return got;
}

function channelOf(world: World, topic: string, channel: string): Channel {
  const found = world.broker.topics.get(topic)?.channels.get(channel);
  ok(found !== undefined, `there is a channel ${topic}/${channel}`);
  return found;
}

/** Runs one broker after the other on one disk. */
async function lives(
  options: WorldOptions,
  ...tests: ((world: World) => Promise<void>)[]
): Promise<void> {
  const disk = new SimDisk();
  for (const test of tests) await World.use({ ...options, disk }, test);
}

async function publish(world: World, topic: string, ...bodies: string[]): Promise<Client> {
  const client = await world.client(...bodies.map((body) => pub(topic, body)));
  equal(client.take(), bodies.map(() => "OK"));
  return client;
}

function changes(broker: Broker): string[] {
  const notes: string[] = [];
  broker.administration.registry = {
    topicAdded: (topic) => notes.push(`+${topic}`),
    topicRemoved: (topic) => notes.push(`-${topic}`),
    channelAdded: (topic, channel) => notes.push(`+${topic}/${channel}`),
    channelRemoved: (topic, channel) => notes.push(`-${topic}/${channel}`),
  };
  return notes;
}

Deno.test("the first channel gets what was published before it, a second one only what comes after", async () => {
  await lives({}, async (world) => {
    await publish(world, "t", "a", "b");
    equal(world.broker.topics.get("t")?.depth, 2);
  }, async (world) => {
    equal(world.broker.topics.get("t")?.depth, 2);
    equal(await drained(world, "t", "first"), ["a #1", "b #1"]);
    equal(await drained(world, "t", "second"), []);
    await publish(world, "t", "c");
  }, async (world) => {
    equal(await drained(world, "t", "second"), ["c #1"]);
    equal(await drained(world, "t", "first"), ["c #1"]);
  }, async (world) => {
    equal(await drained(world, "t", "first"), []);
  });
});

Deno.test("when its last channel is deleted, a topic keeps what comes for the next one", async () => {
  await lives({}, async (world) => {
    await publish(world, "t", "a");
    const topic = world.broker.topics.get("t")!;
    await drained(world, "t", "c");
    await publish(world, "t", "lost");
    world.broker.administration.deleteChannel(topic, channelOf(world, "t", "c"));
    equal(topic.depth, 0);
    await publish(world, "t", "kept");
    equal(topic.depth, 1);
  }, async (world) => {
    equal(world.broker.topics.get("t")?.depth, 1);
    equal(await drained(world, "t", "c"), ["kept #1"]);
  });
});

Deno.test("what is in flight, requeued or half finished at a stop is owed after it", async () => {
  await lives({}, async (world) => {
    const consumer = await world.client(encodeSub("t", "c"), "RDY 9\n");
    await publish(world, "t", "a", "b", "d", "e");
    const [a, b, d] = consumer.ids;
    await consumer.send(`FIN ${b}\n`, `REQ ${a} 5000\n`, `REQ ${d} 0\n`);
    await consumer.send(sized("DPUB t 3000\n", utf8Bytes("late")));
    await world.clock.run(20);
  }, async (world) => {
    // Another clock: a new world starts at the same wall time.
    equal(world.counts("t", "c"), [2, 0, 2]);
    const consumer = await world.client(encodeSub("t", "c"), "RDY 9\n");
    // The requeue is durable, with its attempts; the flight is not.
    equal(consumer.take().sort(), ["OK", "d #2", "e #1"]);
    await world.clock.run(3100);
    equal(consumer.take(), ["late #1"]);
    await world.clock.run(2000);
    equal(consumer.take(), ["a #2"]);
  });
});

Deno.test("a paused channel and a paused topic stay so after a restart", async () => {
  await lives({}, async (world) => {
    await drained(world, "t", "c");
    await drained(world, "u", "c");
    const { broker } = world;
    broker.administration.pauseChannel(channelOf(world, "t", "c"), true);
    broker.administration.pauseTopic(broker.topics.get("u")!, true);
    await publish(world, "t", "a");
    await publish(world, "u", "b");
  }, async (world) => {
    const { broker } = world;
    const paused = await world.client(encodeSub("t", "c"), "RDY 5\n");
    const behind = await world.client(encodeSub("u", "c"), "RDY 5\n");
    equal([paused.take(), behind.take()], [["OK"], ["OK"]]);
    equal([world.counts("t", "c"), world.counts("u", "c")], [[1, 0, 0], [0, 0, 0]]);
    equal(broker.topics.get("u")?.depth, 1);
    broker.administration.pauseChannel(channelOf(world, "t", "c"), false);
    broker.administration.pauseTopic(broker.topics.get("u")!, false);
    await settle();
    equal([paused.take(), behind.take()], [["a #1"], ["b #1"]]);
  });
});

Deno.test("a topic paused before it has a channel gives the first ones nothing until it goes on", async () => {
  await lives({}, async (world) => {
    await publish(world, "t", "a");
    world.broker.administration.pauseTopic(world.broker.topics.get("t")!, true);
    await publish(world, "t", "b");
  }, async (world) => {
    const topic = world.broker.topics.get("t")!;
    equal(await drained(world, "t", "first"), []);
    equal(await drained(world, "t", "second"), []);
    equal(topic.depth, 2);
    world.broker.administration.pauseTopic(topic, false);
    equal(await drained(world, "t", "first"), ["a #1", "b #1"]);
    equal(await drained(world, "t", "second"), ["a #1", "b #1"]);
  });
});

Deno.test("emptying a topic drops what is kept for the first durable channel, also beside an ephemeral one", async () => {
  await lives({}, async (world) => {
    const reader = await world.client(encodeSub("t", "e#ephemeral"));
    await publish(world, "t", "a", "b");
    world.broker.administration.emptyTopic(world.broker.topics.get("t")!);
    await publish(world, "t", "c");
    equal(await drained(world, "t", "first"), ["c #1"]);
    reader.close();
    await settle();
  });
});

Deno.test("emptying a channel drops what it owes, for good", async () => {
  await lives({}, async (world) => {
    const consumer = await world.client(encodeSub("t", "c"), "RDY 2\n");
    await publish(world, "t", "a", "b", "d");
    await consumer.send(`REQ ${consumer.ids[0]} 60000\n`);
    channelOf(world, "t", "c").empty();
    equal(world.counts("t", "c"), [0, 0, 0]);
    await consumer.send(`FIN ${consumer.ids[1]}\n`);
    equal(consumer.take().at(-1), `E_FIN_FAILED FIN ${consumer.ids[1]} failed ID not in flight`);
    await publish(world, "t", "next");
  }, async (world) => {
    equal(world.counts("t", "c"), [1, 0, 0]);
    equal(await drained(world, "t", "c"), ["next #1"]);
  });
});

Deno.test("emptying a topic drops what no channel was given, and only that", async () => {
  await lives({}, async (world) => {
    const { broker } = world;
    await publish(world, "t", "a", "b");
    await world.client(sized("DPUB t 60000\n", utf8Bytes("late")));
    broker.administration.emptyTopic(broker.topics.get("t")!);
    equal(broker.topics.get("t")?.depth, 0);
    equal(await drained(world, "t", "c"), []);
    await publish(world, "t", "owed");
    broker.administration.emptyTopic(broker.topics.get("t")!);
    equal(world.counts("t", "c"), [1, 0, 0]);
    broker.administration.pauseTopic(broker.topics.get("t")!, true);
    await publish(world, "t", "behind", "the pause");
    equal(broker.topics.get("t")?.depth, 2);
    broker.administration.emptyTopic(broker.topics.get("t")!);
    equal(broker.topics.get("t")?.depth, 0);
    broker.administration.pauseTopic(broker.topics.get("t")!, false);
    await publish(world, "t", "after");
    equal(world.counts("t", "c"), [2, 0, 0]);
  }, async (world) => {
    equal(await drained(world, "t", "c"), ["owed #1", "after #1"]);
    await world.clock.run(100_000);
    equal(await drained(world, "t", "c"), []);
  });
});

Deno.test("a message that came due before there was a channel is the first channel's", async () => {
  await World.use({}, async (world) => {
    await world.client(sized("DPUB t 100\n", utf8Bytes("early")), pub("t", "x"));
    await world.client(sized("DPUB t 900\n", utf8Bytes("late")));
    await world.clock.run(200);
    equal((await drained(world, "t", "c")).sort(), ["early #1", "x #1"]);
    equal(world.counts("t", "c"), [0, 0, 1]);
    await world.clock.run(700);
    equal(await drained(world, "t", "c"), ["late #1"]);
  });
});

Deno.test("a deleted topic is gone with its messages, and its name is free again", async () => {
  await lives({}, async (world) => {
    const notes = changes(world.broker);
    await publish(world, "t", "a");
    const consumer = await world.client(encodeSub("t", "c"));
    world.broker.administration.deleteTopic(world.broker.topics.get("t")!);
    await settle();
    equal(consumer.take(), ["OK", "end"]);
    equal(notes, ["+t", "+t/c", "-t"]);
    await publish(world, "t", "b");
  }, async (world) => {
    equal(world.broker.topics.get("t")?.channels.size, 0);
    equal(await drained(world, "t", "c"), ["b #1"]);
  });
});

Deno.test("a producer whose topic was deleted makes it again", async () => {
  await World.use({}, async (world) => {
    const producer = await publish(world, "t", "a");
    world.broker.administration.deleteTopic(world.broker.topics.get("t")!);
    await producer.send(pub("t", "b"));
    equal(producer.take(), ["OK"]);
    equal(await drained(world, "t", "c"), ["b #1"]);
  });
});

Deno.test("an ephemeral channel goes with its last consumer, an ephemeral topic with its last channel", async () => {
  await World.use({}, async (world) => {
    const notes = changes(world.broker);
    const first = await world.client(encodeSub("t#ephemeral", "c#ephemeral"));
    const second = await world.client(encodeSub("t#ephemeral", "c#ephemeral"));
    const durable = await world.client(encodeSub("u", "c#ephemeral"));
    first.close();
    await settle();
    equal(world.broker.topics.get("t#ephemeral")?.channels.size, 1);
    second.close();
    durable.close();
    await settle();
    equal([...world.broker.topics.keys()], ["u"]);
    equal(notes, [
      "+t#ephemeral",
      "+t#ephemeral/c#ephemeral",
      "+u",
      "+u/c#ephemeral",
      "-t#ephemeral/c#ephemeral",
      "-t#ephemeral",
      "-u/c#ephemeral",
    ]);
  });
});

Deno.test("an ephemeral topic that never had a channel stays until a restart", async () => {
  await lives({}, async (world) => {
    await publish(world, "t#ephemeral", "a");
    await drained(world, "u#ephemeral", "c");
    equal([...world.broker.topics.keys()], ["t#ephemeral", "u#ephemeral"]);
  }, (world) => {
    equal([...world.broker.topics.keys()], []);
    return Promise.resolve();
  });
});

Deno.test("a topic gets the channels that others know before its first message", async () => {
  await World.use({}, async (world) => {
    const asked: string[] = [];
    let answer: (names: string[]) => void = () => {};
    world.broker.administration.knownChannels = (topic) => {
      asked.push(topic);
      return new Promise((resolve) => answer = resolve);
    };
    await publish(world, "t", "a");
    // One that joins meanwhile gets everything too.
    equal(await drained(world, "t", "own"), ["a #1"]);
    await publish(world, "t", "b");
    answer(["known", "gone#ephemeral"]);
    await settle();
    equal([...world.broker.topics.get("t")!.channels.keys()], ["own", "known"]);
    equal(await drained(world, "t", "known"), ["a #1", "b #1"]);
    equal(await drained(world, "t", "later"), []);
    equal(asked, ["t"]);
  });
});

Deno.test("channels that others know beyond the limit are left out", async () => {
  await World.use({ broker: { channelsPerTopicMax: 3 } }, async (world) => {
    const names = Array.from({ length: 5 }, (_, index) => `c${index}`);
    world.broker.administration.knownChannels = () => Promise.resolve(names);
    await publish(world, "t", "a");
    equal([...world.broker.topics.get("t")!.channels.keys()], ["c0", "c1", "c2"]);
    equal(world.broker.topics.get("t")!.state.settled, true);
  });
});

Deno.test("more channels than a group holds are made all the same", async () => {
  await World.use({ broker: { channelsPerTopicMax: 2000 } }, async (world) => {
    const names = Array.from({ length: 2000 }, (_, index) => `channel-${index}`);
    world.broker.administration.knownChannels = () => Promise.resolve(names);
    await publish(world, "t", "a");
    await settle();
    equal(world.broker.topics.get("t")?.channels.size, 2000);
  });
});

Deno.test("what is due is looked at within five seconds of a jump of the wall clock", async () => {
  await World.use({}, async (world) => {
    const consumer = await world.client(encodeSub("t", "c"), "RDY 1\n");
    await consumer.send(sized("DPUB t 3600000\n", utf8Bytes("late")));
    await world.clock.run(1000);
    world.clock.jumpWall(3_600_000);
    await world.clock.run(5000);
    equal(consumer.take(), ["OK", "OK", "late #1"]);
  });
});

Deno.test("a thousand deferrals are each kept to the millisecond, with one timer", async () => {
  await World.use({ storage: { ringBytes: 1_048_576 } }, async (world) => {
    const consumer = await world.client(encodeSub("t", "c"), "RDY 2500\n");
    const producer = await world.client();
    const { pendingTimers } = world.clock;
    for (let index = 0; index < 1000; index++) {
      producer.write(sized(`DPUB t ${1 + (index * 7919) % 1000}\n`, utf8Bytes(String(index))));
    }
    await settle();
    equal(world.counts("t", "c"), [0, 0, 1000]);
    ok(world.clock.pendingTimers <= pendingTimers + 1);
    consumer.take();
    await world.clock.run(500);
    equal(consumer.take().length, 500);
    await world.clock.run(1);
    equal(consumer.take().length, 1);
    await world.clock.run(499);
    equal(consumer.take().length, 499);
  });
});

Deno.test("durableTo() resolves when the log is that far, and rejects when it never will be", async () => {
  await World.use({}, async (world) => {
    const { broker } = world;
    const release = world.disk.hold();
    broker.ensureTopic("t");
    let done = false;
    const durable = broker.durableTo(broker.position).then(() => done = true);
    await settle();
    equal(done, false);
    release();
    await durable;
    await broker.durableTo(broker.position);
    broker.ensureTopic("u");
    world.disk.failSyncs();
    await rejects(broker.durableTo(broker.position), /the disk is broken/);
    throws(() => broker.ensureTopic("v"), RefusedError);
  });
});

Deno.test("stage() hands out so much memory and no more", async () => {
  await World.use({ broker: { publishBytesMax: 100 } }, ({ broker }) => {
    equal([broker.stage(60), broker.stage(41), broker.stage(40)], [true, false, true]);
    broker.unstage(60);
    equal([broker.stage(61), broker.stage(60)], [false, true]);
    broker.unstage(100);
    return Promise.resolve();
  });
});

Deno.test("finishes that fill their bound are written, and FINs go on", async () => {
  // A bound of 1024 finishes, and an interval that never ends.
  await World.use({ storage: { finishSyncIntervalMs: 1_000_000 } }, async (world) => {
    const consumer = await world.client(encodeSub("t", "c"), "RDY 2500\n");
    for (let round = 0; round < 3; round++) {
      for (let index = 0; index < 20; index++) {
        const bodies = Array.from({ length: 100 }, () => pub("t", "x"));
        await (await world.client(...bodies)).end();
      }
      await settle();
      await consumer.send(consumer.ids.splice(0).map((id) => `FIN ${id}\n`).join(""));
      await settle();
    }
    equal(world.counts("t", "c"), [0, 0, 0]);
    equal(consumer.take().filter((frame) => frame === "x #1").length, 6000);
  });
});

/** What the audit trail has, without the times. */
async function audited(world: World): Promise<unknown[]> {
  const events: unknown[] = [];
  for (const path of world.simDisk.files().filter((path) => path.startsWith("/data/audit/"))) {
    const text = new TextDecoder().decode(await readWhole(world.simDisk, path, 1 << 20));
    for (const line of text.split("\n").slice(0, -1)) {
      const { at: _at, ...event } = JSON.parse(line);
      events.push(event);
    }
  }
  return events;
}

Deno.test("what is deleted or emptied is recorded with its counts, what is ephemeral is not", async () => {
  const world = await World.open();
  const { broker } = world;
  await publish(world, "t", "a", "b");
  broker.administration.emptyTopic(broker.ensureTopic("t"));
  const topic = broker.ensureTopic("t");
  const channel = broker.ensureChannel(topic, "c");
  const brief = broker.ensureChannel(topic, "brief#ephemeral");
  await publish(world, "t", "d", "e", "f");
  channel.empty();
  await publish(world, "t", "g");
  brief.empty();
  broker.administration.deleteChannel(topic, brief);
  broker.administration.deleteChannel(topic, channel);
  await publish(world, "t", "h", "i");
  broker.ensureChannel(topic, "c2");
  await publish(world, "t", "j");
  broker.administration.deleteTopic(topic);
  broker.administration.deleteTopic(broker.ensureTopic("brief#ephemeral"));
  await world.close();
  equal(await audited(world), [
    { event: "topic_emptied", topic: "t", messages: 2 },
    { event: "channel_emptied", topic: "t", channel: "c", messages: 3 },
    { event: "channel_deleted", topic: "t", channel: "c", messages: 1 },
    { event: "topic_deleted", topic: "t", messages: 0, channels: 1, owed: 3 },
  ]);
});

Deno.test("damage that a start finds is recorded and makes the broker degraded", async () => {
  const disk = new SimDisk();
  const first = await World.open({ disk });
  await publish(first, "t", "a damaged message");
  await publish(first, "t", "a good one");
  await first.close();
  const path = disk.files().find((path) => path.endsWith(".log"))!;
  const at = new TextDecoder("latin1").decode(disk.bytes(path)).indexOf("a damaged message");
  disk.flipBit(path, at, 0);
  const second = await World.open({ disk });
  const { status, accepting, reasons } = second.broker.health();
  equal([status, accepting], ["degraded", true]);
  const since = new Date(second.clock.wallMs()).toISOString();
  equal(reasons, [{ code: "damaged", message: "1 damaged place in the log", since }]);
  await second.close();
  const [event] = await audited(second) as { event: string; position: number }[];
  equal(event?.event, "log_damaged");
  equal(event?.position, second.broker.storage.opening.damage[0]?.position);
});
