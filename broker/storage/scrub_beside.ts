/**
 * Checks what lies beside the log and spares a start its reading: sidecars of sealed files and
 * checkpoints. It costs no message when one of them is damaged, so none is reported as damage of the
 * log: it is made again at once, and logged.
 *
 * - A sidecar is read directory and pages, every checksum; one that is bad or missing is made again
 *   from its file.
 * - A checkpoint is read chunk by chunk; when one is bad a new one is written soon, and the bad one
 *   goes with that. Nothing is removed from the log meanwhile that the good one needs.
 * - Reads are paid for at the rate of the pass, and bounded by it in size but for a directory.
 */
import { LogError, type LogFileInfo, type LogStore } from "@sluice/shared/log";
import { type Clock, DiskError } from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import { SCRUB_HELD_MS, SCRUB_READ_BYTES_MAX } from "./scrub_pass.ts";
import {
  decodeDirectory,
  DIRECTORY_HEADER_BYTES,
  directoryBytesOf,
  isPageWhole,
} from "./sidecar.ts";

/** What lies beside the log, and how it is made again. */
export interface ScrubBeside {
  readonly store: Pick<LogStore, "files" | "readSidecar" | "listCheckpoints" | "getCheckpoint">;
  /** Resolves when no sidecar is being written. */
  indexed(): Promise<void>;
  /** Makes the sidecar of a sealed file again. */
  remakeIndex(file: LogFileInfo): Promise<void>;
  /** Has a checkpoint written that makes up for damaged ones; `good` is the newest other, or 0. */
  renewCheckpoint(damaged: readonly number[], good: number): Promise<void>;
}

/** See the module. */
export class ScrubBesidePass {
  readonly #beside: ScrubBeside;
  readonly #world: { readonly clock: Clock; readonly logger: Logger; isHeld(): boolean };
  readonly #rateBytes: number;
  readonly #signal: AbortSignal;
  /** Made again, or to be. */
  repaired = 0;

  /** An abort of `signal` ends the pass before its next read. */
  constructor(
    beside: ScrubBeside,
    world: { readonly clock: Clock; readonly logger: Logger; isHeld(): boolean },
    rateBytes: number,
    signal: AbortSignal,
  ) {
    this.#beside = beside;
    this.#world = world;
    this.#rateBytes = rateBytes;
    this.#signal = signal;
  }

  /** Checks all sidecars of files below `to`, and all checkpoints. Rejects with the signal's reason. */
  async run(to: number): Promise<void> {
    for (const file of [...this.#beside.store.files.slice(0, -1)]) {
      if (file.end <= to) await this.#checkSidecar(file);
    }
    await this.#checkCheckpoints();
  }

  async #checkSidecar(file: LogFileInfo): Promise<void> {
    const { store } = this.#beside;
    if (await this.#isSidecarGood(file)) return;
    // It may have been on its way.
    await this.#beside.indexed();
    if (await this.#isSidecarGood(file)) return;
    // What is gone meanwhile had been given back.
    if (!store.files.some(({ start }) => start === file.start)) return;
    await this.#beside.remakeIndex(file);
    this.repaired++;
  }

  async #isSidecarGood(file: LogFileInfo): Promise<boolean> {
    try {
      const header = await this.#read(file, 0, DIRECTORY_HEADER_BYTES);
      const directoryBytes = directoryBytesOf(header);
      if (directoryBytes === null || directoryBytes > 4 * (file.end - file.start)) return false;
      const directory = decodeDirectory(await this.#read(file, 0, directoryBytes));
      if (directory === null) return false;
      const { bounds } = directory;
      for (let first = 0; first < bounds.length - 1;) {
        let end = first + 1;
        while (end < bounds.length - 1 && bounds[end + 1]! - bounds[first]! <= this.#readBytesMax) {
          end++;
        }
        const from = bounds[first]!;
        const bytes = await this.#read(file, from, bounds[end]! - from);
        for (; first < end; first++) {
          const page = bytes.subarray(bounds[first]! - from, bounds[first + 1]! - from);
          if (page.length < bounds[first + 1]! - bounds[first]! || !isPageWhole(page)) return false;
        }
      }
      return true;
    } catch (error) {
      if (error instanceof DiskError) return false;
      throw error;
    }
  }

  async #checkCheckpoints(): Promise<void> {
    const { store } = this.#beside;
    const damaged: number[] = [];
    let good = 0;
    for (const position of await store.listCheckpoints()) {
      const problem = await this.#checkpointProblem(position);
      if (problem === null) good = Math.max(good, position);
      else {
        damaged.push(position);
        this.#world.logger.warn("A checkpoint is damaged on disk; another is written", {
          position,
          reason: problem,
        });
      }
    }
    if (damaged.length === 0) return;
    await this.#beside.renewCheckpoint(damaged, good);
    this.repaired += damaged.length;
  }

  /** What is wrong with a checkpoint; null when nothing is, or when it has gone. */
  async #checkpointProblem(position: number): Promise<string | null> {
    try {
      for await (const chunk of this.#beside.store.getCheckpoint(position)) {
        await this.#turn(chunk.length);
      }
      return null;
    } catch (error) {
      if (error instanceof DiskError) return error.kind === "not_found" ? null : error.message;
      if (error instanceof LogError) return error.message;
      throw error;
    }
  }

  async #read(file: LogFileInfo, position: number, bytes: number): Promise<Uint8Array> {
    await this.#turn(bytes);
    const into = new Uint8Array(bytes);
    return into.subarray(0, await this.#beside.store.readSidecar(file, position, into));
  }

  get #readBytesMax(): number {
    return Math.min(this.#rateBytes, SCRUB_READ_BYTES_MAX);
  }

  async #turn(bytes: number): Promise<void> {
    const { clock } = this.#world;
    await clock.sleep(bytes * 1000 / this.#rateBytes, this.#signal);
    while (this.#world.isHeld()) await clock.sleep(SCRUB_HELD_MS, this.#signal);
  }
}
