/**
 * The names of a simulated disk: which file each path is now, and which it would be after a power
 * cut.
 *
 * - Creating, renaming and removing is pending until the folder is synced.
 * - A power cut keeps any set of the pending changes in which each name's changes survive up to some
 *   point and none after it. A rename is one change of two names: both happen or neither.
 * - A sync that began after a change was heard of makes it durable, and with it every earlier change
 *   of the names involved.
 */
import { directoryOf } from "../runtime/mod.ts";
import type { SeededRandom } from "./seeded_random.ts";

const KEEP_CHANCES: readonly number[] = [0, 0.5, 0.8, 1];

interface NameChange<File> {
  readonly sequence: number;
  /** The names this touches: one, or both of a rename. */
  readonly names: readonly string[];
  readonly apply: (names: Map<string, File>) => void;
}

export class SimNames<File> {
  #visible = new Map<string, File>();
  readonly #durable = new Map<string, File>();
  #pending: NameChange<File>[] = [];
  #sequence = 0;
  #heard = 0;

  /** The newest change whose caller has heard of it. */
  get heard(): number {
    return this.#heard;
  }

  hear(sequence: number): void {
    this.#heard = Math.max(this.#heard, sequence);
  }

  get(path: string): File | undefined {
    return this.#visible.get(path);
  }

  entries(): IterableIterator<[string, File]> {
    return this.#visible.entries();
  }

  /** Sets a name and returns the sequence number of the change, for {@linkcode hear}. */
  create(path: string, file: File): number {
    return this.#change([path], (names) => names.set(path, file));
  }

  remove(path: string): number {
    return this.#change([path], (names) => names.delete(path));
  }

  rename(from: string, to: string, file: File): number {
    return this.#change([from, to], (names) => {
      names.delete(from);
      names.set(to, file);
    });
  }

  /** Sets a name, durable at once. */
  createDurable(path: string, file: File): void {
    this.#pending = this.#pending.filter((change) => !change.names.includes(path));
    this.#visible.set(path, file);
    this.#durable.set(path, file);
  }

  /** A sync of `directory` that had to cover the changes up to `sequence` has succeeded. */
  makeDurable(directory: string, sequence: number): void {
    const covered = this.#changesOf(directory, sequence);
    for (const change of this.#pending) {
      if (covered.has(change)) change.apply(this.#durable);
    }
    this.#pending = this.#pending.filter((change) => !covered.has(change));
  }

  /** A sync of `directory` has failed: each change is now on the disk or will never be. */
  settleDirectory(directory: string, random: SeededRandom): void {
    const failed = this.#changesOf(directory, this.#sequence);
    this.#settle((change) => failed.has(change), random);
  }

  /** The power was cut: only what the disk holds is left. */
  restart(random: SeededRandom): void {
    this.#settle(() => true, random);
    this.#visible = new Map(this.#durable);
  }

  #change(names: readonly string[], apply: (names: Map<string, File>) => void): number {
    apply(this.#visible);
    const sequence = ++this.#sequence;
    this.#pending.push({ sequence, names, apply });
    return sequence;
  }

  /** The pending changes of a folder, with all that the disk must have done before them. */
  #changesOf(directory: string, sequence: number): Set<NameChange<File>> {
    const covered = new Set<NameChange<File>>();
    const needed = new Set<string>();
    for (const change of this.#pending.toReversed()) {
      if (change.sequence > sequence) continue;
      const concerned = change.names.some((name) =>
        directoryOf(name) === directory || needed.has(name)
      );
      if (!concerned) continue;
      covered.add(change);
      for (const name of change.names) needed.add(name);
    }
    return covered;
  }

  #settle(concerned: (change: NameChange<File>) => boolean, random: SeededRandom): void {
    const keepChance = random.pick(KEEP_CHANCES);
    const stopped = new Set<string>();
    for (const change of this.#pending) {
      if (!concerned(change)) continue;
      const blocked = change.names.some((name) => stopped.has(name));
      if (!blocked && random.chance(keepChance)) change.apply(this.#durable);
      else for (const name of change.names) stopped.add(name);
    }
    this.#pending = this.#pending.filter((change) => !concerned(change));
  }
}
