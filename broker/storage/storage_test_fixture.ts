/** What the tests of this folder share: a storage with an owner that keeps what it is told, and short ways to use it. */
import { type Clock, type Disk, invariant } from "@sluice/shared/runtime";
import { WIRE_HEADER_BYTES } from "./records.ts";
import { ChannelState, TopicState } from "./state.ts";
import { Storage, type StorageOptions, type StorageOwner } from "./storage.ts";

/** Small sizes, so that little work wraps the ring and rolls the files. */
export const TEST_OPTIONS: StorageOptions = {
  dataPath: "/data",
  nodeId: { value: 3, required: false },
  ringBytes: 65_536,
  logFileBytes: 20_000,
  pageCacheBytes: 1 << 20,
  indexCacheBytes: 1 << 20,
  bodyBytesMax: 16_000,
  finishSyncIntervalMs: 10,
};

/** Keeps what a storage reports. */
export class TestStorageOwner implements StorageOwner {
  /** The names of the topics of each group. */
  readonly groups: string[][] = [];
  readonly errors: Error[] = [];
  stalls = 0;
  readonly warnings: string[] = [];

  durable(topics: readonly TopicState[]): void {
    this.groups.push(topics.map((topic) => topic.name));
  }

  stalled(): void {
    this.stalls++;
  }

  failed(error: Error): void {
    this.errors.push(error);
  }

  warn(message: string): void {
    this.warnings.push(message);
  }
}

/** A storage and its owner. */
export interface OpenedStorage {
  readonly storage: Storage;
  readonly owner: TestStorageOwner;
}

/** Opens a storage with {@linkcode TEST_OPTIONS}, changed as given. */
export async function openStorage(
  disk: Disk,
  clock: Clock,
  changes: Partial<StorageOptions> = {},
): Promise<OpenedStorage> {
  const owner = new TestStorageOwner();
  return {
    storage: await Storage.open(disk, clock, { ...TEST_OPTIONS, ...changes }, owner),
    owner,
  };
}

/** Makes a topic. */
export function createTopic(storage: Storage, name: string): TopicState {
  const topic = storage.decide({
    type: "topic_created",
    topic: storage.state.nextTopicNumber,
    name,
    ephemeral: name.endsWith("#ephemeral"),
  });
  invariant(topic instanceof TopicState, "creating a topic gives its state");
  return topic;
}

/** Makes a durable channel. */
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

/** Appends a message without waiting for it; returns its offset. */
export function publish(storage: Storage, topic: TopicState, body: string, dueMs = 0): number {
  const bytes = new TextEncoder().encode(body);
  const offset = topic.tail;
  const wire = storage.beginMessage(topic, WIRE_HEADER_BYTES + bytes.length, dueMs);
  storage.log.ring.fill(0, wire, wire + WIRE_HEADER_BYTES);
  storage.log.ring.set(bytes, wire + WIRE_HEADER_BYTES);
  storage.endMessage();
  return offset;
}

/** The log positions of a topic's messages from an offset on, read from disk where need be. */
export async function positionsOf(topic: TopicState, from = 0): Promise<number[]> {
  const positions: number[] = [];
  for (let offset = from; offset < topic.tail; offset++) {
    await topic.index.load(offset);
    positions.push(topic.index.position(offset));
  }
  return positions;
}
