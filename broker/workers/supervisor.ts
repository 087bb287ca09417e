/**
 * Keeps the workers of a unit running: starts them, starts one again that ends without being asked to,
 * and stops all of them together.
 *
 * - A worker that ends before it has lived for {@linkcode STEADY_MS} the first time, with the code of a
 *   start that failed, ends the unit: its settings are wrong, and trying again does not help.
 * - Any other end is a crash: it is started again after a pause that doubles, from
 *   {@linkcode PAUSE_MS_MIN} to {@linkcode PAUSE_MS_MAX}, and is short again once it has lived for a while.
 *   The others go on meanwhile.
 * - Asked to stop, all are asked at once, and the unit ends when all have ended, with the worst of
 *   their codes.
 */
import type { Clock } from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import type { WorkerPlan } from "./plan.ts";

export const STEADY_MS = 10_000;
export const PAUSE_MS_MIN = 500;
export const PAUSE_MS_MAX = 10_000;
/** What a broker ends with that could not start. */
const START_FAILED = 1;

/** A running process. */
export interface WorkerProcess {
  readonly pid: number;
  /** Its exit code, once it has ended. */
  readonly ended: Promise<number>;
  /** Asks it to stop. Does nothing once it has ended. */
  stop(): void;
}

/** What a supervisor stands on. */
export interface SupervisorSeams {
  readonly spawn: (plan: WorkerPlan) => WorkerProcess;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** See the module. */
export class Supervisor {
  restartCount = 0;
  readonly #seams: SupervisorSeams;
  readonly #running = new Map<number, WorkerProcess>();
  readonly #stop = new AbortController();
  #failed: number | null = null;

  constructor(seams: SupervisorSeams) {
    this.#seams = seams;
  }

  /** Runs the workers until they are stopped; resolves with the exit code of the unit. */
  async run(plans: readonly WorkerPlan[]): Promise<number> {
    const codes = await Promise.all(plans.map((plan) => this.#keep(plan)));
    return this.#failed ?? Math.max(...codes);
  }

  /** Stops all of them. */
  stop(): void {
    this.#stop.abort();
    for (const worker of this.#running.values()) worker.stop();
  }

  async #keep(plan: WorkerPlan): Promise<number> {
    const { clock, logger, spawn } = this.#seams;
    const { signal } = this.#stop;
    let pauseMs = PAUSE_MS_MIN;
    for (let isFirst = true;; isFirst = false) {
      const sinceMs = clock.monoMs();
      const worker = spawn(plan);
      this.#running.set(plan.index, worker);
      logger.info("A worker has started", { worker: plan.index, pid: worker.pid });
      const code = await worker.ended;
      this.#running.delete(plan.index);
      if (signal.aborted) return code;
      const livedMs = clock.monoMs() - sinceMs;
      if (isFirst && code === START_FAILED && livedMs < STEADY_MS) {
        logger.error("A worker cannot start: all are stopped", { worker: plan.index });
        this.#failed ??= code;
        this.stop();
        return code;
      }
      if (livedMs >= STEADY_MS) pauseMs = PAUSE_MS_MIN;
      logger.error("A worker has ended; it is started again", {
        worker: plan.index,
        code,
        after_ms: pauseMs,
      });
      this.restartCount++;
      try {
        await clock.sleep(pauseMs, signal);
      } catch (error) {
        if (error !== signal.reason) throw error;
        return code;
      }
      pauseMs = Math.min(PAUSE_MS_MAX, pauseMs * 2);
    }
  }
}
