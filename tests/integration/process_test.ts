import { deepEqual, equal, match } from "node:assert/strict";
import { Service, TemporaryFolder } from "./process.ts";
import { closeQuietly, connectQuietly, RawClient, text } from "./raw_client.ts";
import { eventually, within } from "./wait.ts";

Deno.test("A broker told to stop ends with 0 and has everything after a restart", async () => {
  await using folder = await TemporaryFolder.create();
  const published: string[] = [];
  {
    await using broker = await Service.broker(folder.path);
    await broker.createChannels("orders", "mail");
    await using client = await RawClient.connect(broker.tcpPort);
    const replies: Promise<void>[] = [];
    for (let number = 0; number < 500; number++) {
      published.push(`m${number}`);
      replies.push(client.pub("orders", `m${number}`));
    }
    published.push("later");
    replies.push(client.dpub("orders", 100, "later"));
    await Promise.all(replies);
    equal(await broker.terminate(), 0);
    await client.closed();
    match(broker.log, /Stopping signal=SIGTERM/);
  }
  await using broker = await Service.broker(folder.path);
  deepEqual(await take(broker, "orders", "mail", published.length), published.sort());
});

Deno.test("A broker told to stop under load loses nothing that it confirmed", async () => {
  await using folder = await TemporaryFolder.create();
  const confirmed: string[] = [];
  {
    await using broker = await Service.broker(folder.path);
    await broker.createChannels("orders", "mail");
    await using client = await RawClient.connect(broker.tcpPort);
    let number = 0;
    const publish = async (): Promise<void> => {
      while (!client.ended) {
        const body = `m${number++}`;
        await client.pub("orders", body).then(() => confirmed.push(body), () => {});
      }
    };
    const publishing = Array.from({ length: 50 }, publish);
    await eventually("publishes", () => confirmed.length > 500);
    equal(await broker.terminate(), 0);
    await Promise.all(publishing);
  }
  await using broker = await Service.broker(folder.path);
  const received = new Set(
    await take(broker, "orders", "mail", (await broker.channel("orders", "mail"))?.depth ?? 0),
  );
  deepEqual(confirmed.filter((body) => !received.has(body)), []);
});

for (const name of ["broker", "discovery"] as const) {
  Deno.test(`A ${name} told to stop does not wait for connections that say nothing more`, async () => {
    await using folder = await TemporaryFolder.create();
    await using service = await Service.start(
      name,
      name === "broker" ? [`--data-path=${folder.path}`] : [],
    );
    await using connections = new AsyncDisposableStack();
    for (const said of ["", "GET /pi", "GET /ping HTTP/1.1\r\nHost: test\r\n\r\n"]) {
      const connection = await connectQuietly(service.httpPort);
      connections.defer(() => closeQuietly(connection));
      await connection.write(text(said));
    }
    for (const said of ["", "  V", name === "broker" ? "  V2PUB ord" : "  V1REGIS"]) {
      const connection = await connectQuietly(service.tcpPort);
      connections.defer(() => closeQuietly(connection));
      await connection.write(text(said));
    }
    equal((await service.get("/ping")).text, "OK");
    equal(await within(`the end of the ${name}`, service.terminate(), 4_000), 0);
  });
}

Deno.test("A second broker on a folder refuses to start, and the first goes on", async () => {
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path);
  const { code, stderr } = await Service.run("broker", [
    "--tcp-address=127.0.0.1:0",
    "--http-address=127.0.0.1:0",
    `--data-path=${folder.path}`,
  ]);
  equal(code, 1);
  match(stderr, new RegExp(folder.path));
  match(stderr, /lock|another/i);
  equal(stderr.includes("    at "), false, stderr);
  equal((await broker.post("/pub?topic=orders", "still here")).text, "OK");
});

Deno.test("A busy port is told with the flag that chooses it, and nothing is left behind", async () => {
  await using folder = await TemporaryFolder.create();
  using taken = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const busy = `127.0.0.1:${taken.addr.port}`;
  for (const flag of ["--tcp-address", "--http-address"]) {
    const other = flag === "--tcp-address" ? "--http-address" : "--tcp-address";
    const broker = await Service.run("broker", [
      `${flag}=${busy}`,
      `${other}=127.0.0.1:0`,
      `--data-path=${folder.path}`,
    ]);
    equal(broker.code, 1, broker.stderr);
    match(broker.stderr, lastLineWith(busy, flag));
    const discovery = await Service.run("discovery", [`${flag}=${busy}`, `${other}=127.0.0.1:0`]);
    equal(discovery.code, 1, discovery.stderr);
    match(discovery.stderr, lastLineWith(busy, flag));
  }
  // The folder was given back: the next broker has it at once.
  await using _broker = await Service.broker(folder.path);
});

Deno.test("--help and --version print and end with 0; a wrong flag names the right one", async () => {
  for (const name of ["broker", "discovery"] as const) {
    const help = await Service.run(name, ["--help"]);
    equal(help.code, 0);
    match(help.stdout, /--tcp-address/);
    const version = await Service.run(name, ["--version"]);
    equal(version.code, 0);
    match(version.stdout, new RegExp(`^sluice-${name} v\\d+\\.\\d+\\.\\d+`));
    const wrong = await Service.run(name, ["--tcp-adress=127.0.0.1:0"]);
    equal(wrong.code, 1);
    match(wrong.stderr, /tcp-address/);
    equal(wrong.stderr.includes("    at "), false, wrong.stderr);
  }
});

Deno.test("A command line of nsqd starts a broker, one dash and separate values", async () => {
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.start("broker", [
    "-tcp-address",
    "127.0.0.1:0",
    "-http-address",
    "127.0.0.1:0",
    "-broadcast-address",
    "127.0.0.1",
    "-data-path",
    folder.path,
    "-mem-queue-size",
    "100",
    "-max-msg-size=2048",
    "-verbose",
  ]);
  equal((await broker.post("/pub?topic=orders", "x".repeat(2048))).status, 200);
  equal((await broker.post("/pub?topic=orders", "x".repeat(2049))).status, 413);
});

Deno.test("A broker without rights to its folder says so in one line", async () => {
  const { code, stderr } = await Service.run("broker", [
    "--tcp-address=127.0.0.1:0",
    "--http-address=127.0.0.1:0",
    "--data-path=/dev/null/folder",
  ]);
  equal(code, 1);
  match(stderr, /\/dev\/null/);
  equal(stderr.includes("    at "), false, stderr);
});

Deno.test("A discovery service told to stop ends with 0 while a broker is connected", async () => {
  await using folder = await TemporaryFolder.create();
  await using discovery = await Service.start("discovery");
  await using broker = await Service.broker(folder.path, [
    `--lookupd-tcp-address=${discovery.tcpAddress}`,
  ]);
  await eventually(
    "the broker in /nodes",
    async () => (await discovery.get("/nodes")).text.includes(`"tcp_port":${broker.tcpPort}`),
  );
  equal(await discovery.terminate(), 0);
  equal((await broker.post("/pub?topic=orders", "alone")).text, "OK");
});

Deno.test("A broker that is told to stop leaves the discovery service at once", async () => {
  await using folder = await TemporaryFolder.create();
  await using discovery = await Service.start("discovery");
  await using broker = await Service.broker(folder.path, [
    `--lookupd-tcp-address=${discovery.tcpAddress}`,
  ]);
  await broker.order("/topic/create?topic=orders");
  const producers = async () => (await discovery.get("/lookup?topic=orders")).text;
  await eventually("the topic", async () => (await producers()).includes('"tcp_port"'));
  equal(await broker.terminate(), 0);
  await eventually("the broker gone", async () => !(await producers()).includes('"tcp_port"'));
});

/** A last line that names both. */
function lastLineWith(one: string, other: string): RegExp {
  return new RegExp(`\n(?=.*${one})(?=.*${other}).*in use.*\n$`);
}

/** Receives and finishes `count` messages of a channel; their bodies, sorted. */
async function take(
  broker: Service,
  topic: string,
  channel: string,
  count: number,
): Promise<string[]> {
  await using client = await RawClient.connect(broker.tcpPort);
  const bodies: string[] = [];
  client.onMessage = ({ id, body }) => {
    client.fin(id);
    bodies.push(body);
  };
  await client.sub(topic, channel);
  client.rdy(200);
  await eventually(`${count} messages of ${channel}`, () => bodies.length >= count);
  equal(bodies.length, count);
  return bodies.sort();
}
