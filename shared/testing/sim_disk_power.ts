/**
 * How every operation of a simulated disk runs: when its effect happens, when its caller hears of
 * it, which planned failure or power cut it meets.
 */
import { DiskError, type DiskErrorKind } from "../runtime/mod.ts";
import type { SeededRandom } from "./seeded_random.ts";
import { MUTATING_OPERATIONS, type SimDiskOperation, type SimDiskTrace } from "./sim_disk_trace.ts";

/** A failure to come. */
export interface PlannedFailure {
  readonly operation: SimDiskOperation;
  readonly kind: DiskErrorKind;
  /** Only an operation on this path; any path otherwise. */
  readonly path?: string;
  /** How many matching operations go through before it; none by default. */
  readonly skip?: number;
}

/** Whether the operation hit by a power cut has had its effect; its caller never hears of it. */
export type PowerCutMoment = "before_effect" | "after_effect";

/** One operation on its way. */
export interface SimOperation<T> {
  readonly operation: SimDiskOperation;
  readonly path: string;
  readonly detail?: string;
  readonly effect: () => T;
  /** What a planned failure of this operation leaves behind; nothing by default. */
  readonly failedEffect?: () => void;
}

export class SimDiskPower {
  readonly #random: SeededRandom;
  readonly #trace: SimDiskTrace;
  readonly #extraTurnsMax: number;
  readonly #failures: { plan: PlannedFailure; skip: number }[] = [];
  #cut: { left: number; moment: PowerCutMoment } | null = null;
  #off = false;
  #life = 0;

  constructor(random: SeededRandom, trace: SimDiskTrace, extraTurnsMax: number) {
    this.#random = random;
    this.#trace = trace;
    this.#extraTurnsMax = extraTurnsMax;
  }

  /** Which start of the disk this is; a handle of an earlier one is dead. */
  get life(): number {
    return this.#life;
  }

  get off(): boolean {
    return this.#off;
  }

  /** Effects may happen later than the call. */
  get delays(): boolean {
    return this.#extraTurnsMax > 0;
  }

  failNext(plan: PlannedFailure): void {
    this.#failures.push({ plan, skip: plan.skip ?? 0 });
  }

  cutAfter(mutations: number, moment: PowerCutMoment): void {
    this.#cut = { left: mutations, moment };
  }

  /** Ends the current life: what is under way fails, and no plan of it is left. */
  restart(): void {
    this.#life++;
    this.#off = false;
    this.#cut = null;
    this.#failures.length = 0;
    this.#trace.note("crash");
  }

  async perform<T>(call: SimOperation<T>): Promise<T> {
    const life = this.#life;
    if (this.delays) await this.#wait();
    this.#requirePower(life, call);
    this.#trace.operation(call.operation, call.path, call.detail ?? "");
    const cut = this.#takeCut(call.operation);
    if (cut !== null) {
      this.#off = true;
      this.#trace.note(`power cut ${cut}`);
      if (cut === "after_effect") applyUnheard(call);
      this.#requirePower(life, call);
    }
    const failure = this.#takeFailure(call);
    if (failure !== null) {
      this.#trace.note(`failure ${failure}`);
      call.failedEffect?.();
      throw new DiskError(failure, `Cannot ${call.operation} "${call.path}": planned failure`);
    }
    const result = call.effect();
    if (this.delays) await this.#wait();
    this.#requirePower(life, call);
    return result;
  }

  async #wait(): Promise<void> {
    for (let turns = this.#random.below(this.#extraTurnsMax + 1); turns > 0; turns--) {
      await undefined;
    }
  }

  #requirePower(life: number, call: SimOperation<unknown>): void {
    if (life === this.#life && !this.#off) return;
    throw new DiskError("io", `Cannot ${call.operation} "${call.path}": the power is cut`);
  }

  #takeCut(operation: SimDiskOperation): PowerCutMoment | null {
    if (this.#cut === null || !MUTATING_OPERATIONS.has(operation)) return null;
    return --this.#cut.left <= 0 ? this.#cut.moment : null;
  }

  #takeFailure(call: SimOperation<unknown>): DiskErrorKind | null {
    for (const [index, failure] of this.#failures.entries()) {
      const { operation, path, kind } = failure.plan;
      if (operation !== call.operation || (path !== undefined && path !== call.path)) continue;
      if (failure.skip-- > 0) continue;
      this.#failures.splice(index, 1);
      return kind;
    }
    return null;
  }
}

/** The effect of an operation whose caller will not hear of it, so not of its failure either. */
function applyUnheard(call: SimOperation<unknown>): void {
  try {
    call.effect();
  } catch (error) {
    if (!(error instanceof DiskError)) throw error;
  }
}
