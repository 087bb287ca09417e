/**
 * Opens a broker on what a power cut could have left of a recorded run, and holds it against what the
 * clients knew by then: everything confirmed is owed unless its FIN was sent, nothing comes whose FIN
 * was known to be on disk, topics are there or gone, ids stay, and none is given again. Of what was
 * confirmed in a relaxed mode the loss window may be missing, and nothing else.
 */
import { Broker } from "@sluice/broker/broker";
import type { Channel, ConsumerPort, MessageView } from "@sluice/broker/queue";
import { brokerOptions } from "@sluice/broker/service";
import { WIRE_HEADER_BYTES, WIRE_ID_OFFSET } from "@sluice/broker/storage/format";
import { directoryOf, type Disk } from "@sluice/shared/runtime";
import { SystemClock, SystemDisk, SystemRandom } from "@sluice/shared/runtime/system";
import { Logger } from "@sluice/shared/telemetry";
import { within } from "../integration/wait.ts";
import { type ImageRun, modeOf, RING_BYTES, type Sent, settingsOf } from "./image_run.ts";
import { promised, Violation } from "./model.ts";
import type { Image } from "./power_images.ts";
import { RecordingDisk } from "./recording_disk.ts";

const DAY_MS = 86_400_000;
const TIMEOUT_MS = 3_600_000;
/** By default, and with a ring as small as a recording's. */
const LOSS_WINDOW_MESSAGES = 2500;
const LOSS_WINDOW_BYTES = RING_BYTES / 4;

/** A day later all that was deferred is due. */
class LaterClock extends SystemClock {
  override wallMs(): number {
    return super.wallMs() + DAY_MS;
  }
}

/** Judges the folder at `path`, where the image of the first `cut` events is. Throws `Violation`. */
export async function judgeImage(run: ImageRun, cut: number, path: string): Promise<void> {
  const broker = await openBroker(path);
  try {
    const { damage, orphanRecords } = broker.storage.opening;
    promised(damage.length === 0, `a power cut damages nothing, but: ${JSON.stringify(damage)}`);
    promised(orphanRecords === 0, `${orphanRecords} records are of no topic or channel`);
    judgeFleeting(run, cut, broker);
    const lost = new Set<Sent>();
    const ids = new Set<string>();
    for (const { id, idAt } of run.messages.values()) if (id !== null && idAt <= cut) ids.add(id);
    for (const [topicName, channelName] of run.channels) {
      const topic = broker.topics.get(topicName);
      const channel = topic?.channels.get(channelName);
      if (channel === undefined) {
        promised(cut < run.setUpAt, `there is no ${topicName}/${channelName}`);
        continue;
      }
      const got = await takeAll(broker, channel, `${topicName}/${channelName}`);
      for (const sent of judgeChannel(run, cut, topicName, channelName, got)) lost.add(sent);
    }
    judgeLost(run, cut, lost);
    promised(broker.source.damagedCount === 0, "no message is damaged");
    await judgeNextId(broker, ids);
  } finally {
    await broker.abandon();
  }
}

/** Makes an image a folder. */
export async function writeImage(image: Image): Promise<void> {
  for (const [path, bytes] of image) {
    await Deno.mkdir(directoryOf(path), { recursive: true });
    await Deno.writeFile(path, bytes);
  }
}

/** Takes up a folder, of which these files are known, and stops; returns what was asked of the disk. */
export async function recordRecovery(
  known: Iterable<string>,
  path: string,
): Promise<RecordingDisk> {
  const disk = new RecordingDisk(new SystemDisk(), known);
  const broker = await openBroker(path, disk);
  await broker.close();
  return disk;
}

async function openBroker(path: string, disk: Disk = new SystemDisk()): Promise<Broker> {
  const clock = new LaterClock();
  const logger = new Logger({ sink: () => {}, clock, level: "error" });
  const seams = { disk, clock, random: new SystemRandom(), logger };
  try {
    return await Broker.open(seams, brokerOptions(settingsOf(path)));
  } catch (error) {
    throw new Violation(`the folder does not open after a power cut: ${error}`, { cause: error });
  }
}

function judgeFleeting({ fleeting }: ImageRun, cut: number, broker: Broker): void {
  for (const { name, createdAt, deleteSentAt, deletedAt } of fleeting) {
    const isThere = broker.topics.has(name);
    if (deletedAt <= cut) promised(!isThere, `${name} was deleted, and is there`);
    else if (createdAt <= cut && cut < deleteSentAt) {
      promised(isThere, `${name} was created, and is not there`);
    }
  }
}

/** Body and id of everything that a channel owes. */
async function takeAll(
  broker: Broker,
  channel: Channel,
  key: string,
): Promise<Map<string, string>> {
  const got = new Map<string, string>();
  let large = 0;
  const decoder = new TextDecoder();
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let twice: string | null = null;
  const isDone = () =>
    channel.depth === 0 && channel.deferredCount === 0 && channel.inFlightCount === got.size &&
    large === 0;
  const take = (body: string, id: string) => {
    if (got.has(body)) twice = body;
    got.set(body, id);
    // Counted as in flight only after this.
    queueMicrotask(() => isDone() && resolve());
  };
  const port: ConsumerPort = {
    writable: true,
    deliver({ bytes, start, length, large: inParts }: MessageView) {
      const bodyStart = start + WIRE_HEADER_BYTES;
      const id = decoder.decode(bytes.subarray(start + WIRE_ID_OFFSET, bodyStart));
      if (inParts === null) {
        return take(decoder.decode(bytes.subarray(bodyStart, start + length)), id);
      }
      large++;
      readBody(broker, inParts.body).then((body) => {
        large--;
        take(decoder.decode(body), id);
      }, reject);
    },
    channelDeleted() {},
  };
  const consumer = channel.join(port, TIMEOUT_MS, 0);
  promised(consumer !== null, "a channel without a limit takes a consumer");
  channel.credit(consumer, Number.MAX_SAFE_INTEGER);
  if (!isDone()) {
    await within(`all of ${key}`, promise).catch((error) => {
      throw new Violation(`${error.message}: ${got.size} came`);
    });
  }
  promised(twice === null, `"${twice}" came twice on ${key}`);
  return got;
}

/** The body of a large message, whole. */
async function readBody(
  broker: Broker,
  large: Parameters<Broker["readBody"]>[0],
): Promise<Uint8Array> {
  const reader = broker.readBody(large);
  const body = new Uint8Array(large.bytes);
  let at = 0;
  for (let part = await reader.next(); part !== null; part = await reader.next()) {
    body.set(part, at);
    at += part.length;
  }
  reader.close();
  return body;
}

/**
 * What was confirmed in a relaxed mode may be lost, as long as nothing behind it in the log is known to
 * be on disk, no consumer of `write_ack` was given it, and it is within the loss window all together.
 */
function judgeLost(run: ImageRun, cut: number, lost: ReadonlySet<Sent>): void {
  let syncedAt = 0;
  for (const { topic, sentAt, confirmedAt } of run.messages.values()) {
    const isKnown = confirmedAt <= cut && modeOf(topic) === "durable";
    if (isKnown) syncedAt = Math.max(syncedAt, sentAt);
  }
  let bytes = 0;
  for (const sent of lost) {
    const name = `message ${sent.body.split(" ", 1)[0]} of ${sent.topic}`;
    promised(sent.confirmedAt >= syncedAt, `${name} was confirmed, and lost though it was synced`);
    const isSeen = modeOf(sent.topic) === "write_ack" && sent.idAt <= cut;
    promised(!isSeen, `${name} was delivered, and lost`);
    bytes += WIRE_HEADER_BYTES + sent.body.length;
  }
  promised(
    lost.size <= LOSS_WINDOW_MESSAGES && bytes <= LOSS_WINDOW_BYTES,
    `${lost.size} messages of ${bytes} bytes are lost: more than the loss window`,
  );
}

function judgeChannel(
  run: ImageRun,
  cut: number,
  topic: string,
  channel: string,
  got: ReadonlyMap<string, string>,
): Set<Sent> {
  const lost = new Set<Sent>();
  const key = `${topic}/${channel}`;
  for (const sent of run.messages.values()) {
    if (sent.topic !== topic) continue;
    const { sentAt, durableAt } = sent.finishes.get(key) ?? NEVER;
    const id = got.get(sent.body);
    const name = `message ${sent.body.split(" ", 1)[0]}`;
    if (id === undefined) {
      if (sent.confirmedAt > cut || sentAt <= cut) continue;
      promised(modeOf(topic) !== "durable", `${name} was confirmed, and lost on ${key}`);
      lost.add(sent);
      continue;
    }
    promised(durableAt > cut, `${name} was finished, and comes again on ${key}`);
    const isSame = sent.idAt > cut || sent.id === id;
    promised(isSame, `${name} has id ${id} on ${key}, and had ${sent.id}`);
  }
  for (const body of got.keys()) {
    const sent = run.messages.get(body.split(" ", 1)[0]!);
    promised(sent?.body === body && sent.topic === topic, `"${body}" on ${key} was never sent`);
  }
  return lost;
}

const NEVER = { sentAt: Infinity, durableAt: Infinity };

/** A new message gets an id that nobody has seen. */
async function judgeNextId(broker: Broker, ids: ReadonlySet<string>): Promise<void> {
  const topic = broker.ensureTopic("after");
  const channel = broker.ensureChannel(topic, "c");
  broker.publish(topic, new Uint8Array(1), 0, 1, 0);
  await broker.durableTo(broker.position);
  const [id] = (await takeAll(broker, channel, "after/c")).values();
  promised(id !== undefined && !ids.has(id), `id ${id} is given again`);
}
