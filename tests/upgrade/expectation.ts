/**
 * What a golden folder holds, as its `expected.json` says it. A release may add to what it writes down
 * here; it goes on checking all that earlier releases wrote.
 */
import type { Broker } from "@sluice/broker/broker";
import type { Channel, Topic } from "@sluice/broker/queue";

/** A message that some channel is owed or that is kept for the first one. */
export interface ExpectedMessage {
  readonly offset: number;
  readonly id: string;
  readonly timestamp: string;
  /** Unix ms; 0: at once. */
  readonly due_ms: number;
  /** Base64. */
  readonly body: string;
}

/** A message that was given back. */
export interface ExpectedRequeue {
  readonly offset: number;
  readonly attempts: number;
  /** Unix ms; 0: at once. */
  readonly due_ms: number;
}

export interface ExpectedChannel {
  readonly name: string;
  readonly paused: boolean;
  /** The first offset that it was ever owed. */
  readonly start: number;
  /** Ready to be delivered; what a pause of the topic hides does not count. */
  readonly depth: number;
  readonly deferred: number;
  /** Offsets below the topic's tail that it has not finished; all others it has. */
  readonly unfinished: readonly number[];
  readonly requeues: readonly ExpectedRequeue[];
}

export interface ExpectedTopic {
  readonly name: string;
  readonly paused: boolean;
  /** The next offset. */
  readonly tail: number;
  readonly depth: number;
  /** What was decided for it alone; absent when nothing was. */
  readonly policy?: Readonly<Record<string, unknown>>;
  readonly channels: readonly ExpectedChannel[];
  readonly messages: readonly ExpectedMessage[];
}

/** See the module. */
export interface Expectation {
  readonly release: string;
  readonly node_id: number;
  /** The epoch of the broker that wrote it. */
  readonly epoch: number;
  /** Message sequences below it may have been used. */
  readonly sequence_reserved: number;
  /** When it was left, Unix ms. */
  readonly wall_ms: number;
  /** Neither a topic nor a channel may get a number below again. */
  readonly next_topic_number: number;
  readonly next_channel_number: number;
  readonly topics: readonly ExpectedTopic[];
}

/** What a broker knows of its durable topics, by name; the messages are those of `messagesOf`. */
export function describeTopics(
  broker: Broker,
  messagesOf: (topic: Topic) => readonly ExpectedMessage[],
): ExpectedTopic[] {
  return byName([...broker.topics.values()].filter(({ state }) => !state.ephemeral))
    .map((topic) => ({
      name: topic.state.name,
      paused: topic.state.paused,
      tail: topic.state.tail,
      depth: topic.depth,
      ...(Object.keys(topic.state.policy).length === 0 ? {} : { policy: topic.state.policy }),
      channels: byName([...topic.channels.values()].filter(({ state }) => !state.ephemeral))
        .map((channel) => describeChannel(channel)),
      messages: messagesOf(topic),
    }));
}

function describeChannel(channel: Channel): ExpectedChannel {
  const { name, paused, start, finished, requeues, topic } = channel.state;
  const unfinished = [];
  for (let offset = 0; offset < topic.tail; offset++) {
    if (!finished.has(offset)) unfinished.push(offset);
  }
  return {
    name,
    paused,
    start,
    depth: channel.depth,
    deferred: channel.deferredCount,
    unfinished,
    requeues: [...requeues]
      .map(([offset, { attempts, dueMs }]) => ({ offset, attempts, due_ms: dueMs }))
      .sort((a, b) => a.offset - b.offset),
  };
}

function byName<T extends { readonly state: { readonly name: string } }>(list: T[]): T[] {
  return list.sort((a, b) => (a.state.name < b.state.name ? -1 : 1));
}
