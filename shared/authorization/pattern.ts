/**
 * Patterns of names in grants, matched in time linear in pattern and name: all states that the
 * pattern can be in are followed side by side, so that no pattern of a peer can make a broker think
 * for long. Two kinds:
 *
 * - {@linkcode Pattern.regexp}: Go's regular expressions, as in the answers of NSQ's authorization
 *   services. Not anchored: `test` matches `mytest2`. What is not supported is refused, see
 *   `pattern_syntax.ts`.
 * - {@linkcode Pattern.glob}: the whole name, `*` for any characters and `?` for one.
 *
 * Names are ASCII, and what is not never matches. A pattern has at most
 * {@linkcode PATTERN_CHARACTERS_MAX} characters and, once repetitions are written out,
 * {@linkcode PATTERN_STEPS_MAX} steps.
 */
import { invariant, unreachable } from "../runtime/mod.ts";
import {
  addRange,
  type Assertion,
  type CharacterSet,
  isIn,
  parsePattern,
  PatternError,
  type PatternNode,
  setOf,
} from "./pattern_syntax.ts";

export const PATTERN_CHARACTERS_MAX = 4096;
export const PATTERN_STEPS_MAX = 10_000;

/** What a step does. All but `SET` take no character. */
const MATCH = 0;
const SET = 1;
const SPLIT = 2;
const START = 3;
const END = 4;
const WORD_BOUNDARY = 5;
const NO_WORD_BOUNDARY = 6;

const ASSERTION_STEPS: Readonly<Record<Assertion, number>> = {
  start: START,
  end: END,
  word_boundary: WORD_BOUNDARY,
  no_word_boundary: NO_WORD_BOUNDARY,
};

const WORD = wordSet();
const ASCII_REGEXP = /^[\0-\x7f]*$/;

/** A compiled pattern. What it found in one name does not matter for the next. */
export class Pattern {
  readonly source: string;
  readonly #program: Program;

  private constructor(source: string, program: Program) {
    this.source = source;
    this.#program = program;
  }

  /** Compiles a regular expression of Go. Throws {@linkcode PatternError}. */
  static regexp(source: string): Pattern {
    checkLength(source);
    return new Pattern(source, new Program(parsePattern(source)));
  }

  /** Compiles a pattern of a whole name. Throws {@linkcode PatternError}. */
  static glob(source: string): Pattern {
    checkLength(source);
    const items = [...source].map((character): PatternNode => {
      const any: PatternNode = { kind: "set", set: anything() };
      if (character === "*") return { kind: "repeat", item: any, min: 0, max: Infinity };
      return character === "?" ? any : { kind: "set", set: setOf(character.codePointAt(0)!) };
    });
    return new Pattern(
      source,
      new Program({
        kind: "sequence",
        items: [
          { kind: "assertion", assertion: "start" },
          ...items,
          { kind: "assertion", assertion: "end" },
        ],
      }),
    );
  }

  /** How many steps the pattern has: what a name costs for each of its characters, at most. */
  get steps(): number {
    return this.#program.steps;
  }

  matches(name: string): boolean {
    return ASCII_REGEXP.test(name) && this.#program.run(name);
  }
}

/** The steps of a pattern, linked from the end to the start. */
class Program {
  readonly #kinds: number[] = [];
  /** The step that follows; -1 until it is known. */
  readonly #next: number[] = [];
  /** The other step that follows a split. */
  readonly #other: number[] = [];
  readonly #sets: CharacterSet[] = [];
  readonly #none = setOf();
  readonly #first: number;
  // What a run works with: kept, so that a run makes nothing.
  readonly #states: number[] = [];
  readonly #following: number[] = [];
  readonly #open: number[] = [];
  /** The place at which each step was last reached. Places are counted on over all runs. */
  readonly #reached: Int32Array;
  #place = 0;

  constructor(node: PatternNode) {
    this.#first = this.#emit(node, this.#push(MATCH, -1));
    this.#reached = new Int32Array(this.steps);
  }

  get steps(): number {
    return this.#kinds.length;
  }

  /** Whether the pattern matches somewhere in `text`. */
  run(text: string): boolean {
    const isAnchored = this.#kinds[this.#first] === START;
    let states = this.#states;
    let following = this.#following;
    states.length = 0;
    this.#nextPlace();
    for (let at = 0;; at++) {
      if (at === 0 || !isAnchored) {
        if (this.#reach(this.#first, text, at, states)) return true;
      } else if (states.length === 0) return false;
      if (at === text.length) return false;
      const character = text.charCodeAt(at);
      following.length = 0;
      this.#nextPlace();
      for (const step of states) {
        if (!isIn(this.#sets[step]!, character)) continue;
        if (this.#reach(this.#next[step]!, text, at + 1, following)) return true;
      }
      [states, following] = [following, states];
    }
  }

  /** No step has been reached at the place that comes now. */
  #nextPlace(): void {
    this.#place++;
    if (this.#place < 2 ** 31) return;
    this.#reached.fill(0);
    this.#place = 1;
  }

  /** Adds to `states` what takes a character at `at`, from `step` on; true when the end is reached. */
  #reach(step: number, text: string, at: number, states: number[]): boolean {
    const open = this.#open;
    open.length = 0;
    open.push(step);
    while (open.length > 0) {
      const current = open.pop()!;
      if (this.#reached[current] === this.#place) continue;
      this.#reached[current] = this.#place;
      const kind = this.#kinds[current]!;
      if (kind === MATCH) return true;
      if (kind === SET) {
        states.push(current);
        continue;
      }
      if (kind === SPLIT) open.push(this.#other[current]!);
      else if (!holds(kind, text, at)) continue;
      open.push(this.#next[current]!);
    }
    return false;
  }

  /** Writes the steps of `node`, which lead to `next`; returns the first. */
  #emit(node: PatternNode, next: number): number {
    switch (node.kind) {
      case "set":
        return this.#push(SET, next, node.set);
      case "assertion":
        return this.#push(ASSERTION_STEPS[node.assertion], next);
      case "sequence":
        return node.items.reduceRight((after, item) => this.#emit(item, after), next);
      case "choice":
        return node.items.map((item) => this.#emit(item, next)).reduce((other, step) => {
          const split = this.#push(SPLIT, step);
          this.#other[split] = other;
          return split;
        });
      case "repeat":
        return this.#emitRepeat(node.item, node.min, node.max, next);
      default:
        return unreachable(node);
    }
  }

  #emitRepeat(item: PatternNode, min: number, max: number, next: number): number {
    let first = next;
    if (max === Infinity) {
      const loop = this.#push(SPLIT, -1);
      this.#other[loop] = next;
      this.#next[loop] = this.#emit(item, loop);
      first = loop;
    } else {
      for (let count = min; count < max; count++) {
        const split = this.#push(SPLIT, -1);
        this.#other[split] = next;
        this.#next[split] = this.#emit(item, first);
        first = split;
      }
    }
    for (let count = 0; count < min; count++) {
      const steps = this.steps;
      first = this.#emit(item, first);
      // What has no steps has none a thousand times over.
      if (this.steps === steps) break;
    }
    return first;
  }

  #push(kind: number, next: number, set = this.#none): number {
    if (this.steps >= PATTERN_STEPS_MAX) {
      throw new PatternError("unsupported", `The pattern has more than ${PATTERN_STEPS_MAX} steps`);
    }
    this.#next.push(next);
    this.#other.push(-1);
    this.#sets.push(set);
    return this.#kinds.push(kind) - 1;
  }
}

/** Whether an assertion holds before the character at `at`. */
function holds(kind: number, text: string, at: number): boolean {
  switch (kind) {
    case START:
      return at === 0;
    case END:
      return at === text.length;
    case WORD_BOUNDARY:
      return isWordAt(text, at - 1) !== isWordAt(text, at);
    case NO_WORD_BOUNDARY:
      return isWordAt(text, at - 1) === isWordAt(text, at);
  }
  invariant(false, "every step is of a known kind");
}

function isWordAt(text: string, at: number): boolean {
  return at >= 0 && at < text.length && isIn(WORD, text.charCodeAt(at));
}

function anything(): CharacterSet {
  const set = setOf();
  addRange(set, 0, 127);
  return set;
}

function wordSet(): CharacterSet {
  const set = setOf(0x5f);
  addRange(set, 0x30, 0x39);
  addRange(set, 0x41, 0x5a);
  addRange(set, 0x61, 0x7a);
  return set;
}

function checkLength(source: string): void {
  if (source.length <= PATTERN_CHARACTERS_MAX) return;
  throw new PatternError(
    "unsupported",
    `The pattern has more than ${PATTERN_CHARACTERS_MAX} characters`,
  );
}
