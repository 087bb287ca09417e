/** Whole connections in a simulated world: order of replies, durability, heartbeats, limits. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { encodeMpubBody, encodeSub, utf8Bytes } from "@sluice/shared/protocol";
import { settle } from "@sluice/shared/testing";
import { int32, pub, sized, World } from "./world_test.ts";
import { LINGER_BYTES_MAX, LINGER_MS_MAX } from "@sluice/shared/server";

const SUB = encodeSub("t", "c");
const BEAT_1S = identify('{"heartbeat_interval":1000}');
const STORAGE_ERROR = "E_PUB_FAILED PUB failed the log cannot be written";

// Publishing and the disk

Deno.test("a publish is confirmed and delivered only once its sync is done", async () => {
  await World.use({}, async (world) => {
    const consumer = await world.client(SUB, "RDY 9\n");
    const release = world.disk.hold();
    const producer = await world.client(pub("t", "a"), sized("DPUB t 0\n", utf8Bytes("b")));
    await world.clock.run(100);
    equal([producer.take(), consumer.take()], [[], ["OK"]]);
    release();
    await settle();
    equal([producer.take(), consumer.take()], [["OK", "OK"], ["a #1", "b #1"]]);
  });
});

Deno.test("many publishes share a sync", async () => {
  await World.use({}, async (world) => {
    const release = world.disk.hold();
    const producers = [];
    for (let index = 0; index < 10; index++) {
      producers.push(await world.client(pub("t", "a"), pub("t", "b")));
    }
    const { syncs } = world.disk;
    release();
    await settle();
    for (const producer of producers) equal(producer.take(), ["OK", "OK"]);
    ok(world.disk.syncs - syncs <= 1);
  });
});

Deno.test("no reply overtakes the OK of a publish before it", async () => {
  await World.use({}, async (world) => {
    const first = await world.client(SUB);
    const release = world.disk.hold();
    await first.send(
      pub("t", "a"),
      "FIN 0001000000000fff\n",
      pub("t", "b"),
      "CLS\n",
      pub("t", "d"),
    );
    const second = await world.client(pub("t", "a"), encodeSub("t", "new"), pub("t", "b"));
    const third = await world.client(pub("t", "a"), identify("{}"), "ASDF\n", pub("t", "never"));
    equal([first.take(), second.take(), third.take()], [["OK"], [], []]);
    release();
    await settle();
    equal(first.take(), [
      "OK",
      "E_FIN_FAILED FIN 0001000000000fff failed ID not in flight",
      "OK",
      "CLOSE_WAIT",
      "OK",
    ]);
    equal(second.take(), ["OK", "OK", "OK"]);
    equal(third.take(), ["OK", "OK", "E_INVALID invalid command ASDF", "end"]);
  });
});

Deno.test("no message overtakes the OK to SUB", async () => {
  await World.use({}, async (world) => {
    await world.client(pub("t", "a"));
    const release = world.disk.hold();
    const consumer = await world.client(SUB, "RDY 5\n");
    await world.clock.run(50);
    equal(consumer.take(), []);
    release();
    await settle();
    equal(consumer.take(), ["OK", "a #1"]);
  });
});

Deno.test("a failed log confirms nothing: E_PUB_FAILED and the end", async () => {
  await World.use({}, async (world) => {
    const consumer = await world.client(SUB, "RDY 5\n");
    const release = world.disk.hold();
    const producer = await world.client(pub("t", "a"), pub("t", "b"));
    const other = await world.client(sized("MPUB u\n", encodeMpubBody([utf8Bytes("x")])));
    world.disk.failSyncs();
    release();
    await settle();
    equal(producer.take(), [STORAGE_ERROR, "end"]);
    equal(other.take(), [STORAGE_ERROR, "end"]);
    equal([consumer.take(), world.failures.length], [["OK"], 1]);
    equal((await world.client(pub("t", "x"))).take(), [STORAGE_ERROR, "end"]);
    equal((await world.client(SUB)).take(), [
      "E_SUB_FAILED SUB failed the log cannot be written",
      "end",
    ]);
  });
});

Deno.test("a failed log lets an ephemeral consumer go in peace", async () => {
  await World.use({}, async (world) => {
    const consumer = await world.client(encodeSub("t#ephemeral", "c#ephemeral"));
    const release = world.disk.hold();
    await consumer.send(pub("t#ephemeral", "x"));
    world.disk.failSyncs();
    release();
    await settle();
    equal(consumer.take(), ["OK", STORAGE_ERROR, "end"]);
  });
});

Deno.test("a publisher waits when there is no room, and goes on when there is", async () => {
  await World.use({}, async (world) => {
    const release = world.disk.hold();
    const producer = await world.client();
    for (let index = 0; index < 100; index++) producer.write(pub("t", "x".repeat(1000)));
    await settle();
    // Half of the ring is all that may wait for the disk.
    ok(world.broker.storage.log.end - world.broker.storage.log.durableEnd <= 32 * 1024 + 4096);
    equal(producer.take(), []);
    await world.clock.run(20_000);
    equal(producer.take(), []);
    release();
    await settle();
    equal(producer.take().filter((frame) => frame === "OK").length, 100);
    equal(world.broker.topics.get("t")?.messageCount, 100);
  });
});

Deno.test("waiting for the disk is not taken for a silent client", async () => {
  await World.use({}, async (world) => {
    const release = world.disk.hold();
    const producer = await world.client(BEAT_1S);
    for (let index = 0; index < 100; index++) producer.write(pub("t", "x".repeat(1000)));
    await world.clock.run(10_000);
    equal(producer.state, "open");
    release();
    await world.clock.run(500);
    equal([producer.take().filter((frame) => frame === "OK").length, producer.state], [
      101,
      "open",
    ]);
    await world.clock.run(3_000);
    equal(producer.state, "end");
  });
});

Deno.test("FIN, REQ and SUB wait for room too, in their order", async () => {
  await World.use({}, async (world) => {
    const consumer = await world.client(SUB, "RDY 2\n");
    const producer = await world.client(pub("t", "a"), pub("t", "b"));
    equal([producer.take(), consumer.take()], [["OK", "OK"], ["OK", "a #1", "b #1"]]);
    const release = world.disk.hold();
    for (let index = 0; index < 60; index++) producer.write(pub("u", "x".repeat(1000)));
    // And to the last byte.
    await world.client(...Array.from({ length: 20 }, () => pub("u", "x")));
    const late = await world.client(encodeSub("v", "c"), pub("v", "z"));
    const [a, b] = consumer.ids;
    await consumer.send(`REQ ${b} 0\nFIN ${a}\nFIN ${a}\n`);
    equal([consumer.take(), late.take()], [[], []]);
    release();
    await settle();
    equal(consumer.take(), [`E_FIN_FAILED FIN ${a} failed ID not in flight`, "b #2"]);
    equal(late.take(), ["OK", "OK"]);
  });
});

Deno.test("MPUB is one OK for all its messages, which come in order", async () => {
  await World.use({}, async (world) => {
    const consumer = await world.client(SUB, "RDY 9\n");
    const bodies = ["a", "bb", "ccc"].map(utf8Bytes);
    const producer = await world.client(sized("MPUB t\n", encodeMpubBody(bodies)));
    equal([producer.take(), consumer.take()], [["OK"], ["OK", "a #1", "bb #1", "ccc #1"]]);
  });
});

Deno.test("MPUB of more messages than a group holds is written piece by piece", async () => {
  const count = 20_000;
  const options = { session: { bodyBytesMax: 200_000, messageBytesMax: 1000 } };
  await World.use(options, async (world) => {
    const bodies = Array.from({ length: count }, () => Uint8Array.of(120));
    const producer = await world.client(
      sized("MPUB t\n", encodeMpubBody(bodies)),
      pub("t", "last"),
    );
    equal(producer.take(), ["OK", "OK"]);
    const topic = world.broker.topics.get("t");
    equal([topic?.messageCount, topic?.depth], [count + 1, count + 1]);
    const consumer = await world.client(SUB, "RDY 2500\n");
    let received = 0;
    while (received < count + 1) {
      const got = consumer.take().filter((frame) => frame.endsWith("#1")).length;
      ok(got > 0);
      received += got;
      await consumer.send(consumer.ids.splice(0).map((id) => `FIN ${id}\n`).join(""));
    }
    await settle();
    equal(world.counts("t", "c"), [0, 0, 0]);
  });
});

Deno.test("MPUB is refused as soon as a part of it cannot be right, with nothing published", async () => {
  await World.use({}, async (world) => {
    const tooMany = await world.client("MPUB t\n", int32(5000), int32(4000));
    equal(tooMany.take(), ["E_BAD_BODY MPUB invalid message count 4000", "end"]);
    const tooBig = await world.client("MPUB t\n", int32(5000), int32(2), int32(1), "a");
    equal(tooBig.take(), []);
    await tooBig.send(int32(1001));
    equal(tooBig.take(), ["E_BAD_MESSAGE MPUB message too big 1001 > 1000", "end"]);
    const wrongSize = await world.client(sized(
      "MPUB t\n",
      new Uint8Array([
        ...encodeMpubBody([utf8Bytes("a")]),
        0,
      ]),
    ));
    equal(wrongSize.take(), ["E_BAD_BODY MPUB body size 10 does not match its messages", "end"]);
    equal(world.broker.topics.size, 0);
  });
});

Deno.test("MPUB that announces less than it sends is taken whole, as nsqd takes it", async () => {
  await World.use({}, async (world) => {
    const bodies = ["one", "two", "three"].map(utf8Bytes);
    const body = encodeMpubBody(bodies);
    // What a client sends that adds up the bodies alone.
    const command = new Uint8Array([...utf8Bytes("MPUB t\n"), ...int32(11), ...body]);
    const whole = await world.client(command);
    equal(whole.take(), ["OK"]);
    for (let cut = 1; cut < command.length; cut += 3) {
      const client = await world.client(command.slice(0, cut));
      await client.send(command.slice(cut), pub("t", "after"));
      equal(client.take(), ["OK", "OK"], `cut at ${cut}`);
    }
    const beyond = await world.client(
      "MPUB t\n",
      int32(4),
      int32(6),
      int32(1000),
      "x".repeat(1000),
    );
    for (let sent = 1; sent < 5; sent++) await beyond.send(int32(1000), "x".repeat(1000));
    equal(beyond.take(), ["E_BAD_BODY MPUB body too big 5024 > 5000", "end"]);
    equal(world.broker.stagedBytes, 0);
    equal(world.broker.topics.get("t")?.messageCount, 3 + Math.ceil((command.length - 1) / 3) * 4);
  });
});

Deno.test("bodies that arrive in parts share a budget; beyond it comes E_THROTTLED", async () => {
  await World.use({ broker: { publishBytesMax: 2500 } }, async (world) => {
    const first = await world.client("PUB t\n", int32(1000), "x");
    const second = await world.client("PUB t\n", int32(1000), "x");
    equal(world.broker.stagedBytes, 2000);
    const third = await world.client("PUB t\n", int32(1000), "x");
    equal(third.take(), ["E_THROTTLED PUB too many bytes are being received", "end"]);
    // What comes whole needs none of it.
    equal((await world.client(pub("t", "y".repeat(900)))).take(), ["OK"]);
    await first.send("x".repeat(999));
    equal([first.take(), world.broker.stagedBytes], [["OK"], 1000]);
    second.close();
    await settle();
    equal(world.broker.stagedBytes, 0);
  });
});

// The life of a message

Deno.test("a consumer gets what was published before and after it, and answers", async () => {
  await World.use({}, async (world) => {
    const producer = await world.client(pub("t", "a"));
    const consumer = await world.client(identify('{"msg_timeout":1000}'), SUB, "RDY 1\n");
    equal(consumer.take(), ["OK", "OK", "a #1"]);
    await producer.send(pub("t", "b"));
    equal(consumer.take(), []);
    const [a] = consumer.ids;
    await consumer.send(`REQ ${a} 0\n`);
    equal(consumer.take(), ["b #1"]);
    await consumer.send(`FIN ${consumer.ids[1]}\n`);
    equal(consumer.take(), ["a #2"]);
    await world.clock.run(900);
    await consumer.send(`TOUCH ${a}\n`);
    await world.clock.run(900);
    equal(consumer.take(), []);
    await world.clock.run(100);
    equal(consumer.take(), ["a #3"]);
    await consumer.send(`FIN ${a}\n`, `FIN ${a}\n`);
    equal(consumer.take(), [`E_FIN_FAILED FIN ${a} failed ID not in flight`]);
    equal(world.counts("t", "c"), [0, 0, 0]);
  });
});

Deno.test("a message of another consumer cannot be answered", async () => {
  await World.use({}, async (world) => {
    const owner = await world.client(SUB, "RDY 1\n");
    const other = await world.client(SUB, "RDY 0\n", pub("t", "a"));
    const [id] = owner.ids;
    await other.send(`FIN ${id}\n`, `REQ ${id} 0\n`, `TOUCH ${id}\n`);
    equal(other.take(), [
      "OK",
      "OK",
      `E_FIN_FAILED FIN ${id} failed client does not own message`,
      `E_REQ_FAILED REQ ${id} failed client does not own message`,
      `E_TOUCH_FAILED TOUCH ${id} failed client does not own message`,
    ]);
    equal(world.counts("t", "c"), [0, 1, 0]);
  });
});

Deno.test("CLS stops delivery and leaves what is in flight to be answered", async () => {
  await World.use({}, async (world) => {
    const consumer = await world.client(SUB, "RDY 1\n", pub("t", "a"), pub("t", "b"));
    await consumer.send("CLS\n", `REQ ${consumer.ids[0]} 0\n`);
    equal(consumer.take(), ["OK", "OK", "OK", "a #1", "CLOSE_WAIT"]);
    equal(world.counts("t", "c"), [2, 0, 0]);
    consumer.close();
    await settle();
    const next = await world.client(SUB, "RDY 5\n");
    equal(next.take().sort(), ["OK", "a #2", "b #1"]);
  });
});

Deno.test("what a closed connection had in flight comes again at once", async () => {
  await World.use({}, async (world) => {
    const first = await world.client(SUB, "RDY 5\n", pub("t", "a"), pub("t", "b"));
    const second = await world.client(SUB, "RDY 5\n");
    equal(second.take(), ["OK"]);
    first.close();
    await settle();
    equal(second.take(), ["a #2", "b #2"]);
  });
});

Deno.test("a deferred message comes when it is due", async () => {
  await World.use({}, async (world) => {
    const consumer = await world.client(SUB, "RDY 5\n", sized("DPUB t 700\n", utf8Bytes("late")));
    equal([consumer.take(), world.counts("t", "c")], [["OK", "OK"], [0, 0, 1]]);
    await world.clock.run(699);
    equal(consumer.take(), []);
    await world.clock.run(1);
    equal([consumer.take(), world.counts("t", "c")], [["late #1"], [0, 1, 0]]);
  });
});

Deno.test("deleting a channel ends its consumers' streams without a frame", async () => {
  await World.use({}, async (world) => {
    const consumer = await world.client(SUB);
    const topic = world.broker.topics.get("t")!;
    world.broker.administration.deleteChannel(topic, topic.channels.get("c")!);
    await settle();
    equal(consumer.take(), ["OK", "end"]);
  });
});

Deno.test("a sampling consumer gets its share; the rest is gone", async () => {
  await World.use({ storage: { ringBytes: 1_048_576 } }, async (world) => {
    const consumer = await world.client(identify('{"sample_rate":42}'), SUB, "RDY 2500\n");
    const bodies = Array.from({ length: 900 }, () => utf8Bytes("x"));
    for (let round = 0; round < 4; round++) {
      await world.client(sized("MPUB t\n", encodeMpubBody(bodies)));
    }
    const [depth, inFlight, deferred] = world.counts("t", "c");
    equal([depth, deferred], [0, 0]);
    ok(inFlight > 3600 * 0.37 && inFlight < 3600 * 0.47, String(inFlight));
    equal(consumer.take().length, inFlight + 2);
  });
});

Deno.test("hundreds of messages time out together and come again together", async () => {
  await World.use({ storage: { ringBytes: 1_048_576 } }, async (world) => {
    const consumer = await world.client(identify('{"msg_timeout":1000}'), SUB, "RDY 2500\n");
    const bodies = Array.from({ length: 250 }, () => utf8Bytes("x"));
    await world.client(sized("MPUB t\n", encodeMpubBody(bodies)));
    equal(consumer.take().length, 252);
    await world.clock.run(999);
    equal(consumer.take(), []);
    await world.clock.run(1);
    equal(consumer.take(), bodies.map(() => "x #2"));
    equal(world.broker.topics.get("t")?.channels.get("c")?.timeoutCount, 250);
  });
});

// Heartbeats and ends

Deno.test("heartbeats come at the interval, and two of them unanswered end it in silence", async () => {
  await World.use({}, async (world) => {
    const client = await world.client(BEAT_1S);
    await world.clock.run(999);
    equal(client.take(), ["OK"]);
    await world.clock.run(1);
    equal(client.take(), ["_heartbeat_"]);
    await client.send("NOP\n");
    await world.clock.run(1000);
    equal(client.take(), ["_heartbeat_"]);
    await world.clock.run(999);
    equal(client.take(), []);
    await world.clock.run(1);
    equal(client.take(), ["end"]);
  });
});

Deno.test("a client that only publishes or answers is not silent", async () => {
  await World.use({}, async (world) => {
    const client = await world.client(BEAT_1S);
    for (let second = 0; second < 10; second++) {
      await client.send(pub("t", "x"));
      await world.clock.run(1000);
    }
    equal(client.take().filter((frame) => frame === "_heartbeat_").length, 10);
    equal(client.state, "open");
  });
});

Deno.test("before IDENTIFY the interval is the server's", async () => {
  await World.use({}, async (world) => {
    const silent = await world.rawClient();
    const client = await world.client();
    await world.clock.run(30_000);
    equal([client.take(), silent.take()], [["_heartbeat_"], ["_heartbeat_"]]);
    await world.clock.run(30_000);
    equal([client.take(), silent.take()], [["end"], ["end"]]);
  });
});

Deno.test("with heartbeats off, silence is fine for ever", async () => {
  await World.use({}, async (world) => {
    const client = await world.client(identify('{"heartbeat_interval":-1}'));
    await world.clock.run(1_000_000);
    await client.send("NOP\n", pub("t", "x"));
    equal(client.take(), ["OK", "OK"]);
  });
});

Deno.test("a client that ended its direction still gets the answers it is owed", async () => {
  await World.use({}, async (world) => {
    const release = world.disk.hold();
    const client = await world.client(pub("t", "a"), pub("t", "b"));
    await client.end();
    await world.clock.run(5_000);
    equal(client.take(), []);
    release();
    await settle();
    equal(client.take(), ["OK", "OK", "end"]);
  });
});

Deno.test("a client that ended its direction is not waited for longer than ten seconds", async () => {
  await World.use({}, async (world) => {
    const release = world.disk.hold();
    const client = await world.client(pub("t", "a"));
    await client.end();
    await world.clock.run(9_999);
    equal(client.take(), []);
    await world.clock.run(1);
    equal(client.take(), ["end"]);
    release();
    await settle();
  });
});

Deno.test("a connection that breaks under a write or a held reply leaves nothing behind", async () => {
  await World.use({}, async (world) => {
    const release = world.disk.hold();
    const client = await world.client(pub("t", "a"));
    const half = await world.client("PUB t\n", int32(900), "x");
    client.close();
    half.close();
    await settle();
    release();
    await settle();
    equal([world.server.sessions.size, world.broker.stagedBytes], [0, 0]);
    equal(world.broker.topics.get("t")?.depth, 1);
  });
});

// Slow and hostile peers

Deno.test("a consumer that never reads costs bounded memory, nobody else, and its connection", async () => {
  const options = { bufferBytesMax: 4096, storage: { ringBytes: 1_048_576 } };
  await World.use(options, async (world) => {
    const stalled = await world.rawClient(false);
    await stalled.send("  V2", BEAT_1S, SUB, "RDY 2500\n");
    const body = "x".repeat(1000);
    const producer = await world.client();
    for (let index = 0; index < 1000; index++) producer.write(pub("t", body));
    await settle();
    await world.clock.run(1);
    const { consumer } = [...world.server.sessions].find((it) => it.subscription !== null)!
      .subscription!;
    // Two buffers of 64 KiB and what the connection itself holds.
    ok(consumer.messageCount >= 64 && consumer.messageCount <= 140, String(consumer.messageCount));
    const reader = await world.client(SUB, "RDY 2500\n");
    await world.clock.run(500);
    equal(reader.take().length, 1 + 1000 - consumer.messageCount);
    await world.clock.run(400);
    equal(world.server.sessions.size, 3);
    // Its write is overdue after one interval, seen at the beat after that.
    await world.clock.run(1_200);
    equal(world.server.sessions.size, 2);
    equal(reader.take().length, consumer.messageCount);
    equal(world.counts("t", "c"), [0, 1000, 0]);
  });
});

Deno.test("a publisher that stops in the middle of a body harms nobody and is closed", async () => {
  await World.use({}, async (world) => {
    const stalled = await world.client(BEAT_1S, "PUB t\n", int32(1000), "half");
    const other = await world.client(pub("t", "x"));
    equal(other.take(), ["OK"]);
    await world.clock.run(2000);
    equal([stalled.take(), world.broker.stagedBytes], [["OK", "_heartbeat_", "end"], 0]);
  });
});

Deno.test("a client that does not read its replies is not read from", async () => {
  await World.use({ bufferBytesMax: 4096 }, async (world) => {
    const client = await world.rawClient(false);
    await client.send("  V2", SUB);
    const line = "FIN 0001000000000fff\n".repeat(3000);
    for (let index = 0; index < 100; index++) client.write(line);
    await settle();
    const session = [...world.server.sessions][0]!;
    ok(session.blocked !== null);
    client.read();
    await settle();
    equal(client.take().filter((frame) => frame.startsWith("E_FIN")).length, 300_000);
  });
});

Deno.test("replies that wait for the disk are bounded as well", async () => {
  await World.use({}, async (world) => {
    const client = await world.client(SUB);
    const release = world.disk.hold();
    client.write(pub("t", "x"));
    const line = "FIN 0001000000000fff\n".repeat(3000);
    for (let index = 0; index < 10; index++) client.write(line);
    await settle();
    ok([...world.server.sessions][0]!.blocked !== null);
    equal(client.take(), ["OK"]);
    release();
    await settle();
    const frames = client.take();
    equal([frames[0], frames.length], ["OK", 30_001]);
  });
});

Deno.test("a connection too many is closed at once", async () => {
  await World.use({ connectionsMax: 1 }, async (world) => {
    const first = await world.client(pub("t", "x"));
    equal((await world.client(pub("t", "x"))).take(), ["end"]);
    equal([first.take(), world.server.refusedCount], [["OK"], 1]);
  });
});

// After a fatal error

Deno.test("after a fatal error what still comes is dropped until the client closes", async () => {
  await World.use({}, async (world) => {
    const client = await world.client("ASDF\n", pub("t", "never"), "x".repeat(100_000));
    equal(client.take(), ["E_INVALID invalid command ASDF", "end"]);
    equal(world.server.sessions.size, 1);
    client.close();
    await settle();
    equal([world.server.sessions.size, world.broker.topics.size], [0, 0]);
  });
});

Deno.test("a client that does not close after a fatal error is closed after a second", async () => {
  await World.use({}, async (world) => {
    await world.client("ASDF\n");
    await world.clock.run(LINGER_MS_MAX - 1);
    equal(world.server.sessions.size, 1);
    await world.clock.run(1);
    equal(world.server.sessions.size, 0);
  });
});

Deno.test("a client that sends on and on after a fatal error is closed after 8 MiB", async () => {
  await World.use({}, async (world) => {
    const client = await world.client("ASDF\n");
    const part = new Uint8Array(1_048_576);
    for (let sent = 0; sent < LINGER_BYTES_MAX; sent += part.length) await client.send(part);
    equal(world.server.sessions.size, 1);
    await client.send("x");
    equal(world.server.sessions.size, 0);
  });
});

Deno.test("a consumer gets no message after its fatal error; what it had goes back", async () => {
  await World.use({}, async (world) => {
    const release = world.disk.hold();
    const consumer = await world.client(SUB, "RDY 5\n");
    release();
    await settle();
    await consumer.send(pub("t", "a"));
    const again = world.disk.hold();
    await consumer.send(pub("t", "b"), "ASDF\n");
    again();
    await settle();
    equal(consumer.take(), ["OK", "OK", "a #1", "OK", "E_INVALID invalid command ASDF", "end"]);
    equal(world.counts("t", "c"), [2, 0, 0]);
  });
});

// Shutdown

Deno.test("closing the server answers what was accepted, then ends every stream", async () => {
  await World.use({}, async (world) => {
    const release = world.disk.hold();
    const producer = await world.client(pub("t", "a"));
    const idle = await world.client(SUB);
    const closing = world.server.close();
    await settle();
    release();
    await world.clock.runUntil(closing, 0);
    await settle();
    equal([producer.take(), idle.take()], [["OK", "end"], ["OK", "end"]]);
  });
});

Deno.test("closing the server does not wait for a client that does not read", async () => {
  await World.use({ bufferBytesMax: 1024 }, async (world) => {
    const stalled = await world.rawClient(false);
    await stalled.send("  V2", SUB, "RDY 100\n");
    await world.client(...Array.from({ length: 20 }, () => pub("t", "x".repeat(500))));
    const closing = world.server.close();
    await world.clock.run(999);
    equal(world.server.sessions.size, 1);
    await world.clock.runUntil(closing, 1);
    equal(world.counts("t", "c"), [20, 0, 0]);
  });
});

function identify(json: string): Uint8Array {
  return sized("IDENTIFY\n", utf8Bytes(json));
}
