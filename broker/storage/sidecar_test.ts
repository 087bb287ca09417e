import { deepEqual, equal, ok } from "node:assert/strict";
import { SeededRandom } from "@sluice/shared/testing";
import {
  decodeDirectory,
  decodeDue,
  decodeSidecar,
  decodeWords,
  DIRECTORY_HEADER_BYTES,
  directoryBytesOf,
  encodeSidecar,
  PAGE_ENTRIES,
  type SidecarRun,
} from "./sidecar.ts";
import { IndexRun } from "./topic_index.ts";

function runOf(fileStart: number, firstOffset: number, count: number, random: SeededRandom) {
  const run = new IndexRun(fileStart, firstOffset);
  let position = fileStart;
  let offset = firstOffset;
  for (let index = 0; index < count; index++) {
    position += 8 * random.between(1, 100);
    const dueMs = random.chance(0.2) ? 1_700_000_000_000 + random.u32() : 0;
    run.add(offset, position, dueMs, 8 * random.between(6, 100));
    offset += random.chance(0.1) ? 3 : 1;
  }
  return run;
}

/** What a run says, without its spare room. */
function plain({ topic, run }: SidecarRun) {
  const { fileStart, firstOffset, count, due, messages, bytes } = run;
  const words = run.words?.slice(0, count);
  return { topic, fileStart, firstOffset, words, due: [...due], messages, bytes };
}

Deno.test("decodeSidecar() is null for bytes that do not add up, or with any bit flipped", () => {
  const bytes = encodeSidecar([
    { topic: 1, run: runOf(0, 4, 9, new SeededRandom(1)) },
    { topic: 2, run: runOf(0, 7, 5, new SeededRandom(2)) },
  ]);
  ok(decodeSidecar(bytes, 0) !== null);
  for (let length = 0; length < bytes.length; length++) {
    equal(decodeSidecar(bytes.slice(0, length), 0), null, `length ${length}`);
  }
  const longer = new Uint8Array(bytes.length + 1);
  longer.set(bytes);
  equal(decodeSidecar(longer, 0), null);
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const changed = bytes.slice();
    changed[bit >>> 3]! ^= 1 << (bit & 7);
    equal(decodeSidecar(changed, 0), null, `bit ${bit}`);
  }
});

Deno.test("decodeDirectory() is null with any bit of the directory flipped, and passes over the rest", () => {
  const bytes = encodeSidecar([{ topic: 1, run: runOf(0, 4, 30, new SeededRandom(1)) }]);
  const directory = decodeDirectory(bytes);
  ok(directory !== null);
  const directoryBytes = directory.bounds[0]!;
  equal(directoryBytesOf(bytes.subarray(0, DIRECTORY_HEADER_BYTES)), directoryBytes);
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const changed = bytes.slice();
    changed[bit >>> 3]! ^= 1 << (bit & 7);
    const decoded = decodeDirectory(changed);
    if (bit >>> 3 < directoryBytes) equal(decoded, null, `bit ${bit}`);
    else deepEqual(decoded, directory);
  }
  equal(decodeDirectory(bytes.subarray(0, directoryBytes - 1)), null);
});

Deno.test("decodeWords() and decodeDue() are null for a page that is damaged or of another count", () => {
  const run = runOf(0, 4, 40, new SeededRandom(3));
  const bytes = encodeSidecar([{ topic: 1, run }]);
  const { bounds } = decodeDirectory(bytes)!;
  const [words, due] = [0, 1].map((page) => bytes.slice(bounds[page], bounds[page + 1]));
  deepEqual(decodeWords(words!, run.count), run.words!.slice(0, run.count));
  deepEqual(decodeDue(due!, run.due.length / 2), run.due.slice());
  for (const change of [-1, 1]) {
    equal(decodeWords(words!, run.count + change), null);
    equal(decodeDue(due!, run.due.length / 2 + change), null);
  }
  for (const page of [words!, due!]) {
    for (let bit = 0; bit < page.length * 8; bit++) {
      page[bit >>> 3]! ^= 1 << (bit & 7);
      equal(decodeWords(page, run.count), null);
      equal(decodeDue(page, run.due.length / 2), null);
      page[bit >>> 3]! ^= 1 << (bit & 7);
    }
    for (let length = 0; length < page.length; length++) {
      equal(decodeWords(page.subarray(0, length), run.count), null);
      equal(decodeDue(page.subarray(0, length), run.due.length / 2), null);
    }
  }
});

Deno.test("decodeSidecar() gives the runs that encodeSidecar() was given, over page ends", () => {
  for (let seed = 0; seed < 40; seed++) {
    const random = new SeededRandom(seed);
    const fileStart = random.below(2 ** 20) * 2 ** 26;
    const counts = [80, 80, 80, PAGE_ENTRIES - 2, 3 * PAGE_ENTRIES];
    const runs = Array.from({ length: random.below(6) }, () => ({
      topic: random.u32(),
      run: runOf(
        fileStart,
        random.below(2 ** 20) * 2 ** 27,
        random.below(random.pick(counts)),
        random,
      ),
    }));
    const decoded = decodeSidecar(encodeSidecar(runs), fileStart);
    deepEqual(decoded?.map(plain), runs.map(plain));
  }
});

Deno.test("encodeSidecar() takes places up to the end of the largest file, a byte for a near one", () => {
  const run = new IndexRun(0, 0);
  for (const [index, position] of [8, 16, 2 ** 32 - 16].entries()) run.add(index, position, 0);
  deepEqual(
    decodeSidecar(encodeSidecar([{ topic: 1, run }]), 0)?.[0]?.run.words,
    run.words!.slice(0, 3),
  );
  const dense = new IndexRun(0, 0);
  for (let index = 0; index < PAGE_ENTRIES; index++) dense.add(index, 64 + index * 248, 0);
  ok(encodeSidecar([{ topic: 1, run: dense }]).length < PAGE_ENTRIES + 100);
});

Deno.test("a sidecar has the bytes that docs/format/data_folder.md shows", () => {
  const run = new IndexRun(4096, 10);
  run.add(10, 4096 + 72, 0, 48);
  run.add(12, 4096 + 200, 1_700_000_000_000, 64);
  const bytes = encodeSidecar([{ topic: 7, run }], 264);
  const lines: string[] = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const line = bytes.subarray(at, at + 16);
    lines.push([...line].map((byte) => byte.toString(16).padStart(2, "0")).join(" "));
  }
  deepEqual(lines, [
    "03 00 00 00 f5 c8 40 e6 01 00 00 00 02 00 00 00",
    "08 01 00 00 00 00 00 00 07 00 00 00 03 00 00 00",
    "0a 00 00 00 00 00 00 00 01 00 00 00 02 00 00 00",
    "70 00 00 00 00 00 00 00 47 00 00 00 57 00 00 00",
    "f9 f2 27 ed 09 00 10 44 f4 e1 39 02 00 00 00 00",
    "68 e5 cf 8b 01 00 00",
  ]);
  const page = new URL("../../docs/format/data_folder.md", import.meta.url);
  const text = Deno.readTextFileSync(page);
  for (const line of lines) ok(text.includes(line), line);
});
