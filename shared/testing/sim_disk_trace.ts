/** What a simulated disk was asked to do: counts of everything, and the latest operations to print. */
export type SimDiskOperation =
  | "create"
  | "open"
  | "read"
  | "write"
  | "sync"
  | "truncate"
  | "size"
  | "list"
  | "rename"
  | "remove"
  | "makeDirectory"
  | "syncDirectory"
  | "lock"
  | "space";

/** The operations that change the disk, and so the ones a power cut can hit. */
export const MUTATING_OPERATIONS: ReadonlySet<SimDiskOperation> = new Set([
  "create",
  "write",
  "sync",
  "truncate",
  "rename",
  "remove",
  "makeDirectory",
  "syncDirectory",
]);

interface TraceEntry {
  readonly number: number;
  readonly text: string;
  readonly path: string;
  readonly detail: string;
}

export class SimDiskTrace {
  readonly #entriesMax: number;
  readonly #counts = new Map<SimDiskOperation, number>();
  /** A ring: the entry with number n is at n modulo the length. */
  readonly #entries: TraceEntry[] = [];
  #number = 0;

  constructor(entriesMax: number) {
    this.#entriesMax = entriesMax;
  }

  /** Operations of this kind that reached the disk, failed ones included. */
  count(operation: SimDiskOperation): number {
    return this.#counts.get(operation) ?? 0;
  }

  /** Operations that change the disk; what a power cut is counted in. */
  get mutations(): number {
    let sum = 0;
    for (const operation of MUTATING_OPERATIONS) sum += this.count(operation);
    return sum;
  }

  operation(operation: SimDiskOperation, path: string, detail: string): void {
    this.#counts.set(operation, this.count(operation) + 1);
    this.note(operation, path, detail);
  }

  note(text: string, path = "", detail = ""): void {
    if (this.#entriesMax === 0) return;
    const number = this.#number++;
    this.#entries[number % this.#entriesMax] = { number, text, path, detail };
  }

  /** The latest operations, one a line, oldest first. */
  lines(): string[] {
    const lines: string[] = [];
    for (let index = 0; index < this.#entries.length; index++) {
      const entry = this.#entries[(this.#number + index) % this.#entries.length];
      if (entry === undefined) continue;
      lines.push([`${entry.number}:`, entry.text, entry.path, entry.detail].join(" ").trimEnd());
    }
    return lines;
  }
}
