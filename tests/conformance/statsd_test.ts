/**
 * What is sent to statsd beside what nsqd sends: the same keys and types for the same topics. Skipped
 * where there is no nsqd (see ../integration/peers.ts); the exact lines are in broker/statsd_test.ts.
 */
import { deepStrictEqual as equal } from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { findPeers } from "../integration/peers.ts";
import { HttpProcess, Service, TemporaryFolder } from "../integration/process.ts";
import { eventually } from "../integration/wait.ts";

const peers = await findPeers();
const nsqd = "missing" in peers ? undefined : peers.paths.get("nsqd");

/** Packets that arrive at a free port. */
class Receiver implements AsyncDisposable {
  readonly packets: string[] = [];
  readonly #socket = createSocket("udp4");

  async listen(): Promise<number> {
    this.#socket.on("message", (packet: Uint8Array) => {
      this.packets.push(new TextDecoder().decode(packet));
    });
    this.#socket.bind(0, "127.0.0.1");
    await once(this.#socket, "listening");
    return this.#socket.address().port;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#socket.close();
    await once(this.#socket, "close");
  }
}

/** The lines of a round without their prefix and figures, sorted. */
async function keysOf(start: (args: readonly string[]) => Promise<HttpProcess>): Promise<string[]> {
  await using receiver = new Receiver();
  const port = await receiver.listen();
  await using service = await start([
    `--statsd-address=127.0.0.1:${port}`,
    // With a second or less nsqd ends itself.
    "--statsd-interval=1050ms",
    "--statsd-udp-packet-size=1000",
    "-statsd-exclude-ephemeral",
    "--e2e-processing-latency-percentile=0.99,0.5",
    "--e2e-processing-latency-percentile=0.999",
  ]);
  for (const topic of ["bare", "t", "u%23ephemeral"]) {
    await service.order(`/topic/create?topic=${topic}`);
  }
  for (const channel of ["c", "d%23ephemeral"]) {
    await service.order(`/channel/create?topic=t&channel=${channel}`);
  }
  const seen = receiver.packets.length;
  const round = () => receiver.packets.slice(seen).join("");
  await eventually("a whole round", () => round().split("mem.gc_runs").length > 2);
  const lines = new Set(round().trimEnd().split("\n"));
  const prefix = `nsq.127_0_0_1_${service.httpPort}.`;
  const keys = [...lines].map((line) =>
    line.startsWith(prefix) ? line.slice(prefix.length).replace(/:\d+\|/, " ") : `?? ${line}`
  );
  return [...new Set(keys)].sort();
}

Deno.test({
  name: "statsd is sent the keys and types that nsqd sends",
  // nsqd is not everywhere; http_test.ts prints the reason.
  ignore: nsqd === undefined,
  fn: async () => {
    await using folder = await TemporaryFolder.create();
    await Deno.mkdir(`${folder.path}/ours`);
    await Deno.mkdir(`${folder.path}/theirs`);
    const [ours, theirs] = await Promise.all([
      keysOf((args) => Service.broker(`${folder.path}/ours`, args)),
      keysOf(async (args) => {
        const daemon = new HttpProcess("nsqd", nsqd ?? "", [
          "--tcp-address=127.0.0.1:0",
          "--http-address=127.0.0.1:0",
          "--broadcast-address=127.0.0.1",
          `--data-path=${folder.path}/theirs`,
          ...args,
        ]);
        await daemon.ready();
        return daemon;
      }),
    ]);
    // What the process takes as the system sees it is ours.
    equal(ours.filter((key) => key !== "mem.resident_bytes g"), theirs);
  },
});
