/**
 * What the tests of the offline tools share: data folders made by a real storage on a simulated disk,
 * and `sluicectl` in a world of its own.
 */
import {
  ChannelState,
  Storage,
  type StorageOptions,
  TopicState,
  WIRE_HEADER_BYTES,
  WrittenBody,
} from "@sluice/broker/storage";
import { run } from "@sluice/ctl/cli";
import { type Disk, invariant } from "@sluice/shared/runtime";
import { SimClock, SimDisk } from "@sluice/shared/testing";

/** Where the folder is. */
export const PATH = "/data";
const NODE_ID = 3;
/** 2023-11-14T22:13:20Z and a nanosecond. */
const TIMESTAMP_NS = 1_700_000_000_000_000_001n;

/** Small sizes, so that little work makes several files. */
export const OPTIONS: StorageOptions = {
  dataPath: PATH,
  nodeId: { value: NODE_ID, required: false },
  ringBytes: 65_536,
  logFileBytes: 20_000,
  pageCacheBytes: 1 << 20,
  indexCacheBytes: 1 << 20,
  bodyBytesMax: 16_000,
  finishSyncIntervalMs: 10,
};

/** Opens a storage; anything that goes wrong in it fails the test. */
export function openStorage(disk: Disk): Promise<Storage> {
  const fail = (error: unknown) => {
    throw error;
  };
  return Storage.open(disk, new SimClock(), OPTIONS, {
    durable: () => {},
    stalled: fail,
    failed: fail,
    warn: (_message, error) => fail(error),
  });
}

/** Appends a message with an id, as a broker does; returns its offset. */
export function publish(storage: Storage, topic: TopicState, body: Uint8Array, dueMs = 0): number {
  const offset = topic.tail;
  const id = nextId(storage);
  const at = storage.beginMessage(topic, WIRE_HEADER_BYTES + body.length, dueMs);
  writeHead(storage, at, id);
  storage.log.ring.set(body, at + WIRE_HEADER_BYTES);
  storage.endMessage();
  return offset;
}

/** Appends a message in parts, each in a group of its own; returns the positions of the parts. */
export async function publishLarge(
  storage: Storage,
  topic: TopicState,
  body: Uint8Array,
): Promise<number[]> {
  const { large } = storage;
  const written = new WrittenBody();
  for (let at = 0; at < body.length; at += large.partBytes) {
    while (!storage.hasPartRoom(large.partBytes, 1)) await storage.room();
    large.write(written, body, at, Math.min(body.length, at + large.partBytes));
    await storage.drain();
  }
  const id = nextId(storage);
  writeHead(storage, storage.beginLargeMessage(topic, written, 0), id);
  storage.endMessage();
  await storage.drain();
  return written.parts.map(({ position }) => position);
}

function nextId(storage: Storage): string {
  return NODE_ID.toString(16).padStart(4, "0") +
    storage.nextSequence.toString(16).padStart(12, "0");
}

function writeHead({ log: { ring, ringView } }: Storage, at: number, id: string): void {
  ringView.setBigInt64(at, TIMESTAMP_NS);
  ringView.setUint16(at + 8, 0);
  ring.set(new TextEncoder().encode(id), at + 10);
}

/** Publishes `count` messages named `<prefix><offset>`, in groups of ten. */
export async function publishMany(
  storage: Storage,
  topic: TopicState,
  count: number,
  prefix = "message ",
): Promise<void> {
  for (let index = 0; index < count; index++) {
    publish(storage, topic, bodyOf(`${prefix}${topic.tail}`));
    if (index % 10 === 9) await storage.drain();
  }
  await storage.drain();
}

/** A body with some weight to it. */
export function bodyOf(text: string): Uint8Array {
  return new TextEncoder().encode(text.padEnd(120, "."));
}

export function createTopic(storage: Storage, name: string): TopicState {
  const topic = storage.decide({
    type: "topic_created",
    topic: storage.state.nextTopicNumber,
    name,
    ephemeral: false,
  });
  invariant(topic instanceof TopicState, "creating a topic gives its state");
  return topic;
}

export function createChannel(storage: Storage, topic: TopicState, name: string): ChannelState {
  const channel = storage.decide({
    type: "channel_created",
    topic: topic.number,
    channel: storage.state.nextChannelNumber,
    name,
    start: topic.channelStart,
  });
  invariant(channel instanceof ChannelState, "creating a channel gives its state");
  return channel;
}

/**
 * A folder of a broker that was stopped: topic `orders` with 300 messages, of which channel `fast` has
 * finished the first 50 and `slow` nothing; topic `kept` with 2 messages and no channel. Several
 * files, two checkpoints, of which the newest is of the end. With `crashed` the last checkpoint is
 * missing and the last group is not vouched for by anything.
 */
export async function buildFolder({ crashed = false } = {}): Promise<SimDisk> {
  const disk = new SimDisk();
  const storage = await openStorage(disk);
  const orders = createTopic(storage, "orders");
  const fast = createChannel(storage, orders, "fast");
  createChannel(storage, orders, "slow");
  const kept = createTopic(storage, "kept");
  publish(storage, kept, bodyOf("first"));
  await publishMany(storage, orders, 150);
  for (let offset = 0; offset < 50; offset++) storage.finish(fast, offset);
  await storage.drain();
  await storage.maintain();
  await publishMany(storage, orders, 120);
  await storage.maintain();
  publish(storage, kept, bodyOf("second"));
  await publishMany(storage, orders, 30);
  if (crashed) await storage.abandon();
  else await storage.close();
  return disk;
}

/** What a run of `sluicectl` came to. */
export interface Outcome {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** Runs `sluicectl` against a disk. */
export async function ctl(disk: Disk, ...args: readonly string[]): Promise<Outcome> {
  return await ctlIn({ disk }, ...args);
}

/** The same, with a choice of the world. */
export async function ctlIn(
  world: { readonly disk: Disk; readonly clock?: SimClock; readonly errIsTerminal?: boolean },
  ...args: readonly string[]
): Promise<Outcome> {
  const out: Uint8Array[] = [];
  let err = "";
  const code = await run(args, {
    disk: world.disk,
    clock: world.clock ?? new SimClock(),
    out: (bytes) => out.push(bytes.slice()),
    err: (text) => err += text,
    errIsTerminal: world.errIsTerminal ?? false,
  });
  return { code, out: await new Blob(out.map((bytes) => bytes.slice())).text(), err };
}

/** The names and contents of all files of a disk. */
export function contentOf(disk: SimDisk): Map<string, string> {
  return new Map(disk.files().map((path) => [path, disk.bytes(path).toString()]));
}

/** The paths of one kind of file in the journal, oldest first. */
export function journal(disk: SimDisk, ending: ".log" | ".idx" | ".ckp"): string[] {
  return disk.files().filter((path) =>
    path.startsWith(`${PATH}/journal/`) && path.endsWith(ending)
  );
}

/** Overwrites bytes of a file. */
export function overwrite(disk: SimDisk, path: string, at: number, bytes: Uint8Array): void {
  const whole = disk.bytes(path);
  whole.set(bytes, at);
  disk.writeDurable(path, whole);
}

/** The body, without its padding, of each line of an ndjson dump. */
export function bodiesOf(out: string): string[] {
  return out.split("\n").filter((line) => line !== "").map((line) => {
    const { body } = JSON.parse(line) as { body: string };
    return body.replace(/\.+$/, "");
  });
}
