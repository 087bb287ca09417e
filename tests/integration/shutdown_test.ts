/** Every way in which a process of ours is ended, and the exit code that tells of it. */
import { deepEqual, equal, match, ok } from "node:assert/strict";
import { encodeIdentify, encodePub } from "@sluice/shared/protocol";
import { type Answer, Service, TemporaryFolder } from "./process.ts";
import { closeQuietly, connectQuietly, RawClient, text } from "./raw_client.ts";
import { eventually, within } from "./wait.ts";

const PRODUCER = "00112233445566778899aabbccddeeff";
/** A second signal sooner is taken for the first one. */
const SAME_SIGNAL_MS = 500;
/** An end "at once" of a process that is asked, on a loaded machine. */
const AT_ONCE_MS = 4_000;
const LONG_DELAY = "--drain-delay=60s";

/** What `/v1/health` says in short. */
async function health(service: Service): Promise<string> {
  const { status, text } = await service.get("/v1/health");
  return `${status} ${JSON.parse(text).reasons?.[0]?.code ?? JSON.parse(text).status}`;
}

function start(name: "broker" | "discovery", path: string, ...args: string[]): Promise<Service> {
  return Service.start(name, name === "broker" ? [`--data-path=${path}`, ...args] : args);
}

Deno.test("A broker told to stop says so first, and refuses nothing for drain-delay", async () => {
  await using folder = await TemporaryFolder.create();
  await using discovery = await Service.start("discovery");
  await using broker = await Service.broker(folder.path, [
    "--drain-delay=1500ms",
    `--lookupd-tcp-address=${discovery.tcpAddress}`,
  ]);
  await broker.createChannels("orders", "mail");
  const isListed = async () => (await discovery.get("/nodes")).text.includes('"tcp_port"');
  await eventually("the broker in /nodes", isListed);
  await using client = await RawClient.connect(broker.tcpPort);
  broker.askToStop();
  await eventually("stopping", async () => await health(broker) === "503 stopping");
  await eventually("the broker gone from /nodes", async () => !await isListed());
  await client.pub("orders", "late");
  await using late = await RawClient.connect(broker.tcpPort);
  await late.pub("orders", "later");
  equal((await broker.post("/pub?topic=orders", "latest")).status, 200);
  equal((await broker.get("/ping")).text, "OK");
  equal(await broker.ended(), 0);
  await client.closed();
  await using again = await Service.broker(folder.path);
  equal((await again.channel("orders", "mail"))?.depth, 3);
});

for (const name of ["broker", "discovery"] as const) {
  Deno.test(`A ${name} that is told a second time ends at once with 3`, async () => {
    await using folder = await TemporaryFolder.create();
    await using service = await start(name, folder.path, LONG_DELAY);
    if (name === "broker") equal((await service.post("/pub?topic=orders", "kept")).status, 200);
    const askedMs = performance.now();
    service.askToStop();
    // Twice within a moment is once: terminals and supervisors do that.
    service.askToStop();
    await eventually("stopping", async () => await health(service) === "503 stopping");
    await eventually("some time", () => performance.now() - askedMs > 2 * SAME_SIGNAL_MS);
    equal(service.code, null);
    service.askToStop();
    equal(await within(`the end of the ${name}`, service.ended(), AT_ONCE_MS), 3);
    if (name === "discovery") return;
    await using again = await Service.broker(folder.path);
    equal((await again.topic("orders"))?.depth, 1);
  });
}

Deno.test("A stop that takes longer than shutdown-timeout ends with 2, and loses nothing", async () => {
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path, ["--shutdown-timeout=200ms"]);
  // A producer has a second to hang up after its last answer, and this one does not.
  const silent = await connectQuietly(broker.tcpPort);
  await silent.write(text("  V2"));
  await silent.write(encodeIdentify({ feature_negotiation: true, sluice_producer: PRODUCER }));
  await silent.write(encodePub("orders", text("kept")));
  await eventually("the message", async () => (await broker.topic("orders"))?.depth === 1);
  equal(await broker.terminate(), 2);
  match(broker.log, /Stopping took too long/);
  closeQuietly(silent);
  await using again = await Service.broker(folder.path);
  equal((await again.topic("orders"))?.depth, 1);
});

Deno.test("A broker told to stop answers HTTP requests that wait, at once", async () => {
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path);
  const parked: Promise<Answer>[] = [];
  for (const path of ["/pub", "/mpub", "/v1/topics/orders/policy"]) {
    parked.push(postHalf(broker.httpPort, path));
  }
  const idle = await connectQuietly(broker.httpPort);
  await eventually("bodies on their way", async () => {
    const { text } = await broker.get("/v1/drain");
    return JSON.parse(text).publish_bytes >= 2_000;
  });
  const stopping = within("the end of the broker", broker.terminate(), AT_ONCE_MS);
  const answers = await Promise.all(parked.slice(0, 2));
  deepEqual(
    answers,
    Array.from({ length: 2 }, () => ({
      status: 503,
      text: '{"message":"EXITING"}',
    })),
  );
  equal(await stopping, 0);
  await Promise.allSettled(parked);
  closeQuietly(idle);
});

Deno.test("A broker told to stop while it reads its log ends with 0, and the next one has everything", async () => {
  await using folder = await TemporaryFolder.create();
  const args = ["--ring-bytes=64MiB", "--max-body-size=16MiB"];
  let count = 0;
  {
    await using broker = await Service.broker(folder.path, args);
    // Small messages: what there is to read takes a while, and has no checkpoint.
    const batch = `${"x".repeat(15)}\n`.repeat(60_000);
    for (; count < 900_000; count += 60_000) await broker.order("/mpub?topic=orders", batch);
    await broker.kill();
  }
  let isDuring = false;
  for (let round = 0; round < 5 && !isDuring; round++) {
    await using broker = Service.spawn("broker", [`--data-path=${folder.path}`, ...args]);
    await broker.logged(/\bHTTP: listening on/);
    equal(await within("the end of the broker", broker.terminate(), AT_ONCE_MS), 0);
    isDuring = /Stopped during the start/.test(broker.log);
  }
  ok(isDuring, "a stop came while the log was read");
  await using broker = await Service.broker(folder.path, args);
  equal((await broker.topic("orders"))?.depth, count);
  equal(await broker.terminate(), 0);
});

Deno.test("--help tells the exit codes", async () => {
  for (const name of ["broker", "discovery"] as const) {
    const { code, stdout } = await Service.run(name, ["--help"]);
    equal(code, 0);
    const help = stdout.replaceAll(/\s+/g, " ");
    match(help, /Exit codes: 0 stopped as asked, 1 could not start, 2 .*, 3 ended at once/);
  }
});

/** Sends a request whose body never comes to its end, and reads the answer. */
async function postHalf(port: number, path: string): Promise<Answer> {
  const method = path.startsWith("/v1") ? "PUT" : "POST";
  const connection = await connectQuietly(port);
  try {
    await connection.write(text(
      `${method} ${path}?topic=orders HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\nhalf`,
    ));
    const buffer = new Uint8Array(4_096);
    let answer = "";
    while (!/\r\n\r\n[^]*\}/.test(answer)) {
      const bytes = await connection.read(buffer);
      if (bytes === null) break;
      answer += new TextDecoder().decode(buffer.subarray(0, bytes));
    }
    const [head = "", body = ""] = answer.split("\r\n\r\n");
    return { status: Number(head.split(" ")[1]), text: body };
  } finally {
    closeQuietly(connection);
  }
}
