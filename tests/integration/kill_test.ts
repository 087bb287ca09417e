/**
 * `kill -9` of a real broker under load from real connections, round after round on one folder. A
 * round ends by work done (so many confirmed publishes), while a checkpoint is being written, or
 * while log files that are done with are being removed. What was confirmed is kept here, outside the
 * broker, and compared.
 *
 * Each round has another mode of confirming. The page cache outlives a killed process, so this cannot tell a missing sync; tests/crash can.
 *
 * ROUNDS sets the number of rounds (default 20), SEED repeats the choices of a run.
 */
import { deepEqual, equal, ok } from "node:assert/strict";
import { SeededRandom } from "@sluice/shared/testing";
import { Ledger } from "./ledger.ts";
import { Service, TemporaryFolder } from "./process.ts";
import { RawClient } from "./raw_client.ts";
import { eventually } from "./wait.ts";

const ROUNDS = Number(Deno.env.get("ROUNDS") ?? "20");
const SEED = Number(Deno.env.get("SEED") ?? Math.floor(Math.random() * 2 ** 32));

/** Confirmed publishes of a round before the kill; now and then almost none. */
const CONFIRMED_MAX = 3_000;
/** When the moment that is waited for does not come. */
const CONFIRMED_FALLBACK = 60_000;
const PRODUCERS = 3;
const PIPELINE_DEPTH = 32;
const CONSUMERS = 2;
const LARGE_BYTES_MAX = 500_000;
const DEFER_MS_MAX = 1_000;
/** Small files, so that rolling, checkpoints and removal happen under the kills. */
const BROKER_FLAGS = ["--log-file-bytes=1MiB", "--ring-bytes=4MiB", "--max-body-size=1MiB"];
/** A kill takes nothing that was confirmed in any of them. */
const ACK_MODES = ["durable", "write_ack", "nsq_relaxed"];

/** What is waited for before a kill. */
type Moment = "confirmed" | "checkpoint" | "removal";

Deno.test("kill -9 under load loses nothing confirmed, repeats no id, undoes no synced finish", async () => {
  console.log(`SEED=${SEED} ROUNDS=${ROUNDS}`);
  const random = new SeededRandom(SEED);
  await using folder = await TemporaryFolder.create();
  const ledger = new Ledger();
  const drained = { worked: new Set<string>(), kept: new Set<string>(), late: new Set<string>() };
  const drainAll = async (broker: Service): Promise<void> => {
    // Only now: until its first channel is there, a topic keeps its messages.
    await broker.createChannels("alone", "late");
    await drain(broker, ledger, "orders", "worked", drained.worked);
    await drain(broker, ledger, "orders", "kept", drained.kept);
    await drain(broker, ledger, "alone", "late", drained.late);
  };
  const seen = { confirmed: 0, checkpoint: 0, removal: 0 };
  for (let round = 0; round < ROUNDS; round++) {
    const mode = ACK_MODES[round % ACK_MODES.length];
    await using broker = await Service.broker(folder.path, [
      ...BROKER_FLAGS,
      `--ack-mode=${mode}`,
    ]);
    if (round === 0) await broker.createChannels("orders", "worked", "kept");
    let moment: Moment = "confirmed";
    if (round % 5 === 3) moment = "checkpoint";
    if (round % 5 === 4) {
      // Nothing of the older log files is owed to anybody after this.
      await drainAll(broker);
      moment = "removal";
    }
    seen[await loadAndKill(broker, ledger, random, { moment, path: folder.path })]++;
  }

  await using broker = await Service.broker(folder.path, BROKER_FLAGS);
  await drainAll(broker);
  deepEqual(ledger.problems, []);
  const { confirmed, finished, finishedDurably } = ledger;
  deepEqual(missing(confirmed, "orders", drained.kept), [], "confirmed, and missing in a channel");
  deepEqual(missing(confirmed, "alone", drained.late), [], "confirmed, and missing in a topic");
  const workedOrFinished = new Set([...drained.worked, ...finished]);
  deepEqual(missing(confirmed, "orders", workedOrFinished), [], "neither finished nor owed");
  // The run must have been one.
  ok(confirmed.size > ROUNDS * 10, `${confirmed.size} confirmed`);
  ok(finishedDurably.size > 0 && finished.size > finishedDurably.size);
  if (ROUNDS >= 20) ok(seen.checkpoint > 0 && seen.removal > 0, JSON.stringify(seen));
  equal(await broker.terminate(), 0);
  console.log(
    `${confirmed.size} confirmed, ${finished.size} finished (${finishedDurably.size} surely), ` +
      `${ledger.idCount} ids; killed at ${JSON.stringify(seen)}`,
  );
});

/** Publishes and consumes up to the moment, and kills the broker right then. Returns what it was. */
async function loadAndKill(
  broker: Service,
  ledger: Ledger,
  random: SeededRandom,
  { moment, path }: { readonly moment: Moment; readonly path: string },
): Promise<Moment> {
  await using clients = new AsyncDisposableStack();
  const connect = async () => clients.use(await RawClient.connect(broker.tcpPort));
  const few = random.below(5) === 0;
  const goal = ledger.confirmed.size +
    (moment === "confirmed" ? 1 + random.below(few ? 10 : CONFIRMED_MAX) : CONFIRMED_FALLBACK);
  let killing: Promise<void> | null = null;
  let reached = moment;
  const killAtGoal = () => {
    if (ledger.confirmed.size < goal || killing !== null) return;
    reached = "confirmed";
    killing = broker.kill();
  };
  const watcher = Deno.watchFs(path);
  const watching = watchFor(watcher, moment, () => killing ??= broker.kill());
  const work: Promise<void>[] = [];
  for (let number = 0; number < CONSUMERS; number++) {
    work.push(consume(await connect(), ledger, random));
  }
  for (let number = 0; number < PRODUCERS; number++) {
    const client = await connect();
    const lanes = moment === "confirmed" ? PIPELINE_DEPTH : PIPELINE_DEPTH / 8;
    for (let lane = 0; lane < lanes; lane++) {
      work.push(produce(client, ledger, random, killAtGoal));
    }
  }
  work.push(post(broker, ledger, random, killAtGoal));
  await Promise.all(work);
  await killing;
  watcher.close();
  await watching;
  equal(broker.code, 137, broker.log.slice(-2_000));
  return reached;
}

/** Calls `seen` at the first change of the folder that belongs to the moment. */
async function watchFor(
  watcher: Deno.FsWatcher,
  moment: Moment,
  seen: () => void,
): Promise<void> {
  for await (const { kind, paths } of watcher) {
    const isCheckpoint = kind === "create" && paths.some((path) => path.includes(".ckp"));
    const isRemoval = kind === "remove" && paths.some((path) => path.endsWith(".log"));
    if ((moment === "checkpoint" && isCheckpoint) || (moment === "removal" && isRemoval)) seen();
  }
}

/** Publishes one thing after the other until the connection ends. */
async function produce(
  client: RawClient,
  ledger: Ledger,
  random: SeededRandom,
  confirmed: () => void,
): Promise<void> {
  while (!client.ended) {
    const topic = random.below(4) === 0 ? "alone" : "orders";
    const kind = random.below(10);
    const isLarge = kind !== 0 && random.below(200) === 0;
    const paddingBytes = random.below(isLarge ? LARGE_BYTES_MAX : 1_000);
    const bodies = ledger.newBodies(topic, kind === 0 ? 20 : 1, paddingBytes);
    try {
      if (kind === 0) await client.mpub(topic, bodies);
      else if (kind === 1) {
        await client.dpub(topic, 1 + random.below(DEFER_MS_MAX), bodies[0]!);
      } else await client.pub(topic, bodies[0]!);
    } catch {
      // Not confirmed: it may be there or not. The loop looks whether the connection goes on.
      continue;
    }
    ledger.confirm(bodies);
    confirmed();
  }
}

/** Publishes over HTTP, one request after the other, until the broker is gone. */
async function post(
  broker: Service,
  ledger: Ledger,
  random: SeededRandom,
  confirmed: () => void,
): Promise<void> {
  while (broker.code === null) {
    const isBatch = random.below(4) === 0;
    const bodies = ledger.newBodies("orders", isBatch ? 10 : 1, random.below(1_000));
    const path = isBatch ? "/mpub?topic=orders" : "/pub?topic=orders";
    // A killed broker takes connections for a moment longer, and then resets them.
    const answer = await broker.post(path, bodies.join("\n")).catch(() => null);
    if (answer === null) continue;
    equal(answer.text, "OK");
    ledger.confirm(bodies);
    confirmed();
  }
}

/**
 * Works on "worked": finishes most, requeues some, leaves some in flight. A publish on the same
 * connection that is confirmed proves that the finishes sent before it are on disk.
 */
async function consume(client: RawClient, ledger: Ledger, random: SeededRandom): Promise<void> {
  client.onMessage = (delivery) => {
    const name = ledger.deliver(delivery, true);
    const choice = random.below(20);
    if (choice === 0) client.req(delivery.id, random.below(DEFER_MS_MAX));
    else if (choice > 1) {
      client.fin(delivery.id);
      ledger.finish(name);
      pending.push(name);
    }
  };
  let pending: string[] = [];
  try {
    await client.sub("orders", "worked");
    client.rdy(500);
    while (!client.ended) {
      const sent = pending;
      pending = [];
      const bodies = ledger.newBodies("alone", 1, 0);
      await client.pub("alone", bodies[0]!);
      ledger.confirm(bodies);
      ledger.finishDurably(sent);
    }
  } catch {
    // The kill.
  }
}

/** Receives and finishes everything a channel holds, each message exactly once, into `names`. */
async function drain(
  broker: Service,
  ledger: Ledger,
  topic: string,
  channel: string,
  names: Set<string>,
): Promise<void> {
  await using client = await RawClient.connect(broker.tcpPort);
  const now = new Set<string>();
  client.onMessage = (delivery) => {
    const name = ledger.deliver(delivery, channel === "worked");
    if (now.has(name)) ledger.problems.push(`"${name}" twice in one drain`);
    now.add(name);
    names.add(name);
    client.fin(delivery.id);
  };
  await client.sub(topic, channel);
  client.rdy(1_000);
  await eventually(`an empty channel ${channel}`, async () => {
    const figures = await broker.channel(topic, channel);
    return figures?.depth === 0 && figures.deferred_count === 0 && figures.in_flight_count === 0;
  });
  deepEqual(client.errors, []);
}

function missing(
  confirmed: ReadonlySet<string>,
  topic: string,
  received: ReadonlySet<string>,
): string[] {
  return [...confirmed].filter((name) => name.startsWith(`${topic} `) && !received.has(name));
}
