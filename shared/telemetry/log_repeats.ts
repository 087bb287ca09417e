/**
 * Sums up what repeats. Within a window the first {@linkcode RepeatOptions.linesMax} lines of a kind are
 * written, and at its end one more says how many others there were, with the fields of the last.
 *
 * A window begins with its first line, and with none there is no timer. At most
 * {@linkcode KINDS_MAX} kinds are told apart in a window: those beyond count as one, so neither memory
 * nor output depends on how many there are.
 */
import type { Clock, Timer } from "../runtime/mod.ts";

/** How many lines may repeat. */
export interface RepeatOptions {
  readonly clock: Pick<Clock, "setTimer">;
  /** Lines of a kind in a window. */
  readonly linesMax: number;
  readonly windowMs: number;
}

/** What services use. */
export const REPEATS_DEFAULT = { linesMax: 20, windowMs: 10_000 } as const;
/** Kinds of lines that are told apart in a window. */
export const KINDS_MAX = 256;
/** Stands for all kinds beyond. */
const OTHERS = "";

/** Writes that `count` more lines came within so many seconds, the last of them with `fields`. */
export type TellRepeats<F> = (count: number, seconds: number, fields: F) => void;

interface Kind<F> {
  count: number;
  last: F | null;
  tell: TellRepeats<F> | null;
}

/** See the module. */
export class LogRepeats<F> {
  readonly #options: RepeatOptions;
  readonly #kinds = new Map<string, Kind<F>>();
  #timer: Timer | null = null;

  constructor(options: RepeatOptions) {
    this.#options = options;
  }

  /** Whether a line is to be written. If not it is counted, and told by the `tell` of the last one. */
  admit(key: string, fields: F, tell: TellRepeats<F>): boolean {
    const { clock, linesMax, windowMs } = this.#options;
    this.#timer ??= clock.setTimer(windowMs, () => this.tell());
    const kind = this.#kindOf(key);
    kind.count++;
    if (kind.count <= linesMax) return true;
    kind.last = fields;
    kind.tell = tell;
    return false;
  }

  /** Tells what was counted and begins anew. */
  tell(): void {
    this.#timer?.cancel();
    this.#timer = null;
    const { linesMax, windowMs } = this.#options;
    const kinds = [...this.#kinds.values()];
    this.#kinds.clear();
    for (const { count, last, tell } of kinds) {
      if (last !== null && tell !== null) tell(count - linesMax, windowMs / 1000, last);
    }
  }

  #kindOf(key: string): Kind<F> {
    const known = this.#kinds.get(key);
    if (known !== undefined) return known;
    const name = this.#kinds.size < KINDS_MAX ? key : OTHERS;
    const kind = this.#kinds.get(name) ?? { count: 0, last: null, tell: null };
    this.#kinds.set(name, kind);
    return kind;
  }
}
