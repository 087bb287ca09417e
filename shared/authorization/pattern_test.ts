/** Patterns against what Go and JavaScript say of them, and against patterns made to hurt. */
import { deepStrictEqual as equal, ok, throws } from "node:assert/strict";
import { SeededRandom } from "../testing/mod.ts";
import { Pattern, PATTERN_CHARACTERS_MAX } from "./pattern.ts";
import { PatternError } from "./pattern_syntax.ts";

/** Pattern, names it matches, names it does not. */
const GO: readonly (readonly [string, readonly string[], readonly string[]])[] = [
  ["", ["", "a"], []],
  ["test", ["test", "mytest2"], ["", "tes", "Test"]],
  ["^test$", ["test"], ["mytest2", "test2", "mytest"]],
  [".*", ["", "a", "a.b-c_d#ephemeral"], []],
  [".", ["a"], [""]],
  ["^$", [""], ["a"]],
  ["^(a|bc|)$", ["a", "bc", ""], ["b", "abc"]],
  ["^a{2,3}$", ["aa", "aaa"], ["a", "aaaa"]],
  ["^a{2}$", ["aa"], ["a", "aaa"]],
  ["^a{2,}$", ["aa", "aaaaa"], ["a"]],
  ["^a{,2}$", ["a{,2}"], ["a", "aa"]],
  ["^a{02}$", ["a{02}"], ["aa"]],
  ["^{$", ["{"], [""]],
  ["^a*?b+?c??$", ["b", "aabbc"], ["ac"]],
  ["^[a-c.]+$", ["abc", "a.b"], ["d", ""]],
  ["^[^a-c]$", ["d", "-"], ["a", ""]],
  ["^[]a]$", ["]", "a"], ["b"]],
  ["^[^]a]$", ["b"], ["]", "a"]],
  ["^[a-]$", ["a", "-"], ["b"]],
  ["^[-a]$", ["a", "-"], ["b"]],
  ["^[\\d-z]$", ["5", "-", "z"], ["a"]],
  ["^[[:alpha:]_]+$", ["aZ_"], ["a1", ""]],
  ["^[[:^digit:]]$", ["a"], ["1"]],
  ["^[^[:digit:]]$", ["a"], ["1"]],
  ["^[[:word:]]\\w$", ["a_", "_9"], ["a-"]],
  ["^[:alpha]$", [":", "a", "p"], ["b"]],
  ["^\\d\\D\\w\\W$", ["1aA-"], ["aaaa"]],
  ["^a\\.b$", ["a.b"], ["axb"]],
  ["^a.b$", ["a.b", "axb"], ["ab", "a\nb"]],
  ["^\\x41\\x{42}\\103$", ["ABC"], ["abc"]],
  ["^\\Qa.b*\\E$", ["a.b*"], ["axb"]],
  ["^\\Qab\\E*$", ["a", "abb"], ["abab", ""]],
  ["^\\Qab\\E(?s){2}$", ["abb"], ["ab", "abab"]],
  ["^a\\Q\\E+$", ["aa"], [""]],
  ["\\Qa.b", ["a.b"], ["axb"]],
  ["(?i)TEST", ["test", "MyTeSt"], ["tes"]],
  ["^(?i:a)b$", ["ab", "Ab"], ["aB"]],
  ["^((?i)a)b$", ["ab", "Ab"], ["aB"]],
  ["(?i)^[a-c]$", ["A", "b"], ["d"]],
  ["(?i)^[^a]$", ["b"], ["a", "A"]],
  ["(?s-i)^.$", ["a"], [""]],
  ["^(?P<name>a)(?<other>b)(?:c)$", ["abc"], ["ab"]],
  ["\\Aa\\z", ["a"], ["ba", "ab"]],
  ["\\bb\\b", ["b", "a.b"], ["ab", "bc"]],
  ["a\\Bb", ["ab"], ["a.b"]],
  ["^*a", ["a", "ba"], ["b"]],
  ["(a*)*b", ["b", "aab"], ["a"]],
  ["^(a{2}){3}$", ["aaaaaa"], ["aaaaa"]],
  ["(a|b)*c|d", ["abc", "d"], ["ab"]],
  ["é", [], ["", "e", "é"]],
  ["[é-ÿa]", ["a"], ["b"]],
  ["^[^é]$", ["a"], [""]],
  ["a]b}", ["a]b}"], ["ab"]],
  ["^(?)a$", ["a"], ["b"]],
  ["^(?:)a$", ["a"], ["b"]],
];

Deno.test("Pattern.regexp() matches what Go matches", () => {
  for (const [source, matching, other] of GO) {
    const pattern = Pattern.regexp(source);
    for (const name of matching) ok(pattern.matches(name), `${source} matches "${name}"`);
    for (const name of other) ok(!pattern.matches(name), `${source} does not match "${name}"`);
  }
});

Deno.test("Pattern.regexp() calls bad what Go refuses, and unsupported what only Go takes", () => {
  const bad = [
    ..."*a +a ?a a** a*+ a{2}* a{2}{3} a{2,1} a{1001} a{1,1001} (a a) [a [ [b-a] (?=a) (?!a)".split(
      " ",
    ),
    ..."(?<=a) (?<!a) \\1 \\8 \\c \\Z \\y [\\b] [a-\\d] [[:nope:]] [[:a:]] (?i (?i-) (?P<>a)"
      .split(
        " ",
      ),
    ..."(?P<a (?z) (?-) (?-:a) (a{2}){501} a{2}(?i){501} (?--i) a\\ (* |* \\x \\x{110000} \\x4 (?P=a) ( [\\"
      .split(" "),
  ];
  const unsupported = [
    "\\pL",
    "\\p{Greek}",
    "[\\P{Greek}]",
    "\\C",
    "(?i)é",
    "(?i)[à-ÿ]",
    "(?m)^a$",
    "(".repeat(51) + ")".repeat(51),
    "((abcdefghijkl){10}){100}",
    `[[:${"x".repeat(100)}`,
    "a".repeat(PATTERN_CHARACTERS_MAX + 1),
  ];
  const kindOf = (source: string) => {
    try {
      Pattern.regexp(source);
      return "good";
    } catch (error) {
      ok(error instanceof PatternError, `${source}: ${error}`);
      return error.kind;
    }
  };
  for (const source of bad) equal(kindOf(source), "bad", source);
  for (const source of unsupported) equal(kindOf(source), "unsupported", source.slice(0, 40));
});

Deno.test("Pattern.glob() matches whole names only", () => {
  const rows: readonly (readonly [string, readonly string[], readonly string[]])[] = [
    ["*", ["", "a", "a.b#ephemeral"], []],
    ["orders", ["orders"], ["", "orders2", "myorders"]],
    ["orders.*", ["orders.", "orders.eu"], ["orders", "ordersxeu"]],
    ["*.eu", ["orders.eu", ".eu"], ["orders.eu2"]],
    ["a?c", ["abc", "a.c"], ["ac", "abbc"]],
    ["a[b", ["a[b"], ["ab"]],
    ["", [""], ["a"]],
  ];
  for (const [source, matching, other] of rows) {
    const pattern = Pattern.glob(source);
    for (const name of matching) ok(pattern.matches(name), `${source} matches "${name}"`);
    for (const name of other) ok(!pattern.matches(name), `${source} does not match "${name}"`);
  }
  throws(() => Pattern.glob("a".repeat(PATTERN_CHARACTERS_MAX + 1)), PatternError);
});

Deno.test("Pattern takes steps in proportion to pattern and name, whatever the pattern", () => {
  const name = "a".repeat(63) + "!";
  const hurtful = [
    "^(a+)+$",
    "^(a*)*$",
    "^(a|a)*$",
    "^(a|aa)+$",
    "^(.*a){30}$",
    "^(a?){50}a{50}$",
    "^((a*)*)*$",
    "((((){1000}){1000}){1000}){1000}b",
    "(((a{0,1000}b?)))^",
    "{".repeat(PATTERN_CHARACTERS_MAX),
    "[[:".repeat(20),
  ];
  let steps = 0;
  for (const source of hurtful) {
    try {
      const pattern = Pattern.regexp(source);
      pattern.matches(name);
      steps += pattern.steps;
    } catch (error) {
      ok(error instanceof PatternError);
    }
  }
  ok(steps > 1000 && steps < 20_000, `${steps}`);
});

const ATOMS = [
  ..."abc.-_",
  "[ab]",
  "[^ab]",
  "[a-c.]",
  "\\d",
  "\\w",
  "\\W",
  "\\s",
  "\\.",
  "\\x61",
  "^",
  "$",
  "\\b",
  "\\B",
];
const REPEATS = ["*", "+", "?", "{2}", "{1,2}", "{0,2}", "{1,}", "*?", "+?", "??"];

function randomPattern(random: SeededRandom, depth: number): string {
  let source = "";
  for (let count = random.between(0, 3); count > 0; count--) {
    const isGroup = depth > 0 && random.chance(0.3);
    const atom = isGroup
      ? `${random.pick(["(", "(?:"])}${randomPattern(random, depth - 1)})`
      : random.pick(ATOMS);
    // JavaScript refuses to repeat an assertion.
    const isRepeatable = isGroup || !/^(?:\^|\$|\\[bB])$/.test(atom);
    source += atom + (isRepeatable && random.chance(0.4) ? random.pick(REPEATS) : "");
  }
  return depth > 0 && random.chance(0.2) ? `${source}|${randomPattern(random, depth - 1)}` : source;
}

Deno.test("Pattern.regexp() agrees with JavaScript on what both know", () => {
  const seed = Deno.env.get("SLUICE_SEED") ?? crypto.randomUUID();
  const random = new SeededRandom(seed);
  let matches = 0;
  for (let round = 0; round < 5000; round++) {
    const source = randomPattern(random, 3);
    const name = Array.from({ length: random.below(8) }, () => random.pick([..."abc1._-"])).join(
      "",
    );
    const expected = new RegExp(source).test(name);
    if (expected) matches++;
    equal(Pattern.regexp(source).matches(name), expected, `${source} on "${name}", seed ${seed}`);
  }
  ok(matches > 500 && matches < 4500, `${matches} of 5000 match, seed ${seed}`);
});

Deno.test("Pattern.regexp() compiles or refuses any text", () => {
  const seed = Deno.env.get("SLUICE_SEED") ?? crypto.randomUUID();
  const random = new SeededRandom(seed);
  const characters = [..."ab()[]{}*+?|^$\\.-:,019<>=!PQEdwsxiσ😀"];
  for (let round = 0; round < 5000; round++) {
    const source = Array.from({ length: random.below(20) }, () => random.pick(characters)).join("");
    try {
      Pattern.regexp(source).matches("ab");
    } catch (error) {
      ok(error instanceof PatternError, `${source}, seed ${seed}: ${error}`);
    }
  }
});

Deno.test("Pattern.regexp() agrees with what Go said of random patterns", () => {
  // The names, then a pattern a line with 1 or 0 for each name, or bad; by Go 1.26.
  const path = new URL("testdata/go_patterns.jsonl", import.meta.url);
  const [names, ...rows] = Deno.readTextFileSync(path).trim().split("\n")
    .map((line): string[] => JSON.parse(line));
  ok(names !== undefined && rows.length > 500);
  for (const [source = "", expected] of rows) {
    let said = "bad";
    try {
      const pattern = Pattern.regexp(source);
      said = names.map((name) => pattern.matches(name) ? "1" : "0").join("");
    } catch (error) {
      ok(error instanceof PatternError && error.kind === "bad", `${source}: ${error}`);
    }
    equal(said, expected, source);
  }
});
