/**
 * The syntax of the patterns in grants, read into a tree: Go's regular expressions (RE2), as far as
 * names of topics and channels need them.
 *
 * ```
 * literals  .  [a-z] [^a-z] [[:alpha:]]  \d \w \s \D \W \S  \. \n \t \x41 \x{41} \012  \Q...\E
 * (...) (?:...) (?P<name>...) (?<name>...) (?i) (?i:...)  a|b  * + ? {m} {m,} {m,n}, also lazy
 * ^ $ \A \z \b \B
 * ```
 *
 * What Go refuses is `bad`; what Go takes and this does not (Unicode classes, ignoring the case of
 * letters outside ASCII, more than {@linkcode GROUP_DEPTH_MAX} groups in one another) is
 * `unsupported`. Names are ASCII, so a character outside of it is read and never met.
 */

/** Why a pattern cannot be used. */
export class PatternError extends Error {
  override name = "PatternError";
  constructor(readonly kind: "bad" | "unsupported", message: string) {
    super(message);
  }
}

/** Which ASCII characters match: a bit each. */
export type CharacterSet = Uint32Array;

/** A place that matches no character. */
export type Assertion = "start" | "end" | "word_boundary" | "no_word_boundary";

/** A pattern as a tree. `max` is infinite where there is no bound. */
export type PatternNode =
  | { readonly kind: "set"; readonly set: CharacterSet }
  | { readonly kind: "sequence"; readonly items: readonly PatternNode[] }
  | { readonly kind: "choice"; readonly items: readonly PatternNode[] }
  | {
    readonly kind: "repeat";
    readonly item: PatternNode;
    readonly min: number;
    readonly max: number;
  }
  | { readonly kind: "assertion"; readonly assertion: Assertion };

/** The most repetitions that Go takes. */
export const REPEAT_MAX = 1000;
export const GROUP_DEPTH_MAX = 50;

const ASCII_END = 128;
/** A repetition such as `{10,1000}` is shorter; what is longer is read as literals. */
const REPEAT_CHARACTERS_MAX = 32;
/** A class such as `[:^xdigit:]` is shorter. */
const CLASS_CHARACTERS_MAX = 64;

/** Reads a pattern. Throws {@linkcode PatternError}. */
export function parsePattern(pattern: string): PatternNode {
  return new Parser(pattern).parse();
}

/** The set of one character; empty when it is not ASCII. */
export function setOf(...characters: readonly number[]): CharacterSet {
  const set = new Uint32Array(ASCII_END / 32);
  for (const character of characters) addRange(set, character, character);
  return set;
}

/** Whether `character` is in `set`. */
export function isIn(set: CharacterSet, character: number): boolean {
  return character < ASCII_END && ((set[character >> 5]! >>> (character & 31)) & 1) === 1;
}

/** Adds the ASCII part of a range. */
export function addRange(set: CharacterSet, low: number, high: number): void {
  const last = Math.min(high, ASCII_END - 1);
  for (let at = low; at <= last; at++) set[at >> 5]! |= 1 << (at & 31);
}

const RANGES: Readonly<Record<string, readonly string[]>> = {
  d: ["09"],
  w: ["09", "AZ", "__", "az"],
  s: ["\t\n", "\f\r", "  "],
  alnum: ["09", "AZ", "az"],
  alpha: ["AZ", "az"],
  ascii: ["\0\x7f"],
  blank: ["\t\t", "  "],
  cntrl: ["\0\x1f", "\x7f\x7f"],
  digit: ["09"],
  graph: ["!~"],
  lower: ["az"],
  print: [" ~"],
  punct: ["!/", ":@", "[`", "{~"],
  space: ["\t\r", "  "],
  upper: ["AZ"],
  word: ["09", "AZ", "__", "az"],
  xdigit: ["09", "AF", "af"],
};

const CONTROL_ESCAPES: Readonly<Record<string, string>> = {
  a: "\x07",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
};

const ASSERTIONS: Readonly<Record<string, Assertion>> = {
  A: "start",
  z: "end",
  b: "word_boundary",
  B: "no_word_boundary",
};

class Parser {
  readonly #characters: readonly string[];
  #at = 0;
  #depth = 0;
  #ignoresCase = false;
  #matchesLineFeed = false;
  #isMultiLine = false;

  constructor(pattern: string) {
    this.#characters = [...pattern];
  }

  parse(): PatternNode {
    const node = this.#choice();
    if (this.#at < this.#characters.length) throw bad("unexpected )");
    return node;
  }

  get #next(): string | undefined {
    return this.#characters[this.#at];
  }

  #choice(): PatternNode {
    const items = [this.#sequence()];
    while (this.#take("|")) items.push(this.#sequence());
    return items.length === 1 ? items[0]! : { kind: "choice", items };
  }

  #sequence(): PatternNode {
    const items: PatternNode[] = [];
    let repeated = false;
    while (this.#next !== undefined && this.#next !== "|" && this.#next !== ")") {
      const bounds = this.#repetition();
      if (bounds === null) {
        repeated = false;
        if (this.#take("\\", "Q")) items.push(...this.#quotation());
        else {
          const item = this.#item();
          if (item !== null) items.push(item);
        }
        continue;
      }
      const item = items.pop();
      if (item === undefined) throw bad("missing argument to repetition operator");
      if (repeated) throw bad("invalid nested repetition operator");
      repeated = true;
      // Greedy or lazy: whether there is a match is the same.
      this.#take("?");
      const repeat: PatternNode = { kind: "repeat", item, ...bounds };
      const isMany = bounds.min > 1 || (bounds.max > 1 && bounds.max < Infinity);
      if (isMany && !isRepeatable(repeat, REPEAT_MAX)) throw bad("invalid repeat count");
      items.push(repeat);
    }
    return items.length === 1 ? items[0]! : { kind: "sequence", items };
  }

  /** Takes a repetition operator, if there is one. A brace that is none is a literal. */
  #repetition(): { min: number; max: number } | null {
    if (this.#take("*")) return { min: 0, max: Infinity };
    if (this.#take("+")) return { min: 1, max: Infinity };
    if (this.#take("?")) return { min: 0, max: 1 };
    if (this.#next !== "{") return null;
    const text = this.#ahead(REPEAT_CHARACTERS_MAX);
    const match = /^\{(0|[1-9]\d*)(?:(,)(0|[1-9]\d*)?)?\}/.exec(text);
    if (match === null) return null;
    this.#at += match[0].length;
    const [, low = "", comma, high] = match;
    const min = Number(low);
    const max = comma === undefined ? min : high === undefined ? Infinity : Number(high);
    const isBounded = min <= REPEAT_MAX && (max === Infinity || max <= REPEAT_MAX);
    if (!isBounded || min > max) throw bad("invalid repeat count");
    return { min, max };
  }

  /** One item; null for what only sets a flag. */
  #item(): PatternNode | null {
    const character = this.#characters[this.#at++]!;
    switch (character) {
      case "(":
        return this.#group();
      case "[":
        return this.#class();
      case ".":
        return { kind: "set", set: complement(this.#matchesLineFeed ? setOf() : setOf(10)) };
      case "^":
        return this.#lineAssertion("start");
      case "$":
        return this.#lineAssertion("end");
      case "\\":
        return this.#escape();
      default:
        return this.#literal(character);
    }
  }

  #lineAssertion(assertion: Assertion): PatternNode {
    // Only text with line feeds would tell them apart, and no name has one.
    if (this.#isMultiLine) throw unsupported("the flag m with ^ or $");
    return { kind: "assertion", assertion };
  }

  #group(): PatternNode | null {
    const flags = [this.#ignoresCase, this.#matchesLineFeed, this.#isMultiLine] as const;
    if (this.#take("?")) {
      const named = /^P?<\w+>/.exec(this.#ahead(100));
      if (named !== null) this.#at += named[0].length;
      else if (!this.#flags()) return null;
    }
    if (++this.#depth > GROUP_DEPTH_MAX) throw unsupported("so many groups in one another");
    const node = this.#choice();
    if (!this.#take(")")) throw bad("missing closing )");
    this.#depth--;
    [this.#ignoresCase, this.#matchesLineFeed, this.#isMultiLine] = flags;
    // As an item of its own, so that a repetition after it is not one of what is in it.
    return { kind: "sequence", items: [node] };
  }

  /** Takes `flags:` (true: a group follows) or `flags)`, which holds to the end of the group. */
  #flags(): boolean {
    let isOn = true;
    let isEmpty = true;
    while (true) {
      const character = this.#characters[this.#at++];
      switch (character) {
        case "i":
          this.#ignoresCase = isOn;
          break;
        case "s":
          this.#matchesLineFeed = isOn;
          break;
        case "m":
          this.#isMultiLine = isOn;
          break;
        case "U":
          break;
        case "-":
          if (!isOn) throw bad("invalid or unsupported Perl syntax");
          isOn = false;
          isEmpty = true;
          continue;
        case ":":
        case ")":
          if (isEmpty && !isOn) throw bad("invalid or unsupported Perl syntax");
          return character === ":";
        default:
          throw bad("invalid or unsupported Perl syntax");
      }
      isEmpty = false;
    }
  }

  #escape(): PatternNode {
    const character = this.#next;
    if (character === undefined) throw bad("trailing backslash");
    const assertion = ASSERTIONS[character];
    if (assertion !== undefined) {
      this.#at++;
      return { kind: "assertion", assertion };
    }
    if (character === "C") throw unsupported("\\C");
    const set = this.#escapedSet();
    if (set !== null) return { kind: "set", set };
    return this.#literal(this.#escapedCharacter());
  }

  /** The rest of `\Q...\E`, a literal for each character: what repeats it repeats the last one. */
  #quotation(): PatternNode[] {
    const items: PatternNode[] = [];
    while (this.#next !== undefined && !this.#take("\\", "E")) {
      items.push(this.#literal(this.#characters[this.#at++]!));
    }
    return items;
  }

  /** `\d` and its like, behind the backslash; null when it is something else. */
  #escapedSet(): CharacterSet | null {
    const character = this.#next ?? "";
    if (character === "p" || character === "P") throw unsupported("Unicode classes");
    const lower = character.toLowerCase();
    if (!["d", "s", "w"].includes(lower)) return null;
    this.#at++;
    const set = namedSet(lower)!;
    return character === lower ? set : complement(set);
  }

  /** An escaped character, behind the backslash. */
  #escapedCharacter(): string {
    const character = this.#characters[this.#at++] ?? "";
    const control = CONTROL_ESCAPES[character];
    if (control !== undefined) return control;
    if (character === "x") return this.#hexadecimal();
    if (/[0-7]/.test(character)) return this.#octal(character);
    // Punctuation stands for itself. What might have a meaning one day does not.
    if (character !== "" && character < "\x80" && !/[0-9A-Za-z]/.test(character)) return character;
    throw bad("invalid escape sequence");
  }

  #hexadecimal(): string {
    const match = /^(?:([0-9a-fA-F]{2})|\{([0-9a-fA-F]{1,8})\})/.exec(this.#ahead(10));
    if (match === null) throw bad("invalid escape sequence");
    this.#at += match[0].length;
    const codePoint = Number.parseInt(match[1] ?? match[2]!, 16);
    if (codePoint > 0x10ffff) throw bad("invalid escape sequence");
    return String.fromCodePoint(codePoint);
  }

  /** `\012`; a single digit above 0 would be a back reference, which Go does not have. */
  #octal(first: string): string {
    let digits = first;
    while (digits.length < 3 && /^[0-7]$/.test(this.#next ?? "")) {
      digits += this.#characters[this.#at++];
    }
    if (first !== "0" && digits.length === 1) throw bad("invalid escape sequence");
    return String.fromCodePoint(Number.parseInt(digits, 8));
  }

  #class(): PatternNode {
    const isNegated = this.#take("^");
    const set = setOf();
    for (let isFirst = true; this.#next !== "]" || isFirst; isFirst = false) {
      if (this.#next === undefined) throw bad("missing closing ]");
      const named = this.#namedClass();
      if (named !== null) {
        for (let word = 0; word < set.length; word++) set[word]! |= named[word]!;
        continue;
      }
      const low = this.#classCharacter();
      let high = low;
      if (this.#next === "-" && (this.#characters[this.#at + 1] ?? "]") !== "]") {
        this.#at++;
        high = this.#classCharacter();
      }
      const [from, to] = [low.codePointAt(0)!, high.codePointAt(0)!];
      if (from > to) throw bad("invalid character class range");
      if (this.#ignoresCase && to >= ASCII_END) throw unsupported("case outside of ASCII");
      addRange(set, from, to);
    }
    this.#at++;
    if (this.#ignoresCase) addOtherCases(set);
    return { kind: "set", set: isNegated ? complement(set) : set };
  }

  /** `[:alpha:]`, `[:^alpha:]` or `\d` and its like; null when a character comes next. */
  #namedClass(): CharacterSet | null {
    if (this.#next === "\\") {
      this.#at++;
      const set = this.#escapedSet();
      if (set === null) this.#at--;
      return set;
    }
    if (this.#next !== "[" || this.#characters[this.#at + 1] !== ":") return null;
    const ahead = this.#ahead(CLASS_CHARACTERS_MAX);
    const end = ahead.indexOf(":]", 2);
    if (end < 0) {
      if (this.#at + CLASS_CHARACTERS_MAX >= this.#characters.length) return null;
      throw unsupported("[: so far from its end");
    }
    const isNegated = ahead[2] === "^";
    const name = ahead.slice(isNegated ? 3 : 2, end);
    const set = name.length > 1 ? namedSet(name) : null;
    if (set === null) throw bad("invalid character class range");
    this.#at += end + 2;
    if (this.#ignoresCase) addOtherCases(set);
    return isNegated ? complement(set) : set;
  }

  #classCharacter(): string {
    const character = this.#characters[this.#at++];
    if (character === undefined) throw bad("missing closing ]");
    return character === "\\" ? this.#escapedCharacter() : character;
  }

  #literal(character: string): PatternNode {
    const codePoint = character.codePointAt(0)!;
    if (this.#ignoresCase && codePoint >= ASCII_END) throw unsupported("case outside of ASCII");
    const set = setOf(codePoint);
    if (this.#ignoresCase) addOtherCases(set);
    return { kind: "set", set };
  }

  /** The text that comes next, a bounded piece of it: looking ahead takes no longer in a long pattern. */
  #ahead(charactersMax: number): string {
    return this.#characters.slice(this.#at, this.#at + charactersMax).join("");
  }

  #take(...characters: readonly string[]): boolean {
    const isNext = characters.every((one, index) => this.#characters[this.#at + index] === one);
    if (isNext) this.#at += characters.length;
    return isNext;
  }
}

/** Whether what is in `node` is repeated `times` at most, repetitions within others multiplied. */
function isRepeatable(node: PatternNode, times: number): boolean {
  switch (node.kind) {
    case "sequence":
    case "choice":
      return node.items.every((item) => isRepeatable(item, times));
    case "repeat": {
      const count = node.max === Infinity ? node.min : node.max;
      if (node.max === 0) return true;
      return count <= times &&
        isRepeatable(node.item, count > 0 ? Math.floor(times / count) : times);
    }
    default:
      return true;
  }
}

function namedSet(name: string): CharacterSet | null {
  if (!Object.hasOwn(RANGES, name)) return null;
  const set = setOf();
  for (const range of RANGES[name]!) addRange(set, range.charCodeAt(0), range.charCodeAt(1));
  return set;
}

function complement(set: CharacterSet): CharacterSet {
  return set.map((word) => ~word);
}

function addOtherCases(set: CharacterSet): void {
  for (let lower = 0x61; lower <= 0x7a; lower++) {
    const upper = lower - 0x20;
    if (isIn(set, lower)) addRange(set, upper, upper);
    else if (isIn(set, upper)) addRange(set, lower, lower);
  }
}

function bad(reason: string): PatternError {
  return new PatternError("bad", `The pattern is not valid: ${reason}`);
}

function unsupported(what: string): PatternError {
  return new PatternError("unsupported", `The pattern has what is not supported: ${what}`);
}
