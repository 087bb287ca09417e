/**
 * What a spool does in a second, and what a backlog costs at a start, on the disk it is given:
 *
 *     deno run --allow-all gateway/spool/spool_bench.ts <new folder> [entries]
 *
 * Prints one line a figure. The folder is removed at the end.
 */
import { SystemClock, SystemDisk } from "@sluice/shared/runtime/system";
import { Logger } from "@sluice/shared/telemetry";
import type { Publish } from "../publish.ts";
import { Spool } from "./mod.ts";

const APPENDERS = 64;
const BODY_BYTES = 200;
const MEASURED = 200_000;

const [path, entries = "1000000"] = Deno.args;
if (path === undefined) throw new Error("usage: spool_bench.ts <new folder> [entries]");
const backlog = Number(entries);
const clock = new SystemClock();
const body = new Uint8Array(BODY_BYTES).fill(120);
const producer = new Uint8Array(16);

function publish(sequence: number): Publish {
  const topic = `topic-${sequence % 100}`;
  return { topic, isBatch: false, messageCount: 1, body, dueWallMs: 0, producer, sequence };
}

function open(): Promise<Spool> {
  return Spool.open({
    disk: new SystemDisk(),
    clock,
    logger: new Logger({ sink: console.log, clock, level: "warn" }),
    onFailed: (error) => console.error(error),
  }, {
    path: path!,
    bytesMax: 2 ** 40,
    ageMsMax: 86_400_000,
    fileBytes: 16 * 2 ** 20,
    recordBytesMax: 2 ** 20,
    heldMax: 4096,
    quarantineMax: 1000,
  });
}

function residentMiB(): number {
  return Math.round(Deno.memoryUsage().rss / 2 ** 20);
}

function report(name: string, value: number | string): void {
  console.log(`${name.padEnd(50)} ${value}`);
}

async function appendAll(spool: Spool, count: number, appenders: number): Promise<number> {
  const started = clock.monoMs();
  let next = 0;
  await Promise.all(Array.from({ length: appenders }, async () => {
    while (next < count) await spool.append(publish(next++), null);
  }));
  return Math.round(count / (clock.monoMs() - started) * 1000);
}

/** Takes, assigns and settles; watches how long others had to wait. */
async function drain(spool: Spool, count: number): Promise<number> {
  const started = clock.monoMs();
  let left = count;
  let lagMs = 0;
  let before = clock.monoMs();
  const watch = setInterval(() => {
    lagMs = Math.max(lagMs, clock.monoMs() - before - 1);
    before = clock.monoMs();
  }, 1);
  while (left > 0) {
    const taken = await spool.take(1024, 2 ** 20);
    await spool.assign(taken, "one:4150");
    spool.settle(taken);
    left -= taken.length;
  }
  clearInterval(watch);
  report("longest wait of the event loop while draining, ms", lagMs.toFixed(1));
  return Math.round(count / (clock.monoMs() - started) * 1000);
}

report("resident at the start, MiB", residentMiB());
let spool = await open();
report(`appends a second, 1 appender of ${BODY_BYTES} B`, await appendAll(spool, 5000, 1));
report(`appends a second, ${APPENDERS} appenders`, await appendAll(spool, MEASURED, APPENDERS));
report("appends a second, 1024 appenders", await appendAll(spool, MEASURED, 1024));
report("taken, assigned and settled a second", await drain(spool, 2 * MEASURED + 5000));
await appendAll(spool, backlog, 1024);
report(`resident with ${backlog} entries waiting, MiB`, residentMiB());
report("bytes of the log an entry", (spool.figures.fileBytes / backlog).toFixed(1));
await spool.close();
const started = clock.monoMs();
spool = await open();
report(`start with ${backlog} entries, ms`, Math.round(clock.monoMs() - started));
report("resident after the start, MiB", residentMiB());
report("entries after the start", spool.figures.count);
report("taken, assigned and settled a second", await drain(spool, backlog));
report("resident at the end, MiB", residentMiB());
await spool.close();
await Deno.remove(path, { recursive: true });
