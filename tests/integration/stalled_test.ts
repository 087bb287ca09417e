import { deepEqual, equal, ok } from "node:assert/strict";
import { Service, TemporaryFolder } from "./process.ts";
import { closeQuietly, connectQuietly, int32, join, RawClient, sized, text } from "./raw_client.ts";
import { eventually, within } from "./wait.ts";

const MIB = 2 ** 20;
/** What a broker without load takes is about 100 MiB; ring and page cache are kept small here. */
const FLAGS = [
  "--ring-bytes=16MiB",
  "--page-cache-bytes=8MiB",
  "--max-body-size=4MiB",
  "--publish-bytes-max=32MiB",
];
const RESIDENT_BYTES_MAX = 300 * MIB;

Deno.test("Consumers that never read cost no memory and delay nobody", async () => {
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path, FLAGS);
  await broker.createChannels("orders", "stalled", "mail");
  await using producer = await RawClient.connect(broker.tcpPort);
  // 256 MiB of backlog, far more than the bound on memory leaves room for.
  const body = "x".repeat(64 * 1024);
  for (let batch = 0; batch < 128; batch++) {
    await producer.mpub("orders", Array.from({ length: 32 }, () => body));
  }

  // Ten of them, each allowed 2500 messages of 64 KiB: 1.5 GiB if they were buffered.
  await using stalled = new AsyncDisposableStack();
  for (let number = 0; number < 10; number++) {
    const connection = await connectQuietly(broker.tcpPort);
    stalled.defer(() => closeQuietly(connection));
    await connection.write(text("  V2SUB orders stalled\nRDY 2500\n"));
  }
  await eventually(
    "messages in flight to the stalled consumers",
    async () => ((await broker.channel("orders", "stalled"))?.in_flight_count ?? 0) > 0,
  );

  await using consumer = await RawClient.connect(broker.tcpPort);
  let received = 0;
  consumer.onMessage = ({ id }) => {
    received++;
    consumer.fin(id);
  };
  await consumer.sub("orders", "mail");
  consumer.rdy(100);
  await eventually("the whole backlog at a consumer that reads", () => received === 128 * 32);
  for (let number = 0; number < 100; number++) await producer.pub("other", `m${number}`);
  checkMemory(broker);

  // What the stalled ones held goes to one that reads as soon as they are gone.
  await stalled.disposeAsync();
  await using successor = await RawClient.connect(broker.tcpPort);
  const ids = new Set<string>();
  successor.onMessage = ({ id }) => {
    ids.add(id);
    successor.fin(id);
  };
  await successor.sub("orders", "stalled");
  successor.rdy(100);
  await eventually("what was in flight", () => ids.size === 128 * 32);
  checkMemory(broker);
});

Deno.test("A stalled consumer that never answers is dropped with its messages given on", async () => {
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path, FLAGS);
  await broker.createChannels("orders", "mail");
  const silent = await connectQuietly(broker.tcpPort);
  try {
    // The shortest heartbeat there is: two of them unanswered end the connection.
    const identify = sized(text('{"heartbeat_interval":1000}'));
    await silent.write(join(text("  V2IDENTIFY\n"), identify, text("SUB orders mail\nRDY 10\n")));
    equal((await broker.post("/pub?topic=orders", "kept")).text, "OK");
    await eventually(
      "the message in flight",
      async () => (await broker.channel("orders", "mail"))?.in_flight_count === 1,
    );
    await using other = await RawClient.connect(broker.tcpPort);
    const attempts: number[] = [];
    other.onMessage = (delivery) => {
      attempts.push(delivery.attempts);
      other.fin(delivery.id);
    };
    await other.sub("orders", "mail");
    other.rdy(1);
    await eventually("the message at another consumer", () => attempts.length === 1);
    deepEqual(attempts, [2]);
    equal((await broker.channel("orders", "mail"))?.client_count, 1);
  } finally {
    closeQuietly(silent);
  }
});

Deno.test("Publishers that stop in the middle of a body take bounded memory and delay nobody", async () => {
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path, FLAGS);
  await broker.createChannels("orders", "mail");
  await using stalled = new AsyncDisposableStack();
  // Together they announce 1 GiB and send most of it; the budget for such bodies is 32 MiB.
  // What there is of each is a batch as it should be, so that none is refused early.
  const batch = join(int32(4), ...[1, 2, 3, 4].map(() => sized(new Uint8Array(MIB - 64))));
  const half = join(text("  V2MPUB orders\n"), sized(batch).subarray(0, 3 * MIB));
  const writes: Promise<unknown>[] = [];
  for (let number = 0; number < 256; number++) {
    const connection = await connectQuietly(broker.tcpPort);
    stalled.defer(() => closeQuietly(connection));
    // It does not have to be taken: a broker may stop reading.
    writes.push(connection.write(half).catch(() => {}));
  }
  await using client = await RawClient.connect(broker.tcpPort);
  const replies = Array.from({ length: 1_000 }, (_, number) => client.pub("orders", `m${number}`));
  await within("small publishes beside them", Promise.all(replies));
  await using consumer = await RawClient.connect(broker.tcpPort);
  const bodies = new Set<string>();
  consumer.onMessage = (delivery) => {
    bodies.add(delivery.body);
    consumer.fin(delivery.id);
  };
  await consumer.sub("orders", "mail");
  consumer.rdy(100);
  await eventually("all messages", () => bodies.size === 1_000);
  checkMemory(broker);
  await stalled.disposeAsync();
  await Promise.all(writes);
  // The budget is given back: a batch of full size goes through again.
  const bodies3MiB = [..."abc"].map((letter) => letter.repeat(MIB));
  await eventually("room for a large batch", async () => {
    await using other = await RawClient.connect(broker.tcpPort);
    return await other.mpub("orders", bodies3MiB).then(() => true, () => false);
  });
  equal((await broker.topic("orders"))?.message_count, 1_003);
});

Deno.test("A broker told to stop waits neither for stalled consumers nor for half bodies", async () => {
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path, [...FLAGS, "--shutdown-timeout=4s"]);
  await broker.createChannels("orders", "mail");
  await using producer = await RawClient.connect(broker.tcpPort);
  const body = "x".repeat(64 * 1024);
  for (let batch = 0; batch < 8; batch++) {
    await producer.mpub("orders", Array.from({ length: 32 }, () => body));
  }
  const consumer = await connectQuietly(broker.tcpPort);
  const publisher = await connectQuietly(broker.tcpPort);
  const poster = await connectQuietly(broker.httpPort);
  try {
    await consumer.write(text("  V2SUB orders mail\nRDY 2500\n"));
    await publisher.write(join(text("  V2PUB orders\n"), sized(new Uint8Array(9)).subarray(0, 8)));
    await poster.write(
      text("POST /pub?topic=orders HTTP/1.1\r\nHost: broker\r\nContent-Length: 9\r\n\r\nhalf"),
    );
    await eventually(
      "messages in flight",
      async () => ((await broker.channel("orders", "mail"))?.in_flight_count ?? 0) > 0,
    );
    equal(await broker.terminate(), 0, broker.log);
  } finally {
    for (const connection of [consumer, publisher, poster]) closeQuietly(connection);
  }
  await using again = await Service.broker(folder.path, FLAGS);
  equal((await again.channel("orders", "mail"))?.depth, 256);
});

Deno.test("Answers over HTTP that nobody reads delay nobody and cost bounded memory", async () => {
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path, FLAGS);
  // Many channels make an answer of some size.
  await broker.order("/topic/create?topic=orders");
  for (let number = 0; number < 200; number++) {
    await broker.order(`/channel/create?topic=orders&channel=c${number}`);
  }
  const request = text("GET /stats?format=json HTTP/1.1\r\nHost: broker\r\n\r\n");
  await using stalled = new AsyncDisposableStack();
  for (let number = 0; number < 50; number++) {
    const connection = await connectQuietly(broker.httpPort);
    stalled.defer(() => closeQuietly(connection));
    await connection.write(join(...Array.from({ length: 100 }, () => request)));
  }
  await using client = await RawClient.connect(broker.tcpPort);
  const replies = Array.from({ length: 1_000 }, (_, number) => client.pub("orders", `m${number}`));
  await within("publishes beside them", Promise.all(replies));
  equal((await broker.get("/ping")).text, "OK");
  checkMemory(broker);
});

Deno.test("One connection more than allowed is closed, the others stay, and room comes back", async () => {
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path, [...FLAGS, "--connections-max=5"]);
  await using clients = new AsyncDisposableStack();
  const first = clients.use(await RawClient.connect(broker.tcpPort));
  for (let number = 1; number < 5; number++) {
    await clients.use(await RawClient.connect(broker.tcpPort)).pub("orders", "one of five");
  }
  await using extra = await RawClient.connect(broker.tcpPort);
  await within("the end of the sixth connection", extra.closed());
  await first.pub("orders", "still one of five");
  await first[Symbol.asyncDispose]();
  await eventually("room for another", async () => {
    await using next = await RawClient.connect(broker.tcpPort);
    return await next.pub("orders", "the next").then(() => true, () => false);
  });
});

function checkMemory(broker: Service): void {
  const { residentBytesPeak } = broker;
  ok(residentBytesPeak < RESIDENT_BYTES_MAX, `${Math.round(residentBytesPeak / MIB)} MiB at most`);
}
