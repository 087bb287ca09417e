/**
 * Publishes that producers number, and send again: whatever has crashed in between, one that the log
 * still has is a repeat, one that was lost is stored, and a repeat is confirmed no earlier than the first.
 */
import type { Life } from "./life.ts";
import { promised } from "./model.ts";

const PRODUCERS = 2;
const SEQUENCES = 150;
const BYTES_MAX = 200;

/** Sends some publishes of a producer to a topic, first ones and repeats as it comes. */
export async function publishOnce(
  life: Life,
  topicName: string,
  waitForRoom: (life: Life, bytes: number) => Promise<void>,
): Promise<void> {
  const { random, broker, model } = life;
  await broker.storage.allowProducers();
  for (let count = random.between(1, 8); count > 0; count--) {
    await waitForRoom(life, 2 * BYTES_MAX);
    const topic = life.topic(topicName);
    const known = [...model.topics.get(topicName)?.units.keys() ?? []];
    const isRepeat = known.length > 0 && random.chance(0.6);
    const unit = isRepeat
      ? random.pick(known)
      : `${1 + random.below(PRODUCERS)}:${random.below(SEQUENCES)}`;
    const [id, sequence] = unit.split(":").map(Number) as [number, number];
    const producer = new Uint8Array(16).fill(id);
    const firstEnd = model.topics.get(topicName)?.units.get(unit);
    const repeatEnd = broker.repeatEnd(topic, { producer, sequence });
    life.note(`publish ${unit} to ${topicName}: ${repeatEnd}, first ${firstEnd}`);
    promised(
      (firstEnd === undefined) === (repeatEnd === null),
      `publish ${unit} of ${topicName} is taken for ${repeatEnd === null ? "new" : "a repeat"}`,
    );
    if (firstEnd === undefined || repeatEnd === null) {
      const bytes = random.between(1, BYTES_MAX);
      const dueMs = random.chance(0.2) ? life.clock.wallMs() + random.between(1, 8000) : 0;
      life.publish(topic, bytes, dueMs, { producer, sequence }, unit);
      continue;
    }
    const isDurable = model.ackModeOf(topicName) === "durable";
    broker.confirmable(topic, repeatEnd).then(
      () =>
        life.guard(() => {
          const end = isDurable ? model.confirmedEnd : model.writtenEnd;
          promised(end >= firstEnd, `a repeat of ${unit} was confirmed before the first one`);
        }),
      () => life.guard(() => promised(broker.failure !== null, "refused without a failure")),
    );
  }
}
