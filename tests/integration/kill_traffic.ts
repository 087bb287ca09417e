/**
 * What a broker is under while it is killed: connections that publish and consume in every way there
 * is, until it is gone. What each of them knows for sure goes into the ledger.
 *
 * | topic | channels | what for |
 * |---|---|---|
 * | orders | worked, slow | worked is finished, requeued, touched, timed out; slow leaves a few for long |
 * | alone | late, made after a while | a topic keeps its messages for its first channel |
 * | later | c | deferred, due within the run |
 * | large | c | 2 to 8 MiB, in parts to the log and to the consumer |
 * | far | c | deferred beyond the run: never delivered, never lost |
 */
import type { SeededRandom } from "@sluice/shared/testing";
import type { Ledger } from "./ledger.ts";
import type { Service } from "./process.ts";
import { type Delivery, RawClient } from "./raw_client.ts";

/** One life of a broker, as its clients see it. */
export interface Load {
  readonly broker: Service;
  readonly ledger: Ledger;
  readonly random: SeededRandom;
  /** Large messages are published: files with parts of them are not compacted. */
  readonly isLarge: boolean;
  /** The longest that `later` defers, in this life. */
  readonly laterMsMax: number;
  /** It was asked to stop: to be refused is no wonder. */
  stopping: boolean;
  /** Something was confirmed. */
  confirmed(): void;
}

const PRODUCERS = 3;
const LANES = 16;
const REQUEUE_MS_MAX = 1_000;
const FAR_MS = 1_800_000;
const IN_PARTS_BYTES_MIN = 2 * 2 ** 20;
const IN_PARTS_BYTES_MAX = 8 * 2 ** 20;
/** From one of them to the next. */
const IN_PARTS_PAUSE_MS = 100;
const LARGE_BYTES_MAX = 500_000;
/** The restless time out, and go after so many deliveries. */
const RESTLESS_TIMEOUT_MS = 300;
const RESTLESS_DELIVERIES = 200;
/** Of so many messages `slow` leaves one. */
const SLOW_LEAVES_ONE_OF = 997;

/** Runs all traffic; resolves when the broker is gone. */
export async function traffic(load: Load): Promise<void> {
  await using clients = new AsyncDisposableStack();
  const connect = async () => clients.use(await RawClient.connect(load.broker.tcpPort));
  const work = [restless(load), post(load)];
  try {
    for (let number = 0; number < 2; number++) {
      work.push(worker(load, await connect(), Infinity));
    }
    work.push(finishMost(load, await connect(), "orders", "slow", isLeftBySlow));
    work.push(finishMost(load, await connect(), "later", "c", () => false));
    work.push(finishMost(load, await connect(), "far", "c", () => true));
    work.push(finishMost(load, await connect(), "large", "c", () => false));
    if (load.isLarge) work.push(produceLarge(load, await connect()));
    for (let number = 0; number < PRODUCERS; number++) {
      const client = await connect();
      for (let lane = 0; lane < LANES; lane++) work.push(produce(load, client));
    }
  } catch {
    // Killed before all were connected.
  }
  await Promise.all(work);
}

/** Publishes one thing after the other until the connection ends. */
async function produce(load: Load, client: RawClient): Promise<void> {
  const { ledger, random } = load;
  while (!client.ended) {
    const kind = random.below(12);
    const isLarge = kind > 2 && random.below(400) === 0;
    const paddingBytes = random.below(isLarge ? LARGE_BYTES_MAX : 1_000);
    const deferMs = kind !== 1 ? 0 : random.below(10) === 0 ? FAR_MS : 1 +
      random.below(random.below(5) === 0 ? load.laterMsMax : REQUEUE_MS_MAX);
    let topic = random.below(4) === 0 ? "alone" : "orders";
    if (deferMs > 0) topic = deferMs === FAR_MS ? "far" : "later";
    const bodies = ledger.newBodies(topic, kind === 0 ? 20 : 1, paddingBytes, deferMs);
    try {
      if (kind === 0 && deferMs === 0) await client.mpub(topic, bodies);
      else if (deferMs > 0) await client.dpub(topic, deferMs, bodies[0]!);
      else await client.pub(topic, bodies[0]!);
    } catch (error) {
      // Not confirmed: it may be there or not. The loop looks whether the connection goes on.
      refused(load, client.ended, error);
      continue;
    }
    ledger.confirm(bodies);
    load.confirmed();
  }
}

/** Publishes large messages, one at a time, until the connection ends. */
async function produceLarge(load: Load, client: RawClient): Promise<void> {
  const { ledger, random } = load;
  while (!client.ended) {
    const share = random.below(random.below(3) === 0 ? 100 : 20) / 100;
    const bytes = IN_PARTS_BYTES_MIN +
      Math.floor(share * (IN_PARTS_BYTES_MAX - IN_PARTS_BYTES_MIN));
    const body = ledger.newLargeBody("large", bytes);
    try {
      await client.pub("large", body);
    } catch (error) {
      refused(load, client.ended, error);
      continue;
    }
    ledger.confirm([body]);
    ledger.largeCount++;
    load.confirmed();
    await load.broker.endsWithin(IN_PARTS_PAUSE_MS);
  }
}

/** Publishes over HTTP, one request after the other, until the broker is gone. */
async function post(load: Load): Promise<void> {
  const { broker, ledger, random } = load;
  while (broker.code === null) {
    const isBatch = random.below(4) === 0;
    const bodies = ledger.newBodies("orders", isBatch ? 10 : 1, random.below(1_000));
    const path = isBatch ? "/mpub?topic=orders" : "/pub?topic=orders";
    // A killed broker takes connections for a moment longer, and then resets them.
    const answer = await broker.post(path, bodies.join("\n")).catch(() => null);
    if (answer === null) continue;
    if (answer.status !== 200) {
      refused(load, false, answer.text);
      continue;
    }
    ledger.confirm(bodies);
    load.confirmed();
  }
}

/**
 * Works on orders/worked: finishes most, touches, requeues, leaves some in flight. A publish on the
 * same connection that is confirmed proves that what was sent before it is on disk. It goes after
 * `deliveriesMax`, with whatever it has in flight.
 */
async function worker(load: Load, client: RawClient, deliveriesMax: number): Promise<void> {
  const { ledger, random } = load;
  const key = "orders/worked";
  const channel = ledger.channel(key);
  /** By id: what was sent and is not known to be on disk. */
  let finishes = new Map<string, string>();
  let requeues = new Map<string, { readonly name: string; readonly untilMs: number }>();
  let deliveries = 0;
  let seenErrors = 0;
  client.onMessage = (delivery) => {
    const name = ledger.deliver(delivery, key);
    const { id } = delivery;
    const choice = random.below(20);
    deliveries++;
    if (choice === 0) {
      const deferMs = random.below(REQUEUE_MS_MAX);
      requeues.set(id, { name, untilMs: Date.now() + deferMs });
      client.req(id, deferMs);
    } else if (choice === 1) client.req(id, 0);
    else if (choice > 2) {
      if (choice === 3) client.touch(id);
      client.fin(id);
      channel.finished.add(name);
      finishes.set(id, name);
    }
  };
  try {
    await client.sub("orders", "worked");
    client.rdy(300);
    while (!client.ended && deliveries < deliveriesMax) {
      const [sentFinishes, sentRequeues] = [finishes, requeues];
      finishes = new Map();
      requeues = new Map();
      const bodies = ledger.newBodies("alone", 1, 0);
      await client.pub("alone", bodies[0]!);
      ledger.confirm(bodies);
      // What had timed out was refused, in front of the OK.
      for (const id of failedIds(client.errors, seenErrors)) {
        for (const sent of [sentFinishes, sentRequeues, finishes, requeues]) sent.delete(id);
      }
      seenErrors = client.errors.length;
      for (const name of sentFinishes.values()) channel.finishedDurably.add(name);
      for (const { name, untilMs } of sentRequeues.values()) {
        channel.requeuedUntil.set(name, untilMs);
      }
    }
  } catch {
    // The end of the broker.
  }
}

/** Workers whose messages time out and that disconnect, one after the other. */
async function restless(load: Load): Promise<void> {
  while (load.broker.code === null) {
    try {
      await using client = await RawClient.connect(load.broker.tcpPort);
      await client.identify(RESTLESS_TIMEOUT_MS);
      await worker(load, client, RESTLESS_DELIVERIES);
    } catch {
      // The end of the broker, or almost.
    }
  }
}

/** Finishes what comes on a channel, apart from what it leaves in flight for good. */
async function finishMost(
  { ledger }: Load,
  client: RawClient,
  topic: string,
  channel: string,
  leaves: (name: string) => boolean,
): Promise<void> {
  const key = `${topic}/${channel}`;
  client.onMessage = (delivery: Delivery) => {
    const name = ledger.deliver(delivery, key);
    if (leaves(name)) return;
    client.fin(delivery.id);
    ledger.channel(key).finished.add(name);
  };
  try {
    await client.sub(topic, channel);
    client.rdy(500);
    await client.closed();
  } catch {
    // The end of the broker.
  }
}

function isLeftBySlow(name: string): boolean {
  return Number(name.split(" ")[1]) % SLOW_LEAVES_ONE_OF === 0;
}

function refused(load: Load, ended: boolean, why: unknown): void {
  if (ended || load.stopping || load.broker.code !== null) return;
  load.ledger.problem("refused", String(why));
}

/** The ids in the errors that came since. */
function failedIds(errors: readonly string[], from: number): string[] {
  return errors.slice(from).flatMap((error) => {
    const id = /^E_(?:FIN|REQ)_FAILED \w+ ([0-9a-f]{16})/.exec(error)?.[1];
    return id === undefined ? [] : [id];
  });
}
