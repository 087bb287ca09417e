/**
 * `deno task bench:connections [N]` (10,000): what that many idle subscribers cost a broker, and how
 * long a message takes beside them. `ulimit -n` must be above N in both processes.
 */
import { Service, TemporaryFolder } from "./process.ts";
import { closeQuietly, connectQuietly, RawClient, text } from "./raw_client.ts";
import { within } from "./wait.ts";

const CONNECTIONS = 10_000;
/** How many connections are made at a time. */
const AT_ONCE = 100;

/** What idle connections cost. */
export interface IdleFigures extends AsyncDisposable {
  /** Resident memory that came with each connection. */
  readonly bytesEach: number;
  readonly connectedMs: number;
  /** From a publish to its arrival at another client, the worst of some. */
  readonly deliveredMs: number;
}

/** Opens idle subscribers of one channel, and measures. */
export async function idleConnections(broker: Service, count: number): Promise<IdleFigures> {
  await using stack = new AsyncDisposableStack();
  await broker.createChannels("busy", "all");
  const before = broker.residentBytes;
  const startMs = performance.now();
  const hello = text("  V2SUB idle all\nRDY 1\n");
  for (let made = 0; made < count; made += AT_ONCE) {
    await Promise.all(Array.from({ length: Math.min(AT_ONCE, count - made) }, async () => {
      const connection = await connectQuietly(broker.tcpPort);
      stack.defer(() => closeQuietly(connection));
      await connection.write(hello);
      const buffer = new Uint8Array(64);
      if (await connection.read(buffer) !== 10) throw new Error("SUB was not answered OK");
    }));
  }
  const connectedMs = performance.now() - startMs;
  const bytesEach = Math.round((broker.residentBytes - before) / count);
  const deliveredMs = await worstDelivery(broker);
  const owned = stack.move();
  return {
    bytesEach,
    connectedMs,
    deliveredMs,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

async function worstDelivery(broker: Service): Promise<number> {
  await using consumer = await RawClient.connect(broker.tcpPort);
  await using producer = await RawClient.connect(broker.tcpPort);
  await consumer.sub("busy", "all");
  consumer.rdy(1);
  let worst = 0;
  for (let number = 0; number < 100; number++) {
    const startMs = performance.now();
    const arrived = new Promise<void>((resolve) => {
      consumer.onMessage = ({ id }) => {
        consumer.fin(id);
        resolve();
      };
    });
    await producer.pub("busy", `m${number}`);
    await within("a message", arrived);
    worst = Math.max(worst, performance.now() - startMs);
  }
  return Math.round(worst);
}

if (import.meta.main) {
  const count = Number(Deno.args[0] ?? CONNECTIONS);
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path, [`--connections-max=${count + 100}`]);
  await using figures = await idleConnections(broker, count);
  const { bytesEach, connectedMs, deliveredMs } = figures;
  console.log(
    `${count} idle subscribers: ${(bytesEach / 1024).toFixed(1)} KiB each, made in ` +
      `${Math.round(connectedMs)} ms, a message beside them takes ${deliveredMs} ms at worst`,
  );
}
