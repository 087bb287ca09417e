/**
 * All topics by name, for whoever tells of them again and again. Sorting 10,000 names takes longer than
 * anybody is to be kept waiting, so the order is kept, and what has come and gone since the last time
 * is worked into it, in slices.
 */
import { mergeInSlices, type Slices, sortInSlices } from "@sluice/shared/runtime";
import type { Topic } from "./topic.ts";

/** See the module. */
export class TopicOrder {
  readonly #topics: ReadonlyMap<string, Topic>;
  #sorted: readonly Topic[] = [];
  readonly #known = new WeakSet<Topic>();
  #last: Promise<unknown> = Promise.resolve();

  constructor(topics: ReadonlyMap<string, Topic>) {
    this.#topics = topics;
  }

  /** The topics that there are; one that goes while the list is read is in it still, as `deleted`. */
  list(slices: Slices): Promise<readonly Topic[]> {
    // One after the other: each has what there was when it was asked for.
    const listed = this.#last.then(() => this.#list(slices));
    this.#last = listed.catch(() => {});
    return listed;
  }

  async #list(slices: Slices): Promise<readonly Topic[]> {
    const added: Topic[] = [];
    let known = 0;
    for (const topic of this.#topics.values()) {
      if (this.#known.has(topic)) known++;
      else added.push(topic);
      if (slices.isOver) await slices.pause();
    }
    if (added.length === 0 && known === this.#sorted.length) return this.#sorted;
    const kept = this.#sorted.filter((topic) => !topic.deleted);
    const fresh = await sortInSlices(added, byName, slices);
    this.#sorted = await mergeInSlices(kept, fresh, byName, slices);
    for (const topic of added) this.#known.add(topic);
    return this.#sorted;
  }
}

function byName(a: Topic, b: Topic): number {
  return a.state.name < b.state.name ? -1 : a.state.name > b.state.name ? 1 : 0;
}
