/** The topics a connection publishes to, found by the bytes of the command line. */
import { nameText } from "@sluice/shared/protocol";
import type { Broker } from "../broker.ts";
import type { Topic } from "../queue/mod.ts";

interface Target {
  readonly name: Uint8Array;
  topic: Topic;
  count: number;
}

/** Remembers the last topic, so that publishing to one makes no string. Bounded by the topics there are. */
export class PublishTargets {
  readonly #targets = new Map<string, Target>();
  #last: Target | null = null;

  /** Messages published, by topic. */
  *counts(): Iterable<{ readonly topic: string; readonly count: number }> {
    for (const [topic, { count }] of this.#targets) yield { topic, count };
  }

  get isEmpty(): boolean {
    return this.#targets.size === 0;
  }

  /**
   * The topic named by `buffer[start, end)`, made when missing. Throws `RefusedError` when it
   * cannot be made.
   */
  find(broker: Broker, buffer: Uint8Array, start: number, end: number): Topic {
    let target = this.#last;
    if (target === null || target.topic.deleted || !isSame(target.name, buffer, start, end)) {
      const name = nameText(buffer, start, end);
      const topic = broker.ensureTopic(name);
      target = this.#targets.get(name) ?? null;
      if (target === null) {
        target = { name: buffer.slice(start, end), topic, count: 0 };
        this.#targets.set(name, target);
      }
      target.topic = topic;
      this.#last = target;
    }
    return target.topic;
  }

  /** Counts messages to the topic found last. */
  count(messages: number): void {
    if (this.#last !== null) this.#last.count += messages;
  }
}

function isSame(name: Uint8Array, buffer: Uint8Array, start: number, end: number): boolean {
  if (name.length !== end - start) return false;
  for (let index = 0; index < name.length; index++) {
    if (name[index] !== buffer[start + index]) return false;
  }
  return true;
}
