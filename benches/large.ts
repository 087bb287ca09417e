/**
 * `deno task bench:large`: what large messages cost everybody else. Small messages are published at a
 * fixed rate (open loop: a late answer does not delay the next publish, and counts from when it was
 * due), first alone, then while one client publishes large messages back to back and one consumes
 * them. Broker and clients are processes of their own on this machine.
 */
import { parseArgs } from "node:util";
import {
  encodePub,
  encodeSub,
  FIN_BYTES,
  FrameDecoder,
  FrameEvent,
  MAGIC_V2,
  NOP_COMMAND,
  writeFin,
} from "@sluice/shared/protocol";
import { sluiceTarget, startTarget } from "./targets.ts";

const HELP = `Measures how large messages delay small publishes.

  deno task bench:large [--seconds S] [--rate N] [--mib N] [--json]

  --seconds S   length of each of the two runs (default 10)
  --rate N      small publishes a second (default 200)
  --mib N       size of the large messages (default 100)
  --json        JSON only
`;

const MIB = 2 ** 20;
const SMALL_BODY = new Uint8Array(200).fill(0x61);
const PIECE = new Uint8Array(256 * 1024).fill(0x62);
const ROOT = new URL("..", import.meta.url).pathname.replace(/\/$/, "");

/** Milliseconds from when a publish was due to its OK. */
interface Latency {
  readonly publishes: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
}

/** What a client of large messages has moved. */
interface Moved {
  readonly messages: number;
  readonly mibPerSecond: number;
}

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "10" },
    rate: { type: "string", default: "200" },
    mib: { type: "string", default: "100" },
    json: { type: "boolean", default: false },
    help: { type: "boolean", default: false },
    // How this file runs itself as a client.
    role: { type: "string", default: "" },
    address: { type: "string", default: "" },
  },
});
const seconds = Number(values.seconds);
const rate = Number(values.rate);
const largeBytes = Number(values.mib) * MIB;

async function connect(): Promise<Deno.TcpConn> {
  const [hostname, port] = values.address.split(":");
  const connection = await Deno.connect({ hostname: hostname!, port: Number(port) });
  connection.setNoDelay(true);
  await writeAll(connection, MAGIC_V2);
  return connection;
}

async function writeAll(connection: Deno.TcpConn, bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length;) at += await connection.write(bytes.subarray(at));
}

function delay(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)));
}

/** Publishes small messages at the rate and measures each. */
async function measureSmall(): Promise<Latency> {
  const connection = await connect();
  const due: number[] = [];
  const tookMs: number[] = [];
  const total = Math.round(seconds * rate);
  const reading = (async () => {
    const decoder = new FrameDecoder(4096);
    const buffer = new Uint8Array(4096);
    while (tookMs.length < total) {
      const bytes = await connection.read(buffer);
      if (bytes === null) throw new Error("Cannot publish: the broker closed the connection");
      decoder.feed(buffer, 0, bytes);
      while (decoder.next() === FrameEvent.FRAME) {
        if (decoder.text() === "OK") tookMs.push(performance.now() - due[tookMs.length]!);
        else await connection.write(NOP_COMMAND);
      }
    }
  })();
  const command = encodePub("small", SMALL_BODY);
  const startMs = performance.now();
  for (let count = 0; count < total; count++) {
    const atMs = startMs + count * 1000 / rate;
    if (atMs > performance.now()) await delay(atMs - performance.now());
    due.push(atMs);
    await writeAll(connection, command);
  }
  await reading;
  connection.close();
  tookMs.sort((a, b) => a - b);
  const at = (share: number) => tookMs[Math.min(total - 1, Math.floor(total * share))]!;
  return { publishes: total, p50Ms: at(0.5), p99Ms: at(0.99), maxMs: at(1) };
}

/** Publishes large messages back to back. */
async function flood(): Promise<Moved> {
  const connection = await connect();
  const startMs = performance.now();
  const reply = new Uint8Array(64);
  let messages = 0;
  do {
    const command = encodePub("large", new Uint8Array(0));
    new DataView(command.buffer).setInt32(command.length - 4, largeBytes);
    await writeAll(connection, command);
    for (let left = largeBytes; left > 0; left -= PIECE.length) {
      await writeAll(connection, PIECE.subarray(0, Math.min(left, PIECE.length)));
    }
    // Heartbeats may come as well; an error ends in "END" or the like and is not OK.
    let text = "";
    while (!text.includes("OK")) {
      const bytes = await connection.read(reply);
      text += new TextDecoder().decode(reply.subarray(0, bytes ?? 0));
      if (bytes === null || text.includes("E_")) throw new Error(`Cannot publish: ${text}`);
    }
    messages++;
  } while (performance.now() - startMs < seconds * 1000);
  connection.close();
  const took = (performance.now() - startMs) / 1000;
  return { messages, mibPerSecond: messages * largeBytes / MIB / took };
}

/** Consumes large messages for as long as the run takes; a body is read and dropped. */
async function drain(): Promise<Moved> {
  const connection = await connect();
  await writeAll(connection, encodeSub("large", "bench"));
  await writeAll(connection, new TextEncoder().encode("RDY 1\n"));
  const startMs = performance.now();
  const timer = setTimeout(() => connection.close(), seconds * 1000);
  const buffer = new Uint8Array(256 * 1024);
  let messages = 0;
  let moved = 0;
  let held = new Uint8Array(0);
  let bodyLeft = 0;
  const id = new Uint8Array(16);
  while (true) {
    const bytes = await connection.read(buffer).catch(() => null);
    if (bytes === null) break;
    let at = 0;
    while (at < bytes) {
      if (bodyLeft > 0) {
        const count = Math.min(bodyLeft, bytes - at);
        bodyLeft -= count;
        moved += count;
        at += count;
        if (bodyLeft > 0) continue;
        messages++;
        const fin = new Uint8Array(FIN_BYTES);
        writeFin(fin, 0, id, 0);
        await writeAll(connection, fin).catch(() => {});
        continue;
      }
      held = new Uint8Array([...held, buffer[at]!]);
      at++;
      const head = new DataView(held.buffer);
      if (held.length < 8) continue;
      const isMessage = head.getInt32(4) === 2;
      if (held.length < (isMessage ? 34 : 4 + head.getInt32(0))) continue;
      if (isMessage) {
        id.set(held.subarray(18, 34));
        bodyLeft = head.getInt32(0) - 30;
      } else if (new TextDecoder().decode(held.subarray(8)) === "_heartbeat_") {
        await writeAll(connection, NOP_COMMAND).catch(() => {});
      }
      held = new Uint8Array(0);
    }
  }
  clearTimeout(timer);
  return { messages, mibPerSecond: moved / MIB / ((performance.now() - startMs) / 1000) };
}

/** Runs this file as a client and gives what it prints. */
async function client<T>(role: string, address: string): Promise<T> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "--quiet",
      "--allow-net",
      import.meta.filename!,
      `--role=${role}`,
      `--address=${address}`,
      `--seconds=${seconds}`,
      `--rate=${rate}`,
      `--mib=${values.mib}`,
    ],
    stdin: "null",
  }).output();
  if (code !== 0) throw new Error(`Cannot run ${role}: ${new TextDecoder().decode(stderr)}`);
  return JSON.parse(new TextDecoder().decode(stdout)) as T;
}

async function main(): Promise<void> {
  const target = sluiceTarget(ROOT);
  const broker = await startTarget({
    ...target,
    command: [
      ...target.command,
      "--max-msg-size=100MiB",
      "--max-body-size=101MiB",
      "--log-level=error",
    ],
  });
  try {
    const { httpAddress, tcpAddress } = broker;
    const paths = ["topic/create?topic=large", "channel/create?topic=large&channel=bench"];
    for (const path of paths) {
      const response = await fetch(`http://${httpAddress}/${path}`, { method: "POST" });
      await response.body?.cancel();
    }
    const alone = await client<Latency>("small", tcpAddress);
    const [beside, published, consumed] = await Promise.all([
      client<Latency>("small", tcpAddress),
      client<Moved>("flood", tcpAddress),
      client<Moved>("drain", tcpAddress),
    ]);
    const result = { seconds, rate, largeBytes, alone, beside, published, consumed };
    if (!values.json) console.log(textOf(result));
    console.log(JSON.stringify(result));
  } finally {
    await broker.stop();
  }
}

function textOf(result: {
  readonly alone: Latency;
  readonly beside: Latency;
  readonly published: Moved;
  readonly consumed: Moved;
}): string {
  const row = (name: string, { publishes, p50Ms, p99Ms, maxMs }: Latency) =>
    `${name.padEnd(28)} ${String(publishes).padStart(7)} publishes  p50 ${p50Ms.toFixed(1)} ms  ` +
    `p99 ${p99Ms.toFixed(1)} ms  max ${maxMs.toFixed(1)} ms`;
  const moved = (name: string, { messages, mibPerSecond }: Moved) =>
    `${name.padEnd(28)} ${String(messages).padStart(7)} messages   ${
      mibPerSecond.toFixed(0)
    } MiB/s`;
  return [
    row("small publishes alone", result.alone),
    row("beside large messages", result.beside),
    moved("large messages published", result.published),
    moved("large messages consumed", result.consumed),
  ].join("\n");
}

switch (values.help ? "help" : values.role) {
  case "help":
    console.log(HELP);
    break;
  case "":
    await main();
    break;
  case "small":
    console.log(JSON.stringify(await measureSmall()));
    break;
  case "flood":
    console.log(JSON.stringify(await flood()));
    break;
  case "drain":
    console.log(JSON.stringify(await drain()));
    break;
  default:
    throw new TypeError(`Unknown role "${values.role}"`);
}
