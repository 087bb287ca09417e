/** What tests of checkpoints share: all there is to know of a state as text, and slices gathered. */
import { decodeCheckpoint, type DecodedCheckpoint, encodeCheckpoint } from "./checkpoint.ts";
import type { SliceLimits } from "./checkpoint_chunk.ts";
import type { BrokerState, ChannelState, TopicState } from "./state.ts";

/** Everything durable in a state, in one order whatever it came from. */
export function textOf(state: BrokerState): string {
  return JSON.stringify([
    state.nextTopicNumber,
    state.nextChannelNumber,
    sorted(state.topics).map(topicOf),
    [...state.topicsByNumber.keys()].sort((a, b) => a - b),
    [...state.channelsByNumber.keys()].sort((a, b) => a - b),
  ]);
}

function topicOf(topic: TopicState): unknown {
  const { number, name, ephemeral, tail, keepFrom, paused, pausedAt, policy } = topic;
  const channels = sorted(topic.channels).filter((channel) => !channel.ephemeral).map(channelOf);
  return { number, name, ephemeral, tail, keepFrom, paused, pausedAt, policy, channels };
}

function channelOf(channel: ChannelState): unknown {
  const { number, name, start, paused, finished } = channel;
  const requeues = [...channel.requeues].sort(([a], [b]) => a - b);
  const { floor, above } = finished;
  return { number, name, start, paused, floor, above, ranges: finished.ranges(), requeues };
}

function sorted<Value>(byName: ReadonlyMap<string, Value>): Value[] {
  return [...byName].sort(([a], [b]) => a < b ? -1 : 1).map(([, value]) => value);
}

/** All slices of a state that stands still, copied. */
export function slicesOf(state: BrokerState, position: number, limits?: SliceLimits): Uint8Array[] {
  const copies: Uint8Array[] = [];
  const slices = encodeCheckpoint(state, () => position, limits);
  let slice = slices.next();
  for (; slice.done !== true; slice = slices.next()) copies.push(slice.value.slice());
  copies.push(slice.value.slice());
  return copies;
}

/** The slices as a store gives them. */
export async function* chunksOf(slices: Iterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  // Some time passes, as with a disk.
  await Promise.resolve();
  yield* slices;
}

/** What the slices tell. */
export function decoded(slices: Iterable<Uint8Array>): Promise<DecodedCheckpoint> {
  return decodeCheckpoint(chunksOf(slices));
}
