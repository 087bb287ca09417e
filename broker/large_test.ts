/** Large messages through the TCP door of a broker on a simulated disk: in parts in, in parts out. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { encodePub, encodeSub, utf8Bytes } from "@sluice/shared/protocol";
import { RECORD_HEADER_BYTES } from "@sluice/shared/log";
import { settle, SimDisk } from "@sluice/shared/testing";
import { UPLOAD_PART_MS_MAX } from "./large_upload.ts";
import { type Client, int32, pub, sized, World, type WorldOptions } from "./server/world_test.ts";

/** Parts of 4 KiB, 8 KiB of them in a group, bodies above 1000 bytes are large. */
const LARGE: WorldOptions = {
  storage: { largeBodyBytes: 1000, logFileBytes: 32_768 },
  session: { messageBytesMax: 1 << 20, bodyBytesMax: 1 << 21 },
};

/** A text that is different everywhere, so that a part out of place shows. */
function bodyOf(bytes: number, seed = 1): string {
  let text = "";
  for (let at = seed; text.length < bytes; at++) text += `${at}.`;
  return text.slice(0, bytes);
}

async function filesOf({ broker }: World): Promise<readonly number[]> {
  await broker.storage.drain();
  await broker.storage.maintain();
  await broker.storage.maintain();
  return broker.storage.logFiles.map(({ start }) => start);
}

/** Waits for the disk and for connections until nothing more happens. */
async function rest(world: World): Promise<void> {
  for (let round = 0; round < 20; round++) {
    await settle();
    await world.clock.run(1);
  }
}

async function finishAll(client: Client): Promise<void> {
  await client.send(client.ids.splice(0).map((id) => `FIN ${id}\n`).join(""));
}

// Failures ---------------------------------------------------------------------------------------

Deno.test("an upload that ends in the middle leaves no message, no memory, and its bytes are reclaimed", async () => {
  await World.use(LARGE, async (world) => {
    const { broker } = world;
    const client = await world.client(sized("PUB t\n", utf8Bytes(bodyOf(90_000)), 200_000));
    await rest(world);
    equal(broker.uploads.size, 1);
    equal(broker.stagedBytes, 4096);
    client.close();
    await rest(world);
    equal([broker.uploads.size, broker.stagedBytes, broker.topics.size], [0, 0, 0]);
    const { abandonedBytes, published } = broker.storage.large.counters;
    ok(abandonedBytes > 80_000 && abandonedBytes <= 90_000, `${abandonedBytes}`);
    equal(published, 0);
    const other = await world.client(pub("t", "small"));
    await rest(world);
    equal(other.take(), ["OK"]);
    const first = broker.storage.logFiles[0]!.start;
    equal(first, 0);
    const drain = await world.client(encodeSub("t", "c"), "RDY 1\n");
    equal(drain.take(), ["OK", "small #1"]);
    await finishAll(drain);
    for (let round = 0; round < 3; round++) {
      await other.send(pub("t", bodyOf(30_000)), pub("t", bodyOf(30_000)));
      await rest(world);
      await drain.send("RDY 10\n");
      await rest(world);
      await finishAll(drain);
      await rest(world);
      await filesOf(world);
    }
    ok(broker.storage.logFiles[0]!.start > 90_000, "the abandoned parts are gone");
  });
});

Deno.test("an upload that stalls is closed after a minute, heartbeats or not, and holds nobody up", async () => {
  await World.use(LARGE, async (world) => {
    const identify = sized("IDENTIFY\n", utf8Bytes(`{"heartbeat_interval":-1}`));
    const client = await world.client(identify, sized("PUB t\n", utf8Bytes(bodyOf(9000)), 50_000));
    equal(client.take().length, 1);
    const other = await world.client(identify, pub("t", bodyOf(20_000)), pub("t", "small"));
    await rest(world);
    equal(other.take().slice(1), ["OK", "OK"]);
    await world.clock.run(UPLOAD_PART_MS_MAX / 2);
    await client.send(utf8Bytes(bodyOf(4096)));
    await world.clock.run(UPLOAD_PART_MS_MAX / 2 + 2000);
    equal([client.take(), world.broker.uploads.size], [[], 1], "a part was completed meanwhile");
    await world.clock.run(UPLOAD_PART_MS_MAX);
    equal([client.take(), world.broker.uploads.size], [["end"], 0]);
  });
});

Deno.test("an upload that waits for a disk of ours is not stalled", async () => {
  await World.use(LARGE, async (world) => {
    const identify = sized("IDENTIFY\n", utf8Bytes(`{"heartbeat_interval":-1}`));
    const client = await world.client(identify, pub("t", bodyOf(5000)));
    await rest(world);
    const release = world.disk.hold();
    await client.send("PUB t\n", int32(60_000), bodyOf(60_000));
    await world.clock.run(3 * UPLOAD_PART_MS_MAX);
    equal([world.broker.uploads.size, client.take().slice(1)], [1, ["OK"]]);
    release();
    await rest(world);
    equal(client.take(), ["OK"]);
  });
});

Deno.test("without memory for a part an upload is refused; small publishes still go", async () => {
  await World.use({ ...LARGE, broker: { publishBytesMax: 16_384 } }, async (world) => {
    const starts = [0, 1, 2].map(() => world.client("PUB t\n", int32(60_000)));
    for (const client of await Promise.all(starts)) equal(client.take(), []);
    // Three quarters of the memory are in use: what large bodies may have at most; parts are small
    // here, so they may have all of it.
    const fourth = await world.client("PUB t\n", int32(60_000));
    const fifth = await world.client("PUB t\n", int32(60_000));
    equal(fourth.take(), []);
    equal(fifth.take(), ["E_THROTTLED PUB too many bytes are being received", "end"]);
    fourth.close();
    await rest(world);
    const small = await world.client(pub("t", "small"));
    await rest(world);
    equal(small.take(), ["OK"]);
  });
});

Deno.test("a body above the limit is refused as before, with nothing taken", async () => {
  await World.use(LARGE, async (world) => {
    const client = await world.client("PUB t\n", int32(2 ** 20 + 1));
    equal(client.take(), ["E_BAD_MESSAGE PUB message too big 1048577 > 1048576", "end"]);
    equal(world.broker.uploads.size, 0);
  });
});

Deno.test("a damaged part closes the connection inside the frame; the message never comes again", async () => {
  const body = bodyOf(30_000);
  const disk = new SimDisk();
  await World.use({ ...LARGE, disk }, async (world) => {
    const client = await world.client(pub("t", body), pub("t", "after"));
    await rest(world);
    equal(client.take(), ["OK", "OK"]);
  });
  await World.use({ ...LARGE, disk }, async (world) => {
    const path = disk.files().find((name) => name.endsWith(".log"))!;
    // In the third part: two were sent before anybody could know.
    const at = indexOf(disk.bytes(path), utf8Bytes(body.slice(9000, 9100)));
    disk.flipBit(path, at, 3);
    const client = await world.client(encodeSub("t", "c"), "RDY 2\n");
    await rest(world);
    equal(client.take(), ["OK", "end"]);
    ok(client.bytesRead < 9000, "not one byte of the damaged part");
    equal(world.broker.source.damagedCount, 1);
    equal(world.broker.deliveryMemory.usedBytes, 0);
    const again = await world.client(encodeSub("t", "c"), "RDY 2\n");
    await rest(world);
    equal(again.take(), ["OK", "after #1"]);
    await finishAll(again);
    equal(world.counts("t", "c"), [0, 0, 0]);
  });
  await World.use({ ...LARGE, disk }, async (world) => {
    const client = await world.client(encodeSub("t", "c"), "RDY 2\n");
    await rest(world);
    equal(client.take(), ["OK"]);
  });
});

Deno.test("a disk that cannot be read ends the connection, and the message comes again whole", async () => {
  const body = bodyOf(30_000);
  const disk = new SimDisk();
  await World.use({ ...LARGE, disk }, async (world) => {
    await world.client(pub("t", body));
    await rest(world);
  });
  await World.use({ ...LARGE, disk }, async (world) => {
    const client = await world.client(encodeSub("t", "c"));
    const topic = world.broker.topics.get("t")!.state;
    await world.broker.source.load(topic, 0);
    disk.failNext({ operation: "read", kind: "io", skip: 1 });
    await client.send("RDY 1\n");
    await world.clock.run(2000);
    equal(client.take(), ["OK", "end"]);
    equal([world.broker.source.damagedCount, world.counts("t", "c")[0]], [0, 1]);
    const again = await world.client(encodeSub("t", "c"), "RDY 1\n");
    await rest(world);
    equal(again.take(), ["OK", `${body} #2`]);
  });
});

Deno.test("a consumer that reads nothing of a large message costs one part, and its connection", async () => {
  await World.use(LARGE, async (world) => {
    const identify = sized("IDENTIFY\n", utf8Bytes(`{"heartbeat_interval":1000}`));
    const publisher = await world.client(pub("t", bodyOf(500_000)));
    await rest(world);
    equal(publisher.take(), ["OK"]);
    const stuck = await world.rawClient(false);
    await stuck.send("  V2", identify, encodeSub("t", "c"), "RDY 5\n");
    await rest(world);
    equal(world.broker.deliveryMemory.usedBytes, 4096);
    const other = await world.client(encodeSub("t", "other"), "RDY 1\n", pub("u", "x"));
    await rest(world);
    equal(other.take().includes("OK"), true);
    await world.clock.run(2500);
    equal([world.server.sessions.size, world.counts("t", "c")], [2, [1, 0, 0]]);
    equal(world.broker.deliveryMemory.usedBytes, 0);
  });
});

// Promises ---------------------------------------------------------------------------------------

Deno.test("a large message arrives whole, byte by byte or at once, and survives a restart", async () => {
  const body = bodyOf(50_000);
  const disk = new SimDisk();
  await World.use({ ...LARGE, disk }, async (world) => {
    const command = encodePub("t", utf8Bytes(body));
    const client = await world.client();
    for (let at = 0; at < command.length;) {
      const end = at + 1 + (at * 7919) % 5000;
      await client.send(command.subarray(at, end));
      at = Math.min(end, command.length);
    }
    await client.send("NOP\n", pub("t", "small"), `DPUB t 60000\n`, int32(body.length), body);
    await rest(world);
    equal(client.take(), ["OK", "OK", "OK"]);
    const consumer = await world.client(encodeSub("t", "c"), "RDY 5\n");
    await rest(world);
    equal(consumer.take(), ["OK", `${body} #1`, "small #1"]);
    equal(world.counts("t", "c"), [0, 2, 1]);
    equal(world.broker.storage.large.counters.delivered, 1);
  });
  await World.use({ ...LARGE, disk }, async (world) => {
    const consumer = await world.client(encodeSub("t", "c"), "RDY 5\n");
    await rest(world);
    equal(consumer.take(), ["OK", `${body} #1`, "small #1"]);
    await finishAll(consumer);
    await world.clock.run(60_000);
    await rest(world);
    equal(consumer.take().filter((frame) => frame !== "_heartbeat_"), [`${body} #1`]);
  });
});

Deno.test("what is to be said to a client waits behind the body, and comes then", async () => {
  await World.use(LARGE, async (world) => {
    const body = bodyOf(300_000);
    await world.client(pub("t", body), pub("t", "next"));
    await rest(world);
    const identify = sized("IDENTIFY\n", utf8Bytes(`{"heartbeat_interval":60000}`));
    const slow = await world.rawClient(false);
    await slow.send("  V2", identify, encodeSub("t", "c"), "RDY 5\n");
    await slow.send("PUB u\n", int32(1), "x");
    await rest(world);
    slow.read();
    await rest(world);
    equal(slow.take().slice(1), ["OK", `${body} #1`, "OK", "next #1"]);
  });
});

Deno.test("the timeout of a large message runs from its last byte, not from its first", async () => {
  await World.use({ ...LARGE, bufferBytesMax: 4096 }, async (world) => {
    const body = bodyOf(40_000);
    await world.client(pub("t", body));
    await rest(world);
    const identify = sized(
      "IDENTIFY\n",
      utf8Bytes(`{"heartbeat_interval":60000,"msg_timeout":1000}`),
    );
    const slow = await world.rawClient(false);
    await slow.send("  V2", identify, encodeSub("t", "c"), "RDY 1\n");
    await rest(world);
    const buffer = new Uint8Array(4096);
    let bytes = 0;
    for (let round = 0; round < 9; round++) {
      bytes += await slow.connection.read(buffer) ?? 0;
      await settle();
      await world.clock.run(600);
    }
    equal(world.counts("t", "c"), [0, 1, 0], `${bytes} bytes in 5.4 seconds`);
    while (bytes < body.length) {
      bytes += await slow.connection.read(buffer) ?? 0;
      await settle();
    }
    equal(world.counts("t", "c"), [0, 1, 0]);
    await world.clock.run(1100);
    equal(world.broker.topics.get("t")!.channels.get("c")!.timeoutCount, 1);
  });
});

Deno.test("MPUB stores a large message among small ones in parts, in order, under one OK", async () => {
  await World.use(LARGE, async (world) => {
    const bodies = ["a", bodyOf(20_000), "b", bodyOf(999), bodyOf(40_000, 5), "c"];
    const parts = bodies.flatMap((body) => [int32(body.length), utf8Bytes(body)]);
    const content = new Uint8Array([
      ...int32(bodies.length),
      ...parts.flatMap((part) => [...part]),
    ]);
    const client = await world.client(sized("MPUB t\n", content), pub("t", "last"));
    await rest(world);
    equal(client.take(), ["OK", "OK"]);
    equal(world.broker.storage.large.counters.published, 2);
    const consumer = await world.client(encodeSub("t", "c"), "RDY 10\n");
    await rest(world);
    equal(consumer.take(), ["OK", ...[...bodies, "last"].map((body) => `${body} #1`)]);
  });
});

Deno.test("no group has more than its share of parts, however many bodies come at once", async () => {
  await World.use(LARGE, async (world) => {
    const sizes: number[] = [];
    const { log } = world.broker.storage;
    let before = log.end;
    world.broker.await({
      durable(end) {
        sizes.push(end - before);
        before = end;
        return true;
      },
      failed() {},
    });
    const clients = await Promise.all(
      Array.from({ length: 10 }, (_, index) => world.client(pub(`t${index}`, bodyOf(50_000)))),
    );
    await rest(world);
    for (const client of clients) equal(client.take(), ["OK"]);
    ok(sizes.length > 40, `${sizes.length} groups`);
    ok(
      Math.max(...sizes) < 8192 + 4096 + 2048 + 8192,
      `the largest has ${Math.max(...sizes)} bytes`,
    );
  });
});

Deno.test("parts in earlier files keep them until the message is finished, over restarts", async () => {
  const body = bodyOf(150_000);
  const disk = new SimDisk();
  const options = { ...LARGE, disk };
  await World.use(options, async (world) => {
    const client = await world.client(encodeSub("t", "c"), pub("t", body));
    await rest(world);
    equal(client.take(), ["OK", "OK"]);
    equal(world.broker.topics.get("t")!.state.largePins.length, 1);
    equal((await filesOf(world))[0], 0);
  });
  // Twice: from the checkpoint, and with a later one that carries it on.
  for (let round = 0; round < 2; round++) {
    await World.use(options, async (world) => {
      equal(world.broker.topics.get("t")!.state.largePins.length, 1);
      const client = await world.client(encodeSub("u", "c"), "RDY 5\n");
      for (let count = 0; count < 3; count++) {
        await client.send(pub("u", bodyOf(40_000)));
        await rest(world);
        await finishAll(client);
        await rest(world);
      }
      equal((await filesOf(world))[0], 0);
    });
  }
  await World.use(options, async (world) => {
    const client = await world.client(encodeSub("t", "c"), "RDY 1\n");
    await rest(world);
    equal(client.take(), ["OK", `${body} #1`]);
    await finishAll(client);
    const other = await world.client(encodeSub("u", "c"), "RDY 5\n");
    for (let count = 0; count < 3; count++) {
      await other.send(pub("u", bodyOf(40_000)));
      await rest(world);
      await finishAll(other);
      await rest(world);
      await filesOf(world);
    }
    ok((await filesOf(world))[0]! > 150_000, "all of the message is gone");
    equal(world.broker.topics.get("t")!.state.largePins, []);
  });
});

Deno.test("an upload under way keeps what it has written", async () => {
  await World.use(LARGE, async (world) => {
    const body = bodyOf(60_000);
    const slow = await world.client("PUB t\n", int32(body.length), body.slice(0, 20_000));
    const client = await world.client(encodeSub("u", "c"), "RDY 5\n");
    const busy = async () => {
      for (let count = 0; count < 4; count++) {
        await client.send(pub("u", bodyOf(40_000)));
        await rest(world);
        await finishAll(client);
        await rest(world);
        await filesOf(world);
      }
    };
    await busy();
    equal(world.broker.storage.logFiles[0]!.start, 0);
    await slow.send(body.slice(20_000));
    await rest(world);
    equal(slow.take(), ["OK"]);
    await busy();
    equal(world.broker.storage.logFiles[0]!.start, 0);
    const consumer = await world.client(encodeSub("t", "c"), "RDY 5\n");
    await rest(world);
    equal(consumer.take(), ["OK", `${body} #1`]);
    await finishAll(consumer);
    await busy();
    ok(world.broker.storage.logFiles[0]!.start > 0);
  });
});

Deno.test("eviction gives up a large message whose parts are in the oldest file", async () => {
  const options: WorldOptions = {
    ...LARGE,
    broker: { guard: { minFreeBytes: 0, logBytesMax: 300_000 }, eviction: { afterMs: 5000 } },
  };
  await World.use(options, async (world) => {
    const { broker } = world;
    const client = await world.client(encodeSub("t", "c"), pub("t", bodyOf(100_000)));
    await rest(world);
    equal(broker.topics.get("t")!.state.largePins.length, 1);
    while (broker.guard.refusal() === null) {
      await client.send(pub("t", bodyOf(30_000)));
      await rest(world);
    }
    await world.clock.run(30_000);
    ok(broker.evictor.fileCount > 0);
    ok(broker.storage.logFiles[0]!.start > 0, "the file has gone");
    ok(broker.topics.get("t")!.state.liveFrom > 0);
  });
});

Deno.test("a topic at its limit refuses a large message before it is sent", async () => {
  const quota = { bytesMax: 50_000, action: "refuse" } as const;
  await World.use({ ...LARGE, broker: { quota } }, async (world) => {
    const client = await world.client(encodeSub("t", "c"), pub("t", bodyOf(60_000)));
    await rest(world);
    equal(client.take(), ["OK", "OK"], "one command may go beyond it");
    await client.send("PUB t\n", int32(60_000));
    equal(client.take(), ["E_THROTTLED PUB the topic has reached its limit", "end"]);
  });
});

Deno.test("the first part raises the folder's level, and no small message does", async () => {
  await World.use(LARGE, async (world) => {
    const level = () => new TextDecoder().decode(world.simDisk.bytes("/data/COMPATIBILITY"));
    const client = await world.client(pub("t", "small"));
    equal([client.take(), level()], [["OK"], `{"reader":1,"writer":1}\n`]);
    await client.send(pub("t", bodyOf(2000)));
    await rest(world);
    equal([client.take(), level()], [["OK"], `{"reader":3,"writer":3}\n`]);
  });
});

/** Where `wanted` begins in `bytes`. */
function indexOf(bytes: Uint8Array, wanted: Uint8Array): number {
  for (let at = RECORD_HEADER_BYTES; at + wanted.length <= bytes.length; at++) {
    if (wanted.every((byte, index) => bytes[at + index] === byte)) return at;
  }
  throw new Error("Cannot find the bytes");
}
