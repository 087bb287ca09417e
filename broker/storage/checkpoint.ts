/**
 * A checkpoint: the durable state at one log position, as JSON. Positions of messages are not in it;
 * they come from the sidecars and from the log.
 */
import { LogError } from "@sluice/shared/log";
import { BrokerState, ChannelState, TopicState } from "./state.ts";

interface ChannelDocument {
  readonly number: number;
  readonly name: string;
  readonly start: number;
  readonly floor: number;
  /** Pairs `from, to` above the floor. */
  readonly finished: readonly number[];
  /** Triples offset, attempts, due. */
  readonly requeues: readonly number[];
  readonly paused: boolean;
}

interface TopicDocument {
  readonly number: number;
  readonly name: string;
  readonly ephemeral: boolean;
  readonly tail: number;
  readonly keepFrom: number;
  readonly paused: boolean;
  readonly pausedAt: number;
  readonly channels: readonly ChannelDocument[];
}

interface Document {
  readonly format: 1;
  readonly position: number;
  readonly nextTopicNumber: number;
  readonly nextChannelNumber: number;
  readonly topics: readonly TopicDocument[];
}

/** The state as bytes; `position` is where replay continues. */
export function encodeCheckpoint(state: BrokerState, position: number): Uint8Array {
  const document: Document = {
    format: 1,
    position,
    nextTopicNumber: state.nextTopicNumber,
    nextChannelNumber: state.nextChannelNumber,
    topics: [...state.topics.values()].map(topicDocument),
  };
  return new TextEncoder().encode(JSON.stringify(document));
}

/** What {@linkcode encodeCheckpoint} wrote. Throws {@linkcode LogError} when it is of another format. */
export function decodeCheckpoint(bytes: Uint8Array): { state: BrokerState; position: number } {
  const document = JSON.parse(new TextDecoder().decode(bytes)) as Document;
  if (document.format !== 1) {
    throw new LogError("newer_format", `Cannot read the checkpoint: format ${document.format}`);
  }
  const state = new BrokerState();
  state.nextTopicNumber = document.nextTopicNumber;
  state.nextChannelNumber = document.nextChannelNumber;
  for (const stored of document.topics) {
    const topic = new TopicState(stored.number, stored.name, stored.ephemeral);
    topic.tail = stored.tail;
    topic.keepFrom = stored.keepFrom;
    topic.paused = stored.paused;
    topic.pausedAt = stored.pausedAt;
    state.topics.set(topic.name, topic);
    state.topicsByNumber.set(topic.number, topic);
    for (const storedChannel of stored.channels) {
      const channel = restoreChannel(topic, storedChannel);
      topic.channels.set(channel.name, channel);
      state.channelsByNumber.set(channel.number, channel);
    }
  }
  return { state, position: document.position };
}

function topicDocument(topic: TopicState): TopicDocument {
  return {
    number: topic.number,
    name: topic.name,
    ephemeral: topic.ephemeral,
    tail: topic.tail,
    keepFrom: topic.keepFrom,
    paused: topic.paused,
    pausedAt: topic.pausedAt,
    channels: [...topic.channels.values()].filter((channel) => !channel.ephemeral).map(
      channelDocument,
    ),
  };
}

function channelDocument(channel: ChannelState): ChannelDocument {
  const requeues: number[] = [];
  for (const [offset, owed] of channel.requeues) requeues.push(offset, owed.attempts, owed.dueMs);
  return {
    number: channel.number,
    name: channel.name,
    start: channel.start,
    floor: channel.finished.floor,
    finished: channel.finished.ranges(),
    requeues,
    paused: channel.paused,
  };
}

function restoreChannel(topic: TopicState, stored: ChannelDocument): ChannelState {
  const channel = new ChannelState(stored.number, topic, stored.name, false, stored.start);
  channel.paused = stored.paused;
  channel.finished.raise(stored.floor);
  for (let at = 0; at + 1 < stored.finished.length; at += 2) {
    channel.finished.addRange(stored.finished[at]!, stored.finished[at + 1]!);
  }
  for (let at = 0; at + 2 < stored.requeues.length; at += 3) {
    channel.requeues.set(stored.requeues[at]!, {
      attempts: stored.requeues[at + 1]!,
      dueMs: stored.requeues[at + 2]!,
    });
  }
  return channel;
}
