/**
 * What was settled and is not in the log yet: written with the next group, or a little later when there
 * is none. Only when that is on disk is the space of an entry given up, since a crash before brings the
 * entry back.
 */
import type { Clock, Timer } from "@sluice/shared/runtime";
import { NumberRuns } from "./number_runs.ts";
import {
  encodeSettle,
  FREE_LANE,
  type LaneRun,
  PINNED_LANE,
  SETTLE_KIND,
  type SpoolLane,
} from "./records.ts";
import type { SpoolLog } from "./spool_log.ts";
import type { SpoolState } from "./spool_state.ts";

/** What is settled is written after this at the latest. */
export const SETTLE_DELAY_MS = 10;
/** So many numbers are not in the log at most, before a group is asked for at once. */
const PENDING_MAX = 65_536;
const RUNS_PER_RECORD_MAX = 4096;

/** Space of an entry, to be given up. */
interface Freed {
  readonly fileStart: number;
  readonly bodyBytes: number;
}

/** See the module. */
export class Settlements {
  readonly #state: SpoolState;
  readonly #clock: Clock;
  readonly #runs: readonly [NumberRuns, NumberRuns] = [new NumberRuns(), new NumberRuns()];
  #freed: Freed[] = [];
  /** In the log, and on disk once that is so up to `end`. */
  #written: { readonly end: number; readonly freed: readonly Freed[] }[] = [];
  #timer: Timer | null = null;
  #log: SpoolLog | null = null;

  constructor(state: SpoolState, clock: Clock) {
    this.#state = state;
    this.#clock = clock;
  }

  /** Where they are written; known once there is a log. */
  attach(log: SpoolLog): void {
    this.#log = log;
  }

  /** More than are to be in memory: whoever hands out more waits. */
  get isFull(): boolean {
    return this.#runs[FREE_LANE].count + this.#runs[PINNED_LANE].count >= PENDING_MAX;
  }

  /** A number is settled, and nothing has to be given up for it. */
  add(lane: SpoolLane, number: number): void {
    this.#runs[lane].add(number, number + 1);
    if (this.isFull) {
      this.#log?.log.flush();
      return;
    }
    this.#timer ??= this.#clock.setTimer(SETTLE_DELAY_MS, () => {
      this.#timer = null;
      this.#log?.log.flush();
    });
  }

  /** To be given up once what is put into the log next, or is there, is on disk. */
  free(fileStart: number, bodyBytes: number): void {
    if (fileStart >= 0) this.#freed.push({ fileStart, bodyBytes });
  }

  /** Puts all of it into the log. */
  write(): void {
    const log = this.#log;
    if (log === null) return;
    this.#timer?.cancel();
    this.#timer = null;
    const runs: LaneRun[] = [];
    for (const lane of [FREE_LANE, PINNED_LANE]) {
      for (const [start, end] of this.#runs[lane]) runs.push({ lane, start, end });
      this.#runs[lane].clear();
    }
    for (let at = 0; at < runs.length; at += RUNS_PER_RECORD_MAX) {
      log.put(SETTLE_KIND, encodeSettle(runs.slice(at, at + RUNS_PER_RECORD_MAX)));
    }
    if (this.#freed.length === 0) return;
    this.#written.push({ end: log.log.end, freed: this.#freed });
    this.#freed = [];
  }

  /** Everything below `end` is on disk; returns whether any space was given up. */
  durable(end: number): boolean {
    let count = 0;
    for (const written of this.#written) {
      if (written.end > end) break;
      for (const { fileStart, bodyBytes } of written.freed) {
        this.#state.freed(fileStart, bodyBytes);
      }
      count++;
    }
    this.#written.splice(0, count);
    return count > 0;
  }

  /** Writes nothing more by itself. */
  stop(): void {
    this.#timer?.cancel();
    this.#timer = null;
  }
}
