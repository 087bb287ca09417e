/**
 * Compares a sidecar with the file that it belongs to. The sidecar may leave out topics that are
 * gone, and mark messages that are lost; what it says must be so.
 */
import { MISSING, walkSidecar } from "@sluice/broker/storage/format";
import type { Damage } from "@sluice/shared/log";

/** The good messages of one file, by topic, as they stand in it. */
export class FileMessages {
  readonly #topics = new Map<
    number,
    { offsets: number[]; positions: number[]; dues: number[] }
  >();

  add(topic: number, offset: number, position: number, dueMs: number): void {
    let messages = this.#topics.get(topic);
    if (messages === undefined) {
      messages = { offsets: [], positions: [], dues: [] };
      this.#topics.set(topic, messages);
    }
    messages.offsets.push(offset);
    messages.positions.push(position);
    messages.dues.push(dueMs);
  }

  /**
   * What is wrong with a sidecar's content, or null; and the topics that it does not speak of, which
   * must be gone.
   */
  compare(
    content: Uint8Array,
    fileStart: number,
    damage: readonly Damage[],
  ): { problem: string | null; absentTopics: number[] } {
    const next = new Map<number, number>();
    let problem: string | null = null;
    const adds = walkSidecar(
      content,
      fileStart,
      (topic, offset, position, dueMs) => {
        if (problem !== null) return;
        const messages = this.#topics.get(topic);
        const index = next.get(topic) ?? 0;
        next.set(topic, index);
        if (messages?.offsets[index] === offset) {
          next.set(topic, index + 1);
          if (
            messages.positions[index] === position &&
            messages.dues[index] === dueMs
          ) return;
          problem = `message ${offset} of topic ${topic} stands elsewhere, or has another due time`;
        } else if ((messages?.offsets[index] ?? Infinity) < offset) {
          problem = `message ${messages?.offsets[index]} of topic ${topic} is not in the sidecar`;
        } else if (position !== MISSING && !isDamaged(position, damage)) {
          problem = `message ${offset} of topic ${topic} is not in the file`;
        }
      },
    );
    if (!adds) problem = "its content does not add up";
    const absentTopics: number[] = [];
    for (const [topic, { offsets }] of this.#topics) {
      const seen = next.get(topic);
      if (seen === undefined) absentTopics.push(topic);
      else if (seen < offsets.length) {
        problem ??= `message ${offsets[seen]} of topic ${topic} is not in the sidecar`;
      }
    }
    return { problem, absentTopics };
  }
}

function isDamaged(position: number, damage: readonly Damage[]): boolean {
  return damage.some((one) => one.position <= position && position < one.position + one.bytes);
}
