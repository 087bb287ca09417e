/**
 * Judges what a chaos run has seen. Pure: the same history gives the same verdict.
 *
 * | Problem | What it says |
 * |---|---|
 * | lost | the producer was told OK, and the message neither came nor is in a quarantine |
 * | quarantined | it is in a quarantine, which no fault of a run should lead to |
 * | stored twice | one publish came under two ids; the same id again is NSQ's at-least-once |
 * | invented | something came that nobody has sent, or on another topic than it was sent to |
 * | refused, yet stored | the producer was told that it is not stored, and it came |
 * | cut off, yet stored | its connection ended as the gateway stopped in order, and it came |
 * | early | a deferred message came before it was due |
 * | failed | a publish failed although its gateway was up and there was room for it |
 * | no answer | the producer never learned what became of it |
 * | out of order | what one producer has spooled came in another order from one broker |
 *
 * A publish may fail when its gateway was not there at any time between its start and its end, and
 * when the gateway's spool was limited while no broker could take it. With a limited spool one whose broker
 * went away under way may end as ambiguous, as the gateway's documents say.
 */
import { type Copy, type History, keyOf, type PublishRecord, type Span } from "./history.ts";

/** See the module. */
export type ProblemKind =
  | "lost"
  | "quarantined"
  | "stored twice"
  | "invented"
  | "refused, yet stored"
  | "cut off, yet stored"
  | "early"
  | "failed"
  | "no answer"
  | "out of order";

/** Why a publish was allowed to fail. */
export type Excuse = "its gateway was away" | "no room" | "ambiguous with a limited spool";

/** What to look at. */
export interface JudgeOptions {
  readonly brokers: readonly string[];
  /**
   * What was published from here to there was spooled, so that its order is to be seen; null where that
   * cannot be known.
   */
  readonly spooledBetweenMs: readonly [number, number] | null;
}

/** How a run came out. */
export interface Verdict {
  /** In words, the first of each kind. */
  readonly problems: readonly string[];
  readonly counts: ReadonlyMap<ProblemKind, number>;
  /** Publishes that were allowed to fail. */
  readonly excused: ReadonlyMap<Excuse, number>;
  /** Messages whose order was looked at. */
  readonly ordered: number;
}

/** Told in words, of each kind. */
const TOLD_MAX = 12;
/** How long after a broker is back a gateway may take to use it: the longest pause of a connection or of a circuit. */
export const BACK_MS_MAX = 5_000;
/** Clocks are cut to milliseconds on the way. */
const EARLY_MS_MAX = 2;

/** See the module. */
export function judge(history: History, options: JudgeOptions): Verdict {
  const judgement = new Judgement(history, options);
  judgement.publishes();
  judgement.strangers();
  const ordered = judgement.order();
  const { problems, counts, excused } = judgement;
  return { problems, counts, excused, ordered };
}

class Judgement {
  readonly problems: string[] = [];
  readonly counts = new Map<ProblemKind, number>();
  readonly excused = new Map<Excuse, number>();
  readonly #history: History;
  readonly #options: JudgeOptions;
  /** Which publish a message is of. */
  readonly #publishOf = new Map<string, PublishRecord>();

  constructor(history: History, options: JudgeOptions) {
    this.#history = history;
    this.#options = options;
    for (const publish of history.publishes) {
      for (const key of keysOf(publish)) this.#publishOf.set(key, publish);
    }
  }

  /** Of each publish: what its producer was told, against what came. */
  publishes(): void {
    const { seen, quarantined } = this.#history;
    for (const publish of this.#history.publishes) {
      const { result } = publish;
      if (result === null) this.#problem("no answer", described(publish));
      else if (result !== "ok") this.#failed(publish);
      for (const key of keysOf(publish)) {
        const copies = seen.get(key) ?? [];
        const aside = quarantined.get(key);
        if (aside !== undefined) this.#problem("quarantined", `${key} by ${aside}`);
        if (result === "ok" && copies.length === 0 && aside === undefined) {
          this.#problem("lost", `${key} of ${described(publish)}`);
        }
        if (result === "refused" && copies.length > 0) {
          this.#problem("refused, yet stored", `${key} of ${described(publish)}`);
        }
        if (result === "unknown" && copies.length > 0 && this.#isCutOff(publish)) {
          this.#problem("cut off, yet stored", `${key} of ${described(publish)}`);
        }
        if (copies.length > 1) {
          const each = copies.map(copyText).join("; ");
          this.#problem("stored twice", `${key} of ${described(publish)}: ${each}`);
        }
        for (const copy of copies) this.#copy(key, copy, publish);
      }
    }
  }

  /** What came and was never sent. */
  strangers(): void {
    const { strangers, strangerCount, seen } = this.#history;
    for (const words of strangers) this.#problem("invented", words);
    const untold = strangerCount - strangers.length;
    if (untold > 0) this.#count("invented", untold);
    for (const [key, copies] of seen) {
      if (this.#publishOf.has(key)) continue;
      this.#problem("invented", `${key} was never published: ${copies.map(copyText).join("; ")}`);
    }
  }

  /** Whether what was spooled came in its order, by producer, gateway, topic, broker and consumer. */
  order(): number {
    const { spooledBetweenMs: between } = this.#options;
    if (between === null) return 0;
    const [fromMs, untilMs] = between;
    const last = new Map<string, { readonly key: string; readonly arrival: number }>();
    let count = 0;
    // In the order in which each producer has sent them.
    for (const publish of this.#history.publishes) {
      const { producer, gateway, topic, result, deferMs, startMs, endMs, spooled } = publish;
      const isSpooled = result === "ok" && deferMs === 0 && spooled !== false &&
        startMs >= fromMs && endMs <= untilMs;
      if (!isSpooled) continue;
      for (const key of keysOf(publish)) {
        const copy = this.#history.seen.get(key)?.[0];
        // One that was delivered before, to nobody who is left, comes again when it comes.
        if (copy === undefined || copy.attempts !== 1) continue;
        count++;
        const line = [producer, gateway, topic, copy.broker, copy.consumer].join(" ");
        const before = last.get(line);
        if (before !== undefined && before.arrival > copy.arrival) {
          this.#problem("out of order", `${line}: ${key} came before ${before.key}`);
        }
        if (before === undefined || before.arrival < copy.arrival) {
          last.set(line, { key, arrival: copy.arrival });
        }
      }
    }
    return count;
  }

  #copy(key: string, copy: Copy, publish: PublishRecord): void {
    if (copy.topic !== publish.topic) {
      this.#problem("invented", `${key} came on ${copy.topic}, of ${described(publish)}`);
    }
    const dueMs = publish.deferMs === 0 ? 0 : publish.startMs + publish.deferMs;
    if (copy.firstMs + EARLY_MS_MAX < dueMs) {
      const earlyMs = dueMs - copy.firstMs;
      this.#problem("early", `${key} came ${earlyMs} ms too early, of ${described(publish)}`);
    }
  }

  #failed(publish: PublishRecord): void {
    const excuse = this.#excuseOf(publish);
    if (excuse === null) return this.#problem("failed", described(publish));
    this.excused.set(excuse, (this.excused.get(excuse) ?? 0) + 1);
  }

  /** Whether a gateway that stopped in order has ended its NSQ connection without an answer. */
  #isCutOff({ gateway, door, endMs }: PublishRecord): boolean {
    return door !== "http" &&
      this.#history.spans.some(({ target, kind, fromMs, untilMs }) =>
        target === gateway && kind === "stopping" && fromMs <= endMs && endMs <= untilMs
      );
  }

  #excuseOf(publish: PublishRecord): Excuse | null {
    const during = (target: string, kind: Span["kind"], afterMs: number) =>
      this.#history.spans.some((span) =>
        span.target === target && span.kind === kind && span.fromMs <= publish.endMs &&
        span.untilMs + afterMs >= publish.startMs
      );
    if (during(publish.gateway, "down", 0)) return "its gateway was away";
    if (!during(publish.gateway, "spool limited", 0)) return null;
    const { brokers } = this.#options;
    if (brokers.every((broker) => during(broker, "away", BACK_MS_MAX))) return "no room";
    const isAmbiguous = /AMBIGUOUS/.test(publish.text);
    const someAway = brokers.some((broker) => during(broker, "away", BACK_MS_MAX));
    return isAmbiguous && someAway ? "ambiguous with a limited spool" : null;
  }

  #problem(kind: ProblemKind, words: string): void {
    const count = this.#count(kind, 1);
    if (count <= TOLD_MAX) this.problems.push(`${kind}: ${words}`);
  }

  #count(kind: ProblemKind, more: number): number {
    const count = (this.counts.get(kind) ?? 0) + more;
    this.counts.set(kind, count);
    return count;
  }
}

function keysOf({ producer, first, count }: PublishRecord): string[] {
  return Array.from({ length: count }, (_, index) => keyOf(producer, first + index));
}

/** A publish in words, with the time of day, which the logs of the services have too. */
export function described(publish: PublishRecord): string {
  const { producer, first, count, topic, gateway, startMs, endMs, result, text, spooled } = publish;
  const numbers = count > 1 ? `${first}-${first + count - 1}` : `${first}`;
  const what = count === 0 ? `${producer} connecting` : `${producer} ${numbers} on ${topic}`;
  const at = new Date(startMs).toISOString().slice(11, 23);
  const how = `${result ?? "no answer"}${spooled === true ? " (spooled)" : ""}`;
  return `${what} by ${gateway} at ${at}, ${how} after ${endMs - startMs} ms` +
    (text === "" ? "" : `: ${text}`);
}

function copyText({ id, broker, consumer, firstMs, deliveries, attempts }: Copy): string {
  const at = new Date(firstMs).toISOString().slice(11, 23);
  return `${id} at ${broker}, to ${consumer} at ${at}, attempt ${attempts}, ${deliveries} times`;
}
