/**
 * Large messages against the real process: bodies are made, sent, received and hashed in pieces, so
 * that the test needs no more memory than it allows the broker.
 */
import { deepEqual, equal, ok } from "node:assert/strict";
import { createHash } from "node:crypto";
import { Service, TemporaryFolder } from "./process.ts";
import { closeQuietly, connectQuietly, int32, join, RawClient, text } from "./raw_client.ts";
import { eventually, within } from "./wait.ts";

const MIB = 2 ** 20;
const FLAGS = [
  "--ring-bytes=16MiB",
  "--page-cache-bytes=8MiB",
  "--log-file-bytes=16MiB",
  "--max-msg-size=100MiB",
  "--max-body-size=101MiB",
];
/** What the broker may take above its rest, with the ring in use, for a body of 100 MiB or ten at once. */
const GROWTH_BYTES_MAX = 64 * MIB;
const PIECE_BYTES = 64 * 1024;
const DEADLINE_MS = 120_000;

/** Pieces of a body that is the same for the same seed and different in every piece. */
function* pieces(bytes: number, seed: number): Generator<Uint8Array<ArrayBuffer>> {
  const words = new Uint32Array(PIECE_BYTES / 4);
  let word = seed * 2 + 1;
  for (let left = bytes; left > 0; left -= PIECE_BYTES) {
    for (let at = 0; at < words.length; at++) {
      word ^= word << 13;
      word ^= word >>> 17;
      word ^= word << 5;
      words[at] = word;
    }
    yield new Uint8Array(words.buffer).slice(0, Math.min(left, PIECE_BYTES));
  }
}

function hashOf(bytes: number, seed: number): string {
  const hash = createHash("sha256");
  for (const piece of pieces(bytes, seed)) hash.update(piece);
  return hash.digest("hex");
}

async function writeAll(connection: Deno.TcpConn, bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length;) at += await connection.write(bytes.subarray(at));
}

/** Reads frames, hashing instead of keeping what a message holds. */
class HashingReader {
  readonly #connection: Deno.TcpConn;
  #buffer = new Uint8Array(0);

  constructor(connection: Deno.TcpConn) {
    this.#connection = connection;
  }

  /** The next frame that is no heartbeat: its text, or the id and the hash of a message. */
  async next(): Promise<{ text: string; id: string; hash: string; bytes: number }> {
    while (true) {
      const head = await this.#take(8);
      const view = new DataView(head.buffer, head.byteOffset, 8);
      const dataBytes = view.getInt32(0) - 4;
      if (view.getInt32(4) === 2) {
        const id = decode((await this.#take(26)).subarray(10));
        const hash = createHash("sha256");
        for (let left = dataBytes - 26; left > 0;) {
          const piece = await this.#some(left);
          hash.update(piece);
          left -= piece.length;
        }
        return { text: "", id, hash: hash.digest("hex"), bytes: dataBytes - 26 };
      }
      const frame = decode(await this.#take(dataBytes));
      if (frame !== "_heartbeat_") return { text: frame, id: "", hash: "", bytes: 0 };
      await writeAll(this.#connection, text("NOP\n"));
    }
  }

  async #take(bytes: number): Promise<Uint8Array> {
    let taken = new Uint8Array(0);
    while (taken.length < bytes) taken = join(taken, await this.#some(bytes - taken.length));
    return taken;
  }

  async #some(bytesMax: number): Promise<Uint8Array> {
    if (this.#buffer.length === 0) {
      const buffer = new Uint8Array(PIECE_BYTES);
      const read = await this.#connection.read(buffer);
      if (read === null) throw new Error("Cannot read: the broker has closed the connection");
      this.#buffer = buffer.subarray(0, read);
    }
    const some = this.#buffer.subarray(0, bytesMax);
    this.#buffer = this.#buffer.subarray(some.length);
    return some;
  }
}

function decode(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes);
}

/** Publishes one message and waits for its OK. */
async function publish(port: number, topic: string, bytes: number, seed: number): Promise<void> {
  const connection = await connectQuietly(port);
  try {
    await writeAll(connection, join(text(`  V2PUB ${topic}\n`), int32(bytes)));
    for (const piece of pieces(bytes, seed)) await writeAll(connection, piece);
    equal((await new HashingReader(connection).next()).text, "OK");
  } finally {
    connection.close();
  }
}

/** Takes and finishes `count` messages; the hashes of their bodies. */
async function consume(
  port: number,
  topic: string,
  channel: string,
  count: number,
): Promise<string[]> {
  const connection = await connectQuietly(port);
  const reader = new HashingReader(connection);
  const hashes: string[] = [];
  try {
    await writeAll(connection, text(`  V2SUB ${topic} ${channel}\nRDY 1\n`));
    equal((await reader.next()).text, "OK");
    while (hashes.length < count) {
      const { id, hash } = await reader.next();
      hashes.push(hash);
      await writeAll(connection, text(`FIN ${id}\n`));
    }
    await writeAll(connection, text("CLS\n"));
    equal((await reader.next()).text, "CLOSE_WAIT");
  } finally {
    connection.close();
  }
  return hashes;
}

/** Has the ring and what else grows once in use, and says what the broker takes then. */
async function rest(broker: Service): Promise<number> {
  await using client = await RawClient.connect(broker.tcpPort);
  const body = "x".repeat(512 * 1024);
  for (let count = 0; count < 64; count++) await client.pub("warm", body);
  return broker.residentBytesPeak;
}

Deno.test("a message of 100 MiB goes in and out unchanged, over TCP and HTTP, within 64 MiB of memory", async () => {
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path, FLAGS);
  await broker.createChannels("large", "c");
  const restBytes = await rest(broker);
  const bytes = 100 * MIB;
  await within("the OK", publish(broker.tcpPort, "large", bytes, 1), DEADLINE_MS);
  console.log(`TCP: ${Math.round((broker.residentBytesPeak - restBytes) / MIB)} MiB above rest`);
  const body = pieces(bytes - 7, 2);
  const stream = new ReadableStream<Uint8Array<ArrayBuffer>>({
    pull(controller) {
      const { done, value } = body.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
  });
  // Without a length: the broker finds out how much it is.
  await within("the 200", broker.order("/pub?topic=large", stream), DEADLINE_MS);
  const hashes = await within("both", consume(broker.tcpPort, "large", "c", 2), DEADLINE_MS);
  deepEqual(hashes, [hashOf(bytes, 1), hashOf(bytes - 7, 2)]);
  const grownBytes = broker.residentBytesPeak - restBytes;
  console.log(`memory above rest: ${Math.round(grownBytes / MIB)} MiB`);
  ok(grownBytes < GROWTH_BYTES_MAX, `${grownBytes} bytes above rest`);
  await eventually("the last FIN", async () => {
    const figures = await broker.channel("large", "c");
    return figures?.depth === 0 && figures.in_flight_count === 0;
  });
});

Deno.test("ten uploads at once share the memory, and small publishes go between them", async () => {
  await using folder = await TemporaryFolder.create();
  await using broker = await Service.broker(folder.path, FLAGS);
  await broker.createChannels("large", "c");
  const restBytes = await rest(broker);
  const bytes = 12 * MIB;
  await using small = await RawClient.connect(broker.tcpPort);
  let uploading = true;
  let smalls = 0;
  const ticking = (async () => {
    while (uploading) {
      await small.pub("small", "x");
      smalls++;
    }
  })();
  const seeds = Array.from({ length: 10 }, (_, index) => index + 1);
  await within(
    "ten OKs",
    Promise.all(seeds.map((seed) => publish(broker.tcpPort, "large", bytes, seed))),
    DEADLINE_MS,
  );
  uploading = false;
  await ticking;
  ok(smalls >= 20, `${smalls} small publishes went through`);
  const hashes = await within("all", consume(broker.tcpPort, "large", "c", 10), DEADLINE_MS);
  deepEqual(hashes.toSorted(), seeds.map((seed) => hashOf(bytes, seed)).toSorted());
  const grownBytes = broker.residentBytesPeak - restBytes;
  console.log(`memory above rest: ${Math.round(grownBytes / MIB)} MiB`);
  ok(grownBytes < GROWTH_BYTES_MAX, `${grownBytes} bytes above rest`);
});

Deno.test("a stalled upload and a stalled reader cost only themselves; a killed broker keeps what was confirmed", async () => {
  await using folder = await TemporaryFolder.create();
  const bytes = 20 * MIB;
  {
    await using broker = await Service.broker(folder.path, FLAGS);
    await broker.createChannels("large", "stalled", "good");
    await publish(broker.tcpPort, "large", bytes, 1);
    await using stack = new AsyncDisposableStack();
    const upload = await connectQuietly(broker.tcpPort);
    stack.defer(() => closeQuietly(upload));
    await writeAll(upload, join(text("  V2PUB large\n"), int32(bytes)));
    for (const piece of pieces(5 * MIB, 2)) await writeAll(upload, piece);
    const reader = await connectQuietly(broker.tcpPort);
    stack.defer(() => closeQuietly(reader));
    await writeAll(reader, text("  V2SUB large stalled\nRDY 1\n"));
    await eventually(
      "a message in flight to the stalled reader",
      async () => (await broker.channel("large", "stalled"))?.in_flight_count === 1,
    );
    deepEqual(await consume(broker.tcpPort, "large", "good", 1), [hashOf(bytes, 1)]);
    await using small = await RawClient.connect(broker.tcpPort);
    for (let count = 0; count < 50; count++) await small.pub("small", "x");
    const { text: metrics } = await broker.get("/metrics");
    ok(metrics.includes("sluice_large_uploads 1\n"), "the upload is under way");
    await broker.kill();
  }
  await using broker = await Service.broker(folder.path, FLAGS);
  equal((await broker.channel("large", "good"))?.depth, 0);
  equal((await broker.topic("large"))?.channels.length, 2);
  deepEqual(await consume(broker.tcpPort, "large", "stalled", 1), [hashOf(bytes, 1)]);
});
