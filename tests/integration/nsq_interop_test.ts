/**
 * Our services beside the programs of NSQ itself. Skipped, with the reason printed, on a machine
 * that has none; see peers.ts.
 */
import { deepEqual, equal, match, ok } from "node:assert/strict";
import { TestReader, TestWriter } from "./nsqjs.ts";
import { found, LOOPBACK, peer, startPeer, testWithNsq } from "./nsq.ts";
import { Process, runToEnd, Service, TemporaryFolder } from "./process.ts";
import { eventually } from "./wait.ts";

testWithNsq("A broker registers with nsqlookupd, and nsq_tail finds it there", async () => {
  await using folder = await TemporaryFolder.create();
  await using lookup = await startPeer("nsqlookupd", LOOPBACK);
  await using broker = await Service.broker(folder.path, [
    `--lookupd-tcp-address=${lookup.tcpAddress}`,
  ]);
  const lines = Array.from({ length: 50 }, (_, number) => `line ${number}`);
  const published = await runToEnd(peer("to_nsq"), [
    "--topic=orders",
    `--nsqd-tcp-address=${broker.tcpAddress}`,
  ], lines.join("\n") + "\n");
  equal(published.code, 0, published.stderr);
  await found(lookup, "orders", broker.tcpPort);
  const { text } = await lookup.get("/nodes");
  match(text, new RegExp(`"http_port":${broker.httpPort}`));
  const tailed = await runToEnd(peer("nsq_tail"), [
    "--topic=orders",
    "--n=50",
    `--lookupd-http-address=${lookup.httpAddress}`,
  ]);
  deepEqual(tailed.stdout.trim().split("\n").sort(), lines.sort());

  equal(await broker.terminate(), 0);
  await eventually(
    "the broker to be gone from nsqlookupd",
    async () => !(await lookup.get("/nodes")).text.includes('"tcp_port"'),
  );
});

testWithNsq("A broker registers again with an nsqlookupd that was away", async () => {
  await using folder = await TemporaryFolder.create();
  const first = await startPeer("nsqlookupd", LOOPBACK);
  await using stack = new AsyncDisposableStack();
  stack.use(first);
  await using broker = await Service.broker(folder.path, [
    `--lookupd-tcp-address=${first.tcpAddress}`,
  ]);
  await broker.createChannels("orders", "mail");
  await found(first, "orders", broker.tcpPort);
  await first.kill();
  await broker.createChannels("bills", "print");
  const second = stack.use(
    await startPeer("nsqlookupd", [
      `--tcp-address=${first.tcpAddress}`,
      "--http-address=127.0.0.1:0",
      "--broadcast-address=127.0.0.1",
    ]),
  );
  await found(second, "orders", broker.tcpPort);
  await found(second, "bills", broker.tcpPort);
  match((await second.get("/channels?topic=bills")).text, /"print"/);
});

testWithNsq("A new topic takes its channels from nsqlookupd", async () => {
  await using folder = await TemporaryFolder.create();
  await using lookup = await startPeer("nsqlookupd", LOOPBACK);
  await using broker = await Service.broker(folder.path, [
    `--lookupd-tcp-address=${lookup.tcpAddress}`,
  ]);
  await lookup.order("/topic/create?topic=orders");
  await lookup.order("/channel/create?topic=orders&channel=mail");
  await broker.order("/pub?topic=orders", "first");
  await eventually(
    "the message in the channel",
    async () => (await broker.channel("orders", "mail"))?.depth === 1,
  );
});

testWithNsq("nsqd registers with our discovery service, and nsqjs consumes from both", async () => {
  await using ours = await TemporaryFolder.create();
  await using theirs = await TemporaryFolder.create();
  await using discovery = await Service.start("discovery");
  const lookupFlag = `--lookupd-tcp-address=${discovery.tcpAddress}`;
  await using nsqd = await startPeer("nsqd", [
    ...LOOPBACK,
    `--data-path=${theirs.path}`,
    lookupFlag,
  ]);
  await using broker = await Service.broker(ours.path, [lookupFlag]);
  for (const node of [nsqd, broker]) {
    await node.order("/topic/create?topic=orders");
    await node.order("/channel/create?topic=orders&channel=mail");
    await found(discovery, "orders", node.tcpPort);
  }
  await using reader = new TestReader("orders", "mail", {
    lookupdHTTPAddresses: [discovery.httpAddress],
    maxInFlight: 10,
  });
  await reader.connected(2);
  await using toNsqd = await TestWriter.connect(nsqd.tcpPort);
  await using toUs = await TestWriter.connect(broker.tcpPort);
  await toNsqd.publish("orders", ["a", "b"]);
  await toUs.publish("orders", ["c", "d"]);
  await reader.received(4);
  deepEqual(reader.bodies.toSorted(), ["a", "b", "c", "d"]);

  equal(await nsqd.terminate(), 0);
  await eventually(
    "nsqd to be gone",
    async () => !(await discovery.get("/nodes")).text.includes(`"tcp_port":${nsqd.tcpPort}`),
  );
  await found(discovery, "orders", broker.tcpPort);
});

testWithNsq("nsq_to_file writes every message it finds through our discovery service", async () => {
  await using folder = await TemporaryFolder.create();
  await using output = await TemporaryFolder.create();
  await using discovery = await Service.start("discovery");
  await using broker = await Service.broker(folder.path, [
    `--lookupd-tcp-address=${discovery.tcpAddress}`,
  ]);
  await broker.createChannels("orders", "file");
  await found(discovery, "orders", broker.tcpPort);
  const lines = Array.from({ length: 500 }, (_, number) => `line ${number}`);
  await broker.order("/mpub?topic=orders", lines.join("\n"));
  await using writer = new Process("nsq_to_file", peer("nsq_to_file"), [
    "--topic=orders",
    "--channel=file",
    `--output-dir=${output.path}`,
    `--lookupd-http-address=${discovery.httpAddress}`,
  ]);
  // It answers a message once it has written it, and syncs before it ends.
  await eventually("all messages delivered", async () => {
    const figures = await broker.channel("orders", "file");
    return figures?.depth === 0;
  });
  equal(await writer.terminate(), 0);
  const written = new Set<string>();
  for await (const { name } of Deno.readDir(output.path)) {
    const content = await Deno.readTextFile(`${output.path}/${name}`);
    for (const line of content.trim().split("\n")) written.add(line);
  }
  ok(written.size > 0);
  deepEqual([...written].filter((line) => !lines.includes(line)), []);
  // What it was given and had not written when it was stopped is still owed.
  await eventually("its consumer gone", async () => {
    const figures = await broker.channel("orders", "file");
    return figures?.in_flight_count === 0 && figures.client_count === 0;
  });
  const owed = (await broker.channel("orders", "file"))?.depth ?? 0;
  ok(written.size + owed >= lines.length, `${written.size} written, ${owed} owed`);
});

testWithNsq("nsqadmin shows and changes what our services have", async () => {
  await using folder = await TemporaryFolder.create();
  await using discovery = await Service.start("discovery");
  await using broker = await Service.broker(folder.path, [
    `--lookupd-tcp-address=${discovery.tcpAddress}`,
  ]);
  await using admin = await startPeer("nsqadmin", [
    "--http-address=127.0.0.1:0",
    `--lookupd-http-address=${discovery.httpAddress}`,
  ]);
  await eventually(
    "the broker at nsqadmin",
    async () => (await admin.get("/api/nodes")).text.includes(`"tcp_port":${broker.tcpPort}`),
  );
  await admin.order("/api/topics", JSON.stringify({ topic: "orders", channel: "mail" }));
  await broker.order("/pub?topic=orders", "one");
  await eventually(
    "the channel of the new topic",
    async () => (await broker.channel("orders", "mail"))?.depth === 1,
  );
  match((await admin.get("/api/topics")).text, /"orders"/);
  match((await admin.get("/api/topics/orders/mail")).text, /"depth":1\b/);
  await admin.order("/api/topics/orders/mail", JSON.stringify({ action: "pause" }));
  equal((await broker.channel("orders", "mail"))?.paused, true);
  await admin.order("/api/topics/orders/mail", JSON.stringify({ action: "empty" }));
  equal((await broker.channel("orders", "mail"))?.depth, 0);
  const response = await fetch(`http://${admin.httpAddress}/api/topics/orders`, {
    method: "DELETE",
  });
  await response.body?.cancel();
  equal(response.status, 200);
  equal(await broker.topic("orders"), undefined);
});
