/**
 * Fuzz tests. A target has a folder of inputs, its corpus, and takes any bytes: its check throws when
 * something is wrong with how they are met. Two tests come of it: one over the corpus, so that what
 * was found once stays found, and one over fresh inputs and mutations of the corpus, from a seed that
 * is in the name of the test. A failure names the seed and the case, and shows the input.
 *
 * `SLUICE_SEED` sets the seed, `SLUICE_FUZZ_SECONDS` how long each target runs instead of its number
 * of cases; with that, an input that found something is also kept in the corpus. `deno task fuzz`
 * sets both.
 */
import { SeededRandom } from "./seeded_random.ts";

/** What is fuzzed, and how. */
export interface FuzzTarget {
  /** As `deno task fuzz --only` takes it. */
  readonly name: string;
  /** The folder of the corpus: each file is an input. */
  readonly corpus: URL;
  /** Pieces that mean something in the inputs; mutations use them. */
  readonly words: readonly string[];
  /** Makes an input from nothing. */
  readonly fresh: (random: SeededRandom) => Uint8Array;
  /** Throws, or rejects, when the input is not met as it should be. */
  readonly check: (input: Uint8Array) => void | Promise<void>;
  /** Inputs in an ordinary run of the tests. */
  readonly cases: number;
}

/** An input may grow to this by mutation. */
const INPUT_BYTES_MAX = 16 * 1024;
const MUTATIONS_MAX = 4;

/** Registers the tests of a target. */
export function fuzz(target: FuzzTarget): void {
  const { name } = target;
  const corpus = readCorpus(target.corpus);
  Deno.test(`fuzz ${name}: every input of the corpus is met as it should be`, async () => {
    for (const { file, input } of corpus) {
      try {
        await target.check(input.slice());
      } catch (cause) {
        throw new Error(`Failed with ${file} of the corpus`, { cause });
      }
    }
  });
  const seed = fuzzSeed();
  Deno.test(`fuzz ${name}: so is any other, seed ${seed}`, async () => {
    const random = new SeededRandom(seed);
    const inputs = corpus.map(({ input }) => input);
    const goesOn = fuzzTime(target.cases);
    for (let number = 0; goesOn(number); number++) {
      const input = inputs.length === 0 || random.chance(0.4)
        ? target.fresh(random)
        : mutated(random, random.pick(inputs), inputs, target.words);
      try {
        await target.check(input.slice());
      } catch (cause) {
        const kept = fuzzSeconds() === null ? "" : `, kept as ${await keep(target.corpus, input)}`;
        const message = `Failed with seed ${seed}, case ${number}${kept}: ${shown(input)}`;
        throw new Error(message, { cause });
      }
    }
  });
}

/** The seed of this run: the one that is asked for, or a fresh one. */
export function fuzzSeed(): string {
  return Deno.env.get("SLUICE_SEED") ?? String(crypto.getRandomValues(new Uint32Array(1))[0]);
}

/** Says before each case whether to go on: `cases` of them, or as long as is asked for. */
export function fuzzTime(cases: number): (number: number) => boolean {
  const seconds = fuzzSeconds();
  if (seconds === null) return (number) => number < cases;
  const endMs = performance.now() + 1000 * seconds;
  return () => performance.now() < endMs;
}

function fuzzSeconds(): number | null {
  const given = Deno.env.get("SLUICE_FUZZ_SECONDS");
  return given === undefined ? null : Number(given);
}

function readCorpus(folder: URL): { readonly file: string; readonly input: Uint8Array }[] {
  return [...Deno.readDirSync(folder)]
    .map(({ name }) => name)
    .sort()
    .map((file) => ({ file, input: Deno.readFileSync(new URL(file, folder)) }));
}

/** Writes an input to the corpus; returns the name of the file, which its content decides. */
async function keep(folder: URL, input: Uint8Array): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", new Uint8Array(input)));
  const file = `found_${digest.subarray(0, 4).toHex()}`;
  await Deno.writeFile(new URL(file, folder), input);
  return file;
}

function shown(input: Uint8Array): string {
  return JSON.stringify(String.fromCharCode(...input.subarray(0, 1000)));
}

/** `input` with a few changes: bytes, ranges and words that come, go and move. */
function mutated(
  random: SeededRandom,
  input: Uint8Array,
  others: readonly Uint8Array[],
  words: readonly string[],
): Uint8Array {
  let bytes = input;
  for (let count = random.between(1, MUTATIONS_MAX); count > 0; count--) {
    const at = random.between(0, bytes.length);
    const end = Math.min(bytes.length, at + random.below(1 + random.pick([1, 4, 64])));
    switch (random.below(6)) {
      case 0:
        bytes = replaced(bytes, at, end, random.bytes(end - at));
        break;
      case 1:
        bytes = replaced(bytes, at, end, new Uint8Array(0));
        break;
      case 2:
        bytes = replaced(bytes, at, at, bytes.subarray(at, end));
        break;
      case 3: {
        const other = random.pick(others);
        const from = random.between(0, other.length);
        bytes = replaced(bytes, at, random.chance(0.5) ? bytes.length : at, other.subarray(from));
        break;
      }
      case 4:
        bytes = replaced(
          bytes,
          at,
          at,
          Uint8Array.of(random.pick([0, 1, 9, 10, 13, 32, 127, 255])),
        );
        break;
      default: {
        const word = new TextEncoder().encode(words.length === 0 ? "" : random.pick(words));
        bytes = replaced(bytes, at, random.chance(0.5) ? at : end, word);
      }
    }
  }
  return bytes.subarray(0, INPUT_BYTES_MAX);
}

function replaced(
  bytes: Uint8Array,
  start: number,
  end: number,
  by: Uint8Array,
): Uint8Array {
  return new Uint8Array([...bytes.subarray(0, start), ...by, ...bytes.subarray(end)]);
}
