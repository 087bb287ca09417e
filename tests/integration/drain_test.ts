/**
 * A broker that is emptied before it is taken away, with real processes: who sees it how soon, and that
 * nothing is lost on the way. And a disk that is really full.
 */
import { deepEqual, equal, match, ok } from "node:assert/strict";
import { HttpProcess, type Outcome, runToEnd, Service, TemporaryFolder } from "./process.ts";
import { RawClient } from "./raw_client.ts";
import { eventually, staysTrue, within } from "./wait.ts";

/** From the answer of the broker to what discovery says. */
const SEEN_MS_MAX = 1_000;
/** For a machine that is busy with something else. */
const TOLERANCE_MS = 1_000;

function ctl(...args: string[]): Promise<Outcome> {
  return runToEnd(Deno.execPath(), ["run", "--quiet", "-P=ctl", "ctl/main.ts", "drain", ...args]);
}

/** A gateway that knows brokers from discovery. */
class Gateway extends HttpProcess {
  static async start(dataPath: string, discovery: Service): Promise<Gateway> {
    const gateway = new Gateway("gateway", Deno.execPath(), [
      ...["run", "--quiet", "-P=gateway", "gateway/main.ts"],
      ...["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"],
      `--data-path=${dataPath}`,
      `--discovery-http-address=${discovery.httpAddress}`,
    ]);
    await gateway.ready();
    return gateway;
  }
}

Deno.test("A broker is drained under load: seen within a second, emptied, nothing lost or refused", async () => {
  await using folder = await TemporaryFolder.create();
  await using stack = new AsyncDisposableStack();
  const brokers: Service[] = [];
  for (const name of ["a", "b"]) {
    await Deno.mkdir(`${folder.path}/${name}`);
    brokers.push(stack.use(await Service.broker(`${folder.path}/${name}`)));
  }
  const [going, staying] = brokers as [Service, Service];
  const discovery = stack.use(
    await Service.start("discovery", brokers.map(({ httpAddress }) => `--broker=${httpAddress}`)),
  );
  await Deno.mkdir(`${folder.path}/gateway`);
  const gateway = stack.use(await Gateway.start(`${folder.path}/gateway`, discovery));
  await Promise.all(brokers.map((broker) => broker.createChannels("orders", "mail")));
  const publishers = async () => {
    const { text } = await discovery.get("/v1/publishers");
    return JSON.parse(text).producers.map((one: { tcp_port: number }) => one.tcp_port).sort();
  };
  await eventually("both brokers", async () => (await publishers()).length === 2);
  await eventually(
    "the gateway ready",
    async () => JSON.parse((await gateway.get("/v1/health")).text).accepting === true,
  );
  const depth = async (broker: Service) => (await broker.channel("orders", "mail"))?.depth ?? 0;

  // Publishes go on all the time, and none of them fails.
  const confirmed: string[] = [];
  let isOver = false;
  const publishing = Promise.all(Array.from({ length: 4 }, async (_, lane) => {
    for (let number = 0; !isOver; number++) {
      const body = `${lane}-${number}`;
      const { status, text } = await gateway.post("/pub?topic=orders", body);
      equal([status, text].join(" "), "200 OK");
      confirmed.push(body);
    }
  }));
  await eventually("messages at both", async () => {
    return await depth(going) > 20 && await depth(staying) > 20;
  });
  const address = `--http-address=${going.httpAddress}`;
  const started = await ctl("start", address, "--json");
  const startedMs = performance.now();
  equal(started.code, 0, started.stderr);
  equal(JSON.parse(started.stdout).draining, true);
  await eventually("one publisher", async () => (await publishers()).length === 1);
  ok(performance.now() - startedMs < SEEN_MS_MAX + TOLERANCE_MS);
  deepEqual(await publishers(), [staying.tcpPort]);
  match((await discovery.get("/lookup?topic=orders")).text, new RegExp(`${going.tcpPort}`));
  const before = confirmed.length;
  await eventually("more publishes", () => confirmed.length > before + 100);
  isOver = true;
  await publishing;

  // It stays so over a crash.
  await going.kill();
  const again = stack.use(
    await Service.broker(`${folder.path}/a`, [`--http-address=${going.httpAddress}`]),
  );
  equal((await again.post("/pub?topic=orders", "x")).status, 503);
  const late = await ctl("wait", address, "--timeout=600ms");
  equal(late.code, 1, late.stderr);
  match(late.stderr, /left: depth \d+\nnot empty within 600ms/);
  const waiting = ctl("wait", address, "--timeout=20s");
  const received = new Set<string>();
  for (const broker of [again, staying]) {
    const consumer = stack.use(await RawClient.connect(broker.tcpPort));
    consumer.onMessage = ({ id, body }) => {
      received.add(body);
      consumer.fin(id);
    };
    await consumer.sub("orders", "mail");
    consumer.rdy(100);
  }
  const { code, stdout, stderr } = await within("an empty broker", waiting);
  equal(code, 0, stderr);
  match(stdout, /empty +true/);
  await eventually("everything", () => received.size >= confirmed.length);
  deepEqual(confirmed.filter((body) => !received.has(body)), []);
  equal((await ctl("stop", address)).code, 0);
  equal((await again.post("/pub?topic=orders", "x")).status, 200);
  await eventually("both brokers again", async () => (await publishers()).length === 2);
});

Deno.test("sluicectl says why a broker cannot be drained, and helps", async () => {
  const away = await ctl("start", "--http-address=127.0.0.1:1");
  equal(away.code, 2);
  match(away.stderr, /Cannot ask 127\.0\.0\.1:1/);
  const help = await ctl("wait", "--help");
  equal(help.code, 0);
  match(help.stdout, /Exit codes: 0 empty .*1 not in time/);
});

/** A small file system of its own, where the user may mount one. */
class SmallDisk implements AsyncDisposable {
  private constructor(readonly path: string) {}

  static async mount(mib: number): Promise<SmallDisk | null> {
    const path = await Deno.makeTempDir({ prefix: "sluice_disk_" });
    const isMounted = await runs("mount", "-t", "tmpfs", "-o", `size=${mib}m`, "tmpfs", path);
    if (isMounted) return new SmallDisk(path);
    await Deno.remove(path);
    return null;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await runs("umount", this.path);
    await Deno.remove(this.path);
  }
}

async function runs(command: string, ...args: string[]): Promise<boolean> {
  try {
    return (await runToEnd(command, args)).code === 0;
  } catch {
    return false;
  }
}

const canMount = await (async () => {
  const disk = await SmallDisk.mount(1);
  await disk?.[Symbol.asyncDispose]();
  return disk !== null;
})();

for (
  const [guard, reasons] of [
    ["auto", ["disk_pressure"]],
    ["0", ["log_stalled", "disk_pressure"]],
  ] as const
) {
  Deno.test({
    name:
      `On a disk that is really full (--min-free-bytes=${guard}) health says so, consuming goes on`,
    // Not everybody may mount a file system.
    ignore: !canMount,
    fn: async () => {
      await using disk = await SmallDisk.mount(48);
      ok(disk !== null);
      const filler = `${disk.path}/filler`;
      await Deno.writeFile(filler, new Uint8Array(20 * 2 ** 20));
      await using broker = await Service.broker(disk.path, [
        `--min-free-bytes=${guard}`,
        "--ring-bytes=4MiB",
        "--log-file-bytes=1MiB",
      ]);
      await broker.createChannels("orders", "mail");
      const body = "x".repeat(50_000);
      let confirmed = 0;
      const health = async (query = "") => {
        const { status, text } = await broker.get(`/v1/health${query}`);
        const { reasons, accepting, delivering } = JSON.parse(text);
        const codes = reasons.map(({ code }: { code: string }) => code);
        return { status, codes, accepting, delivering };
      };
      // A publish that finds no space waits for it: it is left alone.
      const publishing: Promise<void>[] = [];
      // It goes on until nothing is left: the first one to find no space may still get some.
      await eventually("a full disk", async () => {
        if (String((await health()).codes) === String(reasons)) return true;
        for (let at = 0; at < 10; at++) {
          publishing.push(
            broker.post("/pub?topic=orders", body).then(({ status }) => {
              if (status === 200) confirmed++;
            }),
          );
        }
        return false;
      });
      // Nor does anything free itself in the time of a retry.
      await staysTrue("the disk is full", async () => !(await health()).accepting, 1_500);
      deepEqual(await health(), {
        status: 200,
        codes: reasons,
        accepting: false,
        delivering: true,
      });
      equal((await broker.get("/ping")).text, "OK");
      const probe = await health("?probe=write");
      if (guard === "0") {
        equal([probe.status, probe.codes.at(-1)].join(" "), "503 write_probe_failed");
      } else equal(probe.status, 200, "there is room for what frees space");
      equal((await broker.post("/pub?topic=orders", "x")).status, 429);

      await using consumer = await RawClient.connect(broker.tcpPort);
      let received = 0;
      consumer.onMessage = ({ id }) => {
        received++;
        consumer.fin(id);
      };
      await consumer.sub("orders", "mail");
      consumer.rdy(10);
      await eventually("messages on disk", () => received > 100);
      // What is finished frees space, as long as that can be written; a full log needs it from elsewhere.
      if (guard === "0") await Deno.remove(filler);
      await eventually("space", async () => (await health()).accepting);
      await Promise.all(publishing);
      await eventually("all messages", () => received >= confirmed && confirmed > 0);
      equal((await broker.post("/pub?topic=orders", "x")).status, 200);
      equal((await health("?probe=write")).status, 200);
      equal(await broker.terminate(), 0);
    },
  });
}
