/** The random things that are done to a broker: each step is one of them, chosen by the seed. */
import { RefusedError } from "@sluice/broker/broker";
import type { Channel, Topic } from "@sluice/broker/queue";
import { ACK_MODES, QUOTA_ACTIONS } from "@sluice/broker/storage";
import { DiskError } from "@sluice/shared/runtime";
import { type SeededRandom, settle } from "@sluice/shared/testing";
import type { FakeConsumer, Life } from "./life.ts";
import { promised } from "./model.ts";
import { publishOnce } from "./sequences.ts";

const TOPIC_NAMES = ["a", "a", "a", "b", "b", "c", "t#ephemeral"];
const CHANNEL_NAMES = ["x", "x", "x", "y", "z", "e#ephemeral"];
const TIMEOUTS_MS = [200, 1000, 60_000];
const DELAYS_MS = [0, 0, 10, 100, 1500, 20_000];
/** More are not owed at a time, so that a check stays quick. */
const BACKLOG_MAX = 400;
/** Several parts, in several groups and files. */
const UPLOAD_BYTES_MAX = 30_000;
const ROOM_TRIES_MAX = 1000;

interface Step {
  readonly weight: number;
  readonly run: (life: Life) => void | Promise<void>;
}

const STEPS: readonly Step[] = [
  { weight: 30, run: publishSome },
  { weight: 25, run: finishSome },
  { weight: 9, run: joinOne },
  { weight: 9, run: requeueSome },
  { weight: 6, run: createChannel },
  { weight: 6, run: (life) => life.clock.run(life.random.between(1, 60)) },
  { weight: 6, run: uploadSome },
  { weight: 8, run: (life) => publishOnce(life, life.random.pick(TOPIC_NAMES), waitForRoom) },
  { weight: 4, run: (life) => life.confirm() },
  { weight: 4, run: acknowledge },
  { weight: 2, run: configureTopic },
  { weight: 1, run: limitTopic },
  { weight: 4, run: leaveOne },
  { weight: 4, run: maintain },
  { weight: 4, run: freeAndMaintain },
  { weight: 3, run: changeCredit },
  { weight: 3, run: pauseTopic },
  { weight: 2, run: pauseChannel },
  { weight: 2, run: touchOne },
  { weight: 2, run: (life) => life.clock.run(life.random.between(500, 4000)) },
  { weight: 1, run: (life) => void life.broker.scrubber.start() },
  { weight: 1, run: emptyTopic },
  { weight: 1, run: emptyChannel },
  { weight: 1, run: deleteChannel },
  { weight: 1, run: deleteTopic },
];
const WEIGHTS = STEPS.reduce((sum, step) => sum + step.weight, 0);

/** Does one random thing, and lets a random part of what it causes happen. */
export async function randomStep(life: Life): Promise<void> {
  const { random } = life;
  let left = random.below(WEIGHTS);
  const step = STEPS.find((candidate) => (left -= candidate.weight) < 0);
  await step?.run(life);
  const pause = random.below(10);
  if (pause < 4) return;
  if (pause < 8) { for (let turns = random.between(1, 30); turns > 0; turns--) await undefined; }
  else await settle();
}

async function publishSome(life: Life): Promise<void> {
  const { random, model } = life;
  const name = random.pick(TOPIC_NAMES);
  const known = model.topics.get(name);
  if (known !== undefined) {
    let backlog = known.kept.size + known.held.size;
    for (const channel of known.channels.values()) backlog = Math.max(backlog, channel.owed.size);
    if (backlog > BACKLOG_MAX) return;
  }
  for (let count = random.chance(0.5) ? 1 : random.between(2, 12); count > 0; count--) {
    const bytes = bodyBytes(random);
    await waitForRoom(life, bytes);
    const dueMs = random.chance(0.2) ? life.clock.wallMs() + random.between(1, 8000) : 0;
    life.publish(life.topic(name), bytes, dueMs);
  }
}

async function waitForRoom(life: Life, bytes: number): Promise<void> {
  for (let tries = 0; !life.broker.hasRoom(bytes, 1); tries++) {
    promised(tries < ROOM_TRIES_MAX, "there is room again after some groups");
    // A full disk stays full: nothing more comes of this life.
    const { stalled } = life.broker.storage.log;
    if (stalled !== null) throw new DiskError("no_space", stalled.message);
    // One that fills up meanwhile is found by the next look: time stands still, and no retry comes.
    await Promise.race([life.broker.room(), settle()]);
  }
}

/** Begins an upload, goes on with one, or drops one. */
function uploadSome(life: Life): void {
  const { random, uploads, broker } = life;
  if (broker.storage.log.stalled !== null) return;
  if (uploads.length < 3 && random.chance(0.4)) {
    const topic = random.pick(TOPIC_NAMES);
    const owed = life.model.topics.get(topic)?.kept.size ?? 0;
    if (owed > BACKLOG_MAX) return;
    life.beginUpload(topic, random.between(1, UPLOAD_BYTES_MAX));
  }
  if (uploads.length === 0) return;
  const one = random.pick(uploads);
  if (random.chance(0.05)) return life.abandonUpload(one);
  try {
    life.feedUpload(one, random.between(1, UPLOAD_BYTES_MAX));
  } catch (error) {
    // The disk is nearly full: its session would end.
    if (!(error instanceof RefusedError) || error.code !== "throttled") throw error;
    life.abandonUpload(one);
  }
}

function bodyBytes(random: SeededRandom): number {
  const kind = random.below(10);
  if (kind < 5) return random.between(1, 40);
  if (kind < 9) return random.between(100, 1500);
  return random.between(2000, 7000);
}

function finishSome(life: Life): void {
  const fake = pickConsumer(life);
  if (fake === null) return;
  const sequences = life.random.shuffle([...fake.held.keys()]);
  const share = life.random.chance(0.3) ? 1 : 0.5;
  for (const sequence of sequences.slice(0, Math.ceil(sequences.length * share))) {
    life.finish(fake, sequence);
  }
}

function requeueSome(life: Life): void {
  const fake = pickConsumer(life);
  if (fake === null) return;
  for (const sequence of [...fake.held.keys()].slice(0, life.random.between(1, 4))) {
    life.requeue(fake, sequence, life.random.pick(DELAYS_MS));
  }
}

function touchOne(life: Life): void {
  const fake = pickConsumer(life);
  const sequence = fake?.held.keys().next().value;
  if (fake !== null && sequence !== undefined) life.touch(fake, sequence);
}

function joinOne(life: Life): void {
  const [topic, channel] = pickChannel(life);
  if (topic === null || channel === null || life.consumers.length > 8) return;
  const fake = life.join(topic, channel, life.random.pick(TIMEOUTS_MS));
  life.credit(fake, life.random.between(1, 30));
}

function leaveOne(life: Life): void {
  const fake = pickConsumer(life);
  if (fake !== null) life.leave(fake);
}

function changeCredit(life: Life): void {
  const fake = pickConsumer(life);
  if (fake !== null) life.credit(fake, life.random.between(0, 40));
}

function createChannel(life: Life): void {
  const topic = life.topic(life.random.pick(TOPIC_NAMES));
  life.channel(topic, life.random.pick(CHANNEL_NAMES));
}

function acknowledge(life: Life): void {
  const topic = pickTopic(life);
  if (topic !== null) life.acknowledge(topic);
}

async function configureTopic(life: Life): Promise<void> {
  const topic = pickTopic(life);
  if (topic !== null) await life.configureTopic(topic, life.random.pick([null, ...ACK_MODES]));
}

async function limitTopic(life: Life): Promise<void> {
  const topic = pickTopic(life);
  if (topic === null) return;
  const { random } = life;
  const isLimited = random.chance(0.5);
  const limit = { bytesMax: random.pick([0, 3000, 20_000]), action: random.pick(QUOTA_ACTIONS) };
  await life.limitTopic(topic, isLimited ? limit : null);
}

function pauseTopic(life: Life): void {
  const topic = pickTopic(life);
  if (topic !== null) life.pauseTopic(topic, !topic.state.paused);
}

function pauseChannel(life: Life): void {
  const [topic, channel] = pickChannel(life);
  if (topic !== null && channel !== null) {
    life.pauseChannel(topic, channel, !channel.state.paused);
  }
}

function emptyTopic(life: Life): void {
  const topic = pickTopic(life);
  if (topic !== null) life.emptyTopic(topic);
}

function emptyChannel(life: Life): void {
  const [topic, channel] = pickChannel(life);
  if (topic !== null && channel !== null) life.emptyChannel(topic, channel);
}

function deleteChannel(life: Life): void {
  const [topic, channel] = pickChannel(life);
  if (topic !== null && channel !== null) life.deleteChannel(topic, channel);
}

function deleteTopic(life: Life): void {
  const topic = pickTopic(life);
  if (topic !== null && life.random.chance(0.5)) life.deleteTopic(topic);
}

/** Frees as much as can be and has it removed at once, before what freed it may be durable. */
function freeAndMaintain(life: Life): void {
  const way = life.random.below(8);
  if (way === 0) deleteChannel(life);
  else if (way === 1) emptyChannel(life);
  // What is in parts keeps files that nothing else keeps.
  const sparesLarge = life.random.chance(0.5);
  for (const fake of life.consumers) {
    for (const [sequence, { debt }] of [...fake.held]) {
      const isLarge = debt.message.seed !== undefined;
      if (!isLarge || !sparesLarge) life.finish(fake, sequence);
    }
  }
  maintain(life);
}

function maintain(life: Life): void {
  life.note("maintain");
  const { storage } = life.broker;
  storage.maintain().then(() => storage.compact()).catch((error) =>
    life.note(`maintain: ${error}`)
  );
}

function pickTopic(life: Life): Topic | null {
  const topics = [...life.broker.topics.values()];
  return topics.length === 0 ? null : life.random.pick(topics);
}

function pickChannel(life: Life): [Topic | null, Channel | null] {
  const topic = pickTopic(life);
  const channels = topic === null ? [] : [...topic.channels.values()];
  return [topic, channels.length === 0 ? null : life.random.pick(channels)];
}

function pickConsumer(life: Life): FakeConsumer | null {
  return life.consumers.length === 0 ? null : life.random.pick(life.consumers);
}
