/**
 * A gateway as a process between producers and brokers: nsqjs, HTTP and NSQ's own tools publish to it,
 * and consumers find every message at the brokers, once.
 */
import { deepEqual, equal, match, ok } from "node:assert/strict";
import { Buffer } from "node:buffer";
import { tlsAuthority, tlsPath } from "@sluice/shared/testing";
import { LOOPBACK, peer, startPeer, testWithNsq } from "./nsq.ts";
import { TestReader, TestWriter } from "./nsqjs.ts";
import { HttpProcess, type Outcome, runToEnd, Service, TemporaryFolder } from "./process.ts";
import { eventually } from "./wait.ts";

/** Starts a gateway on free ports, with its own permissions, and waits until it answers. */
async function startGateway(...args: string[]): Promise<HttpProcess> {
  const gateway = new HttpProcess("gateway", Deno.execPath(), [
    "run",
    "--quiet",
    "-P=gateway",
    "gateway/main.ts",
    ...["--tcp-address", "--http-address"]
      .filter((flag) => !args.some((given) => given.startsWith(flag)))
      .map((flag) => `${flag}=127.0.0.1:0`),
    ...args,
  ]);
  try {
    await gateway.ready();
    return gateway;
  } catch (error) {
    await gateway[Symbol.asyncDispose]();
    throw error;
  }
}

function ctl(gateway: HttpProcess, command: string, ...args: string[]): Promise<Outcome> {
  return runToEnd(Deno.execPath(), [
    "run",
    "--quiet",
    "-P=ctl",
    "ctl/main.ts",
    "quarantine",
    command,
    `--gateway-http-address=${gateway.httpAddress}`,
    ...args,
  ]);
}

async function usable(gateway: HttpProcess, count = 1): Promise<void> {
  await eventually(`${count} brokers at the gateway`, async () => {
    const { text } = await gateway.get("/v1/health");
    return JSON.parse(text).brokers?.usable === count;
  });
}

/** Publishes over HTTP; resolves with whether it is in the spool. Fails unless the answer is 200. */
async function publish(gateway: HttpProcess, path: string, body: string): Promise<boolean> {
  const response = await fetch(`http://${gateway.httpAddress}${path}`, { method: "POST", body });
  deepEqual([response.status, await response.text()], [200, "OK"]);
  return response.headers.get("sluice-spooled") === "true";
}

async function spoolDepth(gateway: HttpProcess): Promise<number> {
  return JSON.parse((await gateway.get("/v1/health")).text).spool.depth;
}

Deno.test("nsqjs publishes through a gateway, and reads from the brokers that discovery names", async () => {
  await using firstFolder = await TemporaryFolder.create();
  await using secondFolder = await TemporaryFolder.create();
  await using discovery = await Service.start("discovery");
  const flag = `--lookupd-tcp-address=${discovery.tcpAddress}`;
  await using first = await Service.broker(firstFolder.path, [flag]);
  await using second = await Service.broker(secondFolder.path, [flag]);
  for (const broker of [first, second]) await broker.createChannels("orders", "mail");
  await using gateway = await startGateway(`--discovery-http-address=${discovery.httpAddress}`);
  await usable(gateway, 2);
  await using reader = new TestReader("orders", "mail", {
    lookupdHTTPAddresses: [discovery.httpAddress],
    maxInFlight: 20,
  });
  await reader.connected(2);
  await using writer = await TestWriter.connect(gateway.tcpPort);
  const singles = Array.from({ length: 100 }, (_, number) => `single ${number}`);
  await Promise.all(singles.map((text) => writer.publish("orders", text)));
  const batch = Array.from({ length: 50 }, (_, number) => `batch ${number}`);
  await writer.publish("orders", batch);
  const publishedMs = performance.now();
  await writer.publishLater("orders", "later", 400);
  equal(await publish(gateway, "/pub?topic=orders", "by http"), false);
  await publish(gateway, "/mpub?topic=orders", "line 1\nline 2\n");
  const all = [...singles, ...batch, "later", "by http", "line 1", "line 2"];
  await reader.received(all.length);
  deepEqual(reader.bodies.toSorted(), all.toSorted());
  ok(performance.now() - publishedMs >= 400);
  deepEqual(reader.errors, []);
  const figures = await Promise.all([first.topic("orders"), second.topic("orders")]);
  ok(figures.every((one) => (one?.message_count ?? 0) > 0), "both brokers have some");
  equal(await gateway.terminate(), 0);
});

Deno.test("nsqjs publishes to a gateway over TLS and Snappy with a secret, and to no other topic", async () => {
  await using folder = await TemporaryFolder.create();
  await using etc = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path);
  await broker.createChannels("orders", "mail");
  const grants = `${etc.path}/grants.toml`;
  await Deno.writeTextFile(
    grants,
    `[[identity]]\nname = "shop"\ntoken = "opensesame"\n` +
      `allow = [{ scopes = ["publish"], topics = ["orders"] }]\n`,
  );
  await using gateway = await startGateway(
    `--broker-tcp-address=${broker.tcpAddress}`,
    `--grants-file=${grants}`,
    "--https-address=127.0.0.1:0",
    `--tls-cert=${tlsPath("server.pem")}`,
    `--tls-key=${tlsPath("server.key")}`,
    "--tls-required=tcp-https",
  );
  await usable(gateway);
  const layers = { tls: true, ca: Buffer.from(tlsAuthority()), snappy: true };
  await using writer = await TestWriter.connect(gateway.tcpPort, {
    ...layers,
    authSecret: "opensesame",
  });
  await using reader = new TestReader("orders", "mail", { nsqdTCPAddresses: [broker.tcpAddress] });
  await writer.publish("orders", "0123456789abcdef".repeat(8_000));
  await writer.publish("orders", ["a", "b"]);
  await reader.received(3);
  deepEqual(reader.bodies.map(({ length }) => length).toSorted(), [1, 1, 128_000]);
  const refused = await writer.publish("other", "x").then(() => null, (error) => String(error));
  match(refused ?? "", /E_UNAUTHORIZED|closed/);
  equal((await gateway.post("/pub?topic=orders", "x")).status, 401);
  ok(!gateway.log.includes("opensesame"));
});

Deno.test("what is spooled survives kill -9 of the gateway, and is at the broker once when both are back", async () => {
  await using folder = await TemporaryFolder.create();
  await using spool = await TemporaryFolder.create();
  await using stack = new AsyncDisposableStack();
  const before = stack.use(await Service.broker(folder.path));
  await before.createChannels("orders", "mail");
  const brokerFlag = `--broker-tcp-address=${before.tcpAddress}`;
  const first = stack.use(await startGateway(brokerFlag, `--data-path=${spool.path}`));
  await usable(first);
  equal(await publish(first, "/pub?topic=orders", "before"), false);
  await before.kill();
  const bodies = Array.from({ length: 50 }, (_, number) => `spooled ${number}`);
  for (const body of bodies) equal(await publish(first, "/pub?topic=orders", body), true);
  equal((await first.get("/v1/health")).status, 200);
  equal(await spoolDepth(first), 50);
  await first.kill();

  const second = stack.use(await startGateway(brokerFlag, `--data-path=${spool.path}`));
  equal(await spoolDepth(second), 50);
  const after = stack.use(
    await Service.broker(folder.path, [`--tcp-address=${before.tcpAddress}`]),
  );
  await eventually("an empty spool", async () => await spoolDepth(second) === 0);
  await using reader = new TestReader("orders", "mail", {
    nsqdTCPAddresses: [after.tcpAddress],
    maxInFlight: 10,
  });
  await reader.received(51);
  deepEqual(reader.bodies.filter((body) => body !== "before"), bodies, "in their order");
  equal((await after.topic("orders"))?.message_count, 50, "since its start");
  equal(JSON.parse((await second.get("/v1/health")).text).status, "ok");
  equal(await second.terminate(), 0);
});

Deno.test("a broker that is killed under load costs producers at a gateway nothing", async () => {
  await using firstFolder = await TemporaryFolder.create();
  await using secondFolder = await TemporaryFolder.create();
  await using spool = await TemporaryFolder.create();
  await using stack = new AsyncDisposableStack();
  let first = stack.use(await Service.broker(firstFolder.path));
  const second = stack.use(await Service.broker(secondFolder.path));
  const address = first.tcpAddress;
  for (const broker of [first, second]) await broker.createChannels("orders", "mail");
  const gateway = stack.use(
    await startGateway(
      `--broker-tcp-address=${address},${second.tcpAddress}`,
      `--data-path=${spool.path}`,
      "--publish-timeout=20s",
    ),
  );
  await usable(gateway, 2);
  await using writer = await TestWriter.connect(gateway.tcpPort);
  const restart = async () => {
    await first.kill();
    first = stack.use(await Service.broker(firstFolder.path, [`--tcp-address=${address}`]));
  };
  let restarting: Promise<void> = Promise.resolve();
  for (let round = 0; round < 30; round++) {
    if (round === 10) restarting = restart();
    const texts = Array.from({ length: 100 }, (_, at) => `${100 * round + at}`);
    await Promise.all(texts.map((text) => writer.publish("orders", text)));
  }
  await restarting;
  await usable(gateway, 2);
  await eventually("an empty spool", async () => await spoolDepth(gateway) === 0);
  await using reader = new TestReader("orders", "mail", {
    nsqdTCPAddresses: [first.tcpAddress, second.tcpAddress],
    maxInFlight: 200,
  });
  await reader.received(3_000);
  for (const broker of [first, second]) {
    await eventually("an empty channel", async () => {
      const figures = await broker.channel("orders", "mail");
      return figures?.depth === 0 && figures.in_flight_count === 0;
    });
  }
  deepEqual([reader.bodies.length, new Set(reader.bodies).size], [3_000, 3_000]);
  deepEqual(reader.errors, []);
});

Deno.test("sluicectl lists, shows, tries again and gives up what a gateway has in quarantine", async () => {
  await using folder = await TemporaryFolder.create();
  await using spool = await TemporaryFolder.create();
  await using stack = new AsyncDisposableStack();
  const probe = stack.use(await Service.broker(folder.path));
  await probe.createChannels("orders", "mail");
  const address = probe.tcpAddress;
  await probe.kill();
  const gateway = stack.use(
    await startGateway(`--broker-tcp-address=${address}`, `--data-path=${spool.path}`),
  );
  const large = "x".repeat(2_000);
  for (const body of [`${large}1`, "small", `${large}2`]) {
    equal(await publish(gateway, "/pub?topic=orders", body), true);
  }
  const strict = stack.use(
    await Service.broker(folder.path, [`--tcp-address=${address}`, "--max-msg-size=1000"]),
  );
  await eventually("two in quarantine", async () => {
    const { spool } = JSON.parse((await gateway.get("/v1/health")).text);
    return spool.quarantined === 2 && spool.depth === 0;
  });
  const listed = await ctl(gateway, "list", "--json");
  equal(listed.code, 0, listed.stderr);
  const { entries, next } = JSON.parse(listed.stdout);
  deepEqual([entries.length, next, entries[0].topic, entries[0].bytes], [2, null, "orders", 2_001]);
  match(entries[0].reason, /^E_BAD_MESSAGE /);
  match((await ctl(gateway, "list")).stdout, /^ID .*\n\d+ +orders .*E_BAD_MESSAGE/);
  const [first, second] = entries.map(({ id }: { id: number }) => `${id}`);
  const shown = await ctl(gateway, "show", first, "--body");
  deepEqual([shown.code, shown.stderr, shown.stdout], [0, "", `${large}1`]);

  equal(await strict.terminate(), 0);
  const retried = await ctl(gateway, "retry", first);
  deepEqual([retried.code, retried.stderr], [0, ""]);
  const dropped = await ctl(gateway, "drop", second);
  deepEqual([dropped.code, dropped.stderr], [0, ""]);
  equal((await ctl(gateway, "drop", second)).code, 1);
  const lenient = stack.use(await Service.broker(folder.path, [`--tcp-address=${address}`]));
  await using reader = new TestReader("orders", "mail", { nsqdTCPAddresses: [lenient.tcpAddress] });
  await reader.received(2);
  deepEqual(reader.bodies.toSorted(), ["small", `${large}1`]);
  equal((await ctl(gateway, "list")).stdout.trim().split("\n").length, 1);
  equal((await ctl(gateway, "list", "--token=x")).code, 0);
  await gateway.kill();
  const gone = await ctl(gateway, "list");
  equal(gone.code, 2);
  match(gone.stderr, /^Cannot ask 127\.0\.0\.1:/);
});

Deno.test("a gateway whose folder is taken says so and ends with 1", async () => {
  await using spool = await TemporaryFolder.create();
  const flags = ["--broker-tcp-address=127.0.0.1:1", `--data-path=${spool.path}`];
  await using gateway = await startGateway(...flags);
  const refused = await runToEnd(Deno.execPath(), [
    "run",
    "--quiet",
    "-P=gateway",
    "gateway/main.ts",
    "--tcp-address=127.0.0.1:0",
    "--http-address=127.0.0.1:0",
    ...flags,
  ]);
  equal(refused.code, 1);
  match(refused.stderr, /LOCK|in use|lock/i);
  equal(await gateway.terminate(), 0);
});

testWithNsq("a gateway in front of nsqd takes PUB, MPUB and DPUB", async () => {
  await using folder = await TemporaryFolder.create();
  await using nsqd = await startPeer("nsqd", [...LOOPBACK, `--data-path=${folder.path}`]);
  await nsqd.order("/topic/create?topic=orders");
  await nsqd.order("/channel/create?topic=orders&channel=mail");
  await using gateway = await startGateway(`--broker-tcp-address=${nsqd.tcpAddress}`);
  await usable(gateway);
  await using writer = await TestWriter.connect(gateway.tcpPort);
  await using reader = new TestReader("orders", "mail", {
    nsqdTCPAddresses: [nsqd.tcpAddress],
    maxInFlight: 10,
  });
  await writer.publish("orders", "one");
  await writer.publish("orders", ["two", "three"]);
  const publishedMs = performance.now();
  await writer.publishLater("orders", "later", 300);
  await publish(gateway, "/mpub?topic=orders&defer=100", "four\nfive");
  await reader.received(6);
  ok(performance.now() - publishedMs >= 250);
  deepEqual(reader.bodies.toSorted(), ["five", "four", "later", "one", "three", "two"]);
});

testWithNsq(
  "a gateway finds nsqd through nsqlookupd, and to_nsq publishes through it",
  async () => {
    await using folder = await TemporaryFolder.create();
    await using lookup = await startPeer("nsqlookupd", LOOPBACK);
    await using nsqd = await startPeer("nsqd", [
      ...LOOPBACK,
      `--data-path=${folder.path}`,
      `--lookupd-tcp-address=${lookup.tcpAddress}`,
    ]);
    await nsqd.order("/topic/create?topic=orders");
    await nsqd.order("/channel/create?topic=orders&channel=mail");
    await using gateway = await startGateway(`--discovery-http-address=${lookup.httpAddress}`);
    await usable(gateway);
    const lines = Array.from({ length: 200 }, (_, number) => `line ${number}`);
    const published = await runToEnd(peer("to_nsq"), [
      "--topic=orders",
      `--nsqd-tcp-address=${gateway.tcpAddress}`,
    ], lines.join("\n") + "\n");
    equal(published.code, 0, published.stderr);
    await using reader = new TestReader("orders", "mail", {
      nsqdTCPAddresses: [nsqd.tcpAddress],
      maxInFlight: 50,
    });
    await reader.received(lines.length);
    deepEqual(reader.bodies.toSorted(), lines.toSorted());
  },
);

testWithNsq("nsq_tail at a gateway is told that there is nothing to consume", async () => {
  await using gateway = await startGateway("--broker-tcp-address=127.0.0.1:1");
  const tailed = new HttpProcess("nsq_tail", peer("nsq_tail"), [
    "--topic=orders",
    `--nsqd-tcp-address=${gateway.tcpAddress}`,
  ]);
  await using stack = new AsyncDisposableStack();
  stack.use(tailed);
  await tailed.logged(/E_SUB_FAILED .*gateway for producers/);
});
