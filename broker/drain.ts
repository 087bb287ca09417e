/**
 * Draining by request: the broker takes no more publishes, so that its consumers can empty it, and if
 * that is asked for delivers nothing new either, so that it comes to rest.
 *
 * ```
 * off --set(draining)--> draining --set(draining, frozen)--> frozen
 *  '<------------- set(off), from either -------------------'
 * ```
 *
 * - What was decided is in `drain.json` of the data folder before it holds, and so survives a restart. A
 *   file that cannot be replaced changes nothing.
 * - A file that makes no sense is taken for "draining": somebody had asked for something, and to refuse
 *   publishes can be taken back, while a message in a folder that is about to go cannot.
 */
import {
  type Clock,
  type Disk,
  DiskError,
  readWhole,
  replaceFile,
  Serial,
} from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";

/** Where it is kept in a data folder. */
const DRAIN_FILE = "drain.json";
const FILE_BYTES_MAX = 65_536;

/** What was asked for; the last two mean nothing unless it drains. */
export interface DrainState {
  readonly draining: boolean;
  /** Nothing new is delivered. */
  readonly frozen: boolean;
  /** Since when it drains, Unix ms. */
  readonly sinceMs: number;
}

const OFF: DrainState = { draining: false, frozen: false, sinceMs: 0 };

/** The world of a {@linkcode Drain}. */
export interface DrainSeams {
  readonly disk: Disk;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** See the module. */
export class Drain {
  /** Called after each change. */
  onChange: () => void = () => {};
  readonly #seams: DrainSeams;
  readonly #path: string;
  readonly #changes = new Serial();
  #state: DrainState;

  private constructor(seams: DrainSeams, path: string, state: DrainState) {
    this.#seams = seams;
    this.#path = path;
    this.#state = state;
  }

  /** Takes up what the folder says. Rejects with `DiskError` when that cannot be read. */
  static async open(seams: DrainSeams, dataPath: string): Promise<Drain> {
    const path = `${dataPath}/${DRAIN_FILE}`;
    let state = OFF;
    try {
      const text = new TextDecoder().decode(await readWhole(seams.disk, path, FILE_BYTES_MAX));
      state = parse(text) ?? damaged(seams, path);
    } catch (error) {
      if (!(error instanceof DiskError) || error.kind !== "not_found") throw error;
    }
    if (state.draining) {
      seams.logger.warn("Publishes are refused: the broker drains by request", {
        delivery_frozen: state.frozen,
      });
    }
    return new Drain(seams, path, state);
  }

  get state(): DrainState {
    return this.#state;
  }

  /** Whether publishes are refused. */
  get isOn(): boolean {
    return this.#state.draining;
  }

  /** Whether nothing new is delivered. */
  get isFrozen(): boolean {
    return this.#state.frozen;
  }

  /** Resolves when the change is on disk and holds. Rejects with `DiskError`; then nothing has changed. */
  set(draining: boolean, frozen: boolean): Promise<void> {
    return this.#changes.run(async () => {
      const before = this.#state;
      const { disk, clock, logger } = this.#seams;
      const sinceMs = before.draining ? before.sinceMs : clock.wallMs();
      const state = draining ? { draining, frozen, sinceMs } : OFF;
      if (before.draining === draining && before.frozen === state.frozen) return;
      await replaceFile(disk, this.#path, new TextEncoder().encode(format(state)));
      this.#state = state;
      logger.warn(draining ? "Draining by request" : "Not draining any more", {
        delivery_frozen: state.frozen,
      });
      this.onChange();
    });
  }

  /** Resolves when nothing is being written any more. */
  async settled(): Promise<void> {
    await this.#changes.run(() => Promise.resolve());
  }
}

function format({ draining, frozen, sinceMs }: DrainState): string {
  return JSON.stringify({ draining, delivery_frozen: frozen, since_ms: sinceMs }) + "\n";
}

/** What a file says, or null when that makes no sense. */
function parse(text: string): DrainState | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof value !== "object" || value === null) return null;
  const { draining, delivery_frozen: frozen, since_ms: sinceMs } = value as Record<string, unknown>;
  if (typeof draining !== "boolean" || typeof frozen !== "boolean") return null;
  if (typeof sinceMs !== "number" || !Number.isSafeInteger(sinceMs) || sinceMs < 0) return null;
  return draining ? { draining, frozen, sinceMs } : OFF;
}

function damaged({ clock, logger }: DrainSeams, path: string): DrainState {
  logger.error("A file makes no sense; the broker drains until that is taken back", { path });
  return { draining: true, frozen: false, sinceMs: clock.wallMs() };
}
