/** Looks at a broker that has just come up, and holds it against the model. */
import type { Channel, Topic } from "@sluice/broker/queue";
import type { Life } from "./life.ts";
import { type ModelChannel, type ModelTopic, promised, Violation } from "./model.ts";

/** So long that nothing times out while it is looked at. */
const TIMEOUT_MS = 3_600_000;

/** Compares everything that can be seen, and has every channel deliver all it owes and is due. */
export async function inspect(life: Life): Promise<void> {
  const { broker, model } = life;
  const { damage, orphanRecords } = broker.storage.opening;
  promised(damage.length === 0, `a crash damages nothing, but: ${JSON.stringify(damage)}`);
  promised(orphanRecords === 0, `${orphanRecords} records are of no topic or channel`);
  // What came due while the broker was away is handed out by timers without delay.
  await life.clock.run(1);
  sameNames("topics", broker.topics.keys(), model.topics.keys());
  for (const [name, expected] of model.topics) {
    const topic = broker.topics.get(name);
    if (topic !== undefined) await inspectTopic(life, topic, expected);
  }
  await inspectReports(life);
  promised(broker.source.damagedCount === 0, "no message is damaged");
  life.rethrow();
}

/** What a channel lost for want of space is in a report. */
async function inspectReports({ model, readReports }: Life): Promise<void> {
  if (model.gaps.length === 0) return;
  const reported = await readReports();
  for (const { topic, channel, count } of model.gaps) {
    const isNamed = reported.some((gap) =>
      gap.topic === topic && gap.to >= count &&
      // Of what a topic kept for its first channel, which was made since.
      (channel === null || gap.channel === undefined || gap.channel === channel)
    );
    promised(isNamed, `no report says that ${topic}/${channel} has nothing below ${count}`);
  }
}

async function inspectTopic(life: Life, topic: Topic, expected: ModelTopic): Promise<void> {
  const { name } = expected;
  promised(topic.state.paused === expected.paused, `${name}: paused is ${topic.state.paused}`);
  promised(topic.state.ackMode === expected.ackMode, `${name}: mode is ${topic.state.ackMode}`);
  const { bytesMax, action } = life.broker.quotaOf(topic.state);
  const limit = life.model.limitOf(name);
  promised(
    bytesMax === limit.bytesMax && action === limit.action,
    `${name}: limit is ${bytesMax} ${action}`,
  );
  const kept = expected.channels.size === 0 ? expected.kept.size : 0;
  const depth = kept + expected.held.size;
  promised(topic.depth === depth, `${name}: depth is ${topic.depth} instead of ${depth}`);
  sameNames(`channels of ${name}`, topic.channels.keys(), expected.channels.keys());
  for (const [channelName, model] of expected.channels) {
    const channel = topic.channels.get(channelName);
    if (channel === undefined) continue;
    const where = `${name}/${channelName}`;
    promised(channel.state.paused === model.paused, `${where}: paused is ${channel.state.paused}`);
    sameCounts(life, where, channel, model);
    await drain(life, topic, channel, model);
    sameCounts(life, where, channel, model);
  }
}

function sameCounts(life: Life, where: string, channel: Channel, model: ModelChannel): void {
  const { depth, inFlightCount, deferredCount } = channel;
  const deferred = model.owed.size - model.dueBy(life.clock.wallMs());
  const seen = `${where}: depth ${depth}, in flight ${inFlightCount}, deferred ${deferredCount}`;
  promised(
    depth + inFlightCount + deferredCount === model.owed.size,
    `${seen}: owed ${model.owed.size}`,
  );
  promised(deferredCount === deferred, `${seen}: ${deferred} are not due`);
  promised(inFlightCount === 0, `${seen}: nobody has joined`);
}

/** A new consumer gets all that is due, once, and nothing else; the model checks each delivery. */
async function drain(
  life: Life,
  topic: Topic,
  channel: Channel,
  model: ModelChannel,
): Promise<void> {
  const fake = life.join(topic, channel, TIMEOUT_MS);
  life.credit(fake, model.owed.size + 10);
  await life.clock.run(0);
  life.rethrow();
  const wallMs = life.clock.wallMs();
  for (const debt of model.owed.values()) {
    const { sequence } = debt.message;
    const wanted = debt.dueMs <= wallMs && !model.paused;
    if (fake.got.has(sequence) === wanted) continue;
    throw new Violation(
      wanted
        ? `message ${sequence} is owed by ${topic.state.name}/${channel.state.name}, due ` +
          `${debt.dueMs}, and was not delivered`
        : `message ${sequence} was delivered by a paused channel`,
    );
  }
  life.leave(fake);
}

function sameNames(what: string, seen: Iterable<string>, expected: Iterable<string>): void {
  const [seenText, expectedText] = [text(seen), text(expected)];
  promised(seenText === expectedText, `${what}: [${seenText}] instead of [${expectedText}]`);
}

function text(names: Iterable<string>): string {
  return [...names].sort().join(" ");
}
