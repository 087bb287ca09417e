import { deepEqual, equal, throws } from "node:assert/strict";
import { InvariantError } from "@sluice/shared/runtime";
import { SeededRandom } from "@sluice/shared/testing";
import { MISSING } from "./index_word.ts";
import { IndexRun, TopicIndex } from "./topic_index.ts";

Deno.test("TopicIndex refuses an offset or a file out of order", () => {
  const index = new TopicIndex();
  index.append(5, 0, 64, 0);
  throws(() => index.append(5, 0, 128, 0), InvariantError);
  throws(() => index.addRun(new IndexRun(0, 6)), InvariantError);
});

Deno.test("TopicIndex.position() is MISSING for offsets that were never there", () => {
  const index = new TopicIndex();
  equal(index.position(0), MISSING);
  index.append(7, 100, 164, 0);
  deepEqual([6, 7, 8].map((offset) => index.position(offset)), [MISSING, 164, MISSING]);
  equal(index.firstOffset(99), 7);
  equal(new TopicIndex().firstOffset(99), 99);
});

Deno.test("TopicIndex marks what damage took as missing, within a file and between two", () => {
  const index = new TopicIndex();
  index.append(0, 0, 64, 0);
  index.append(3, 0, 128, 0);
  index.append(6, 1000, 1064, 0);
  deepEqual(
    [0, 1, 2, 3, 4, 5, 6].map((offset) => index.position(offset)),
    [64, MISSING, MISSING, 128, MISSING, MISSING, 1064],
  );
  const other = new TopicIndex();
  other.addRun(new IndexRun(0, 0, Uint32Array.of(64)));
  other.addRun(new IndexRun(1000, 3, Uint32Array.of(64, 0xffffffff)));
  deepEqual(
    [0, 1, 2, 3, 4].map((offset) => other.position(offset)),
    [64, MISSING, MISSING, 1064, MISSING],
  );
});

Deno.test("TopicIndex finds every message, over files that come and go", () => {
  for (let seed = 0; seed < 30; seed++) {
    const random = new SeededRandom(seed);
    const index = new TopicIndex();
    const positions = new Map<number, number>();
    const files: { start: number; end: number }[] = [];
    let position = random.below(2 ** 20) * 2 ** 20;
    let offset = random.pick([0, 2 ** 32 - 5, 2 ** 47]);
    let dropped = offset;
    for (let file = 0; file < 12; file++) {
      const start = position;
      for (let count = random.below(60); count > 0; count--) {
        position += 8 * random.between(1, 50);
        index.append(offset, start, position, random.chance(0.2) ? 1_700_000_000_000 : 0);
        positions.set(offset++, position);
      }
      position += 8;
      files.push({ start, end: offset });
      if (random.chance(0.3)) {
        const gone = files.shift()!;
        index.dropFile(gone.start);
        dropped = gone.end;
      }
      for (let probe = 0; probe < 20; probe++) {
        const at = random.chance(0.1) ? offset + 3 : offset - 1 - random.below(200);
        const expected = at < dropped ? MISSING : positions.get(at) ?? MISSING;
        equal(index.position(at), expected, `seed ${seed} offset ${at}`);
      }
      equal(index.endOffsetOf(start), index.runs.length === 0 ? 0 : offset);
    }
    equal(index.firstOffset(offset), dropped);
  }
});

Deno.test("TopicIndex.dropFile() ignores a file that the topic has nothing in", () => {
  const index = new TopicIndex();
  index.append(0, 100, 164, 0);
  index.append(1, 300, 364, 0);
  index.dropFile(0);
  index.dropFile(300);
  equal(index.runs.length, 2);
  index.dropFile(100);
  index.dropFile(300);
  equal(index.runs.length, 0);
  index.append(2, 500, 564, 0);
  deepEqual([index.position(1), index.position(2)], [MISSING, 564]);
});

Deno.test("IndexRun keeps due times with the place of their message in the run", () => {
  const run = new IndexRun(0, 10);
  run.add(10, 64, 0);
  run.add(12, 128, 5000);
  deepEqual([...run.due], [2, 5000]);
  deepEqual([run.count, run.endOffset], [3, 13]);
});

Deno.test("TopicIndex.replaceRun() changes one file's run, or drops it, and its bytes", () => {
  const index = new TopicIndex();
  for (let offset = 0; offset < 30; offset++) {
    index.append(offset, Math.floor(offset / 10) * 1000, offset * 100 + 8, 0, 64);
  }
  equal(index.storedBytes, 30 * 64);
  equal(index.position(14), 1408);
  const left = new IndexRun(1000, 13);
  left.add(13, 1064, 0, 64);
  left.add(15, 1128, 0, 64);
  index.replaceRun(1000, left);
  equal(index.storedBytes, 22 * 64);
  deepEqual([12, 13, 14, 15, 16].map((offset) => index.position(offset)), [
    MISSING,
    1064,
    MISSING,
    1128,
    MISSING,
  ]);
  index.replaceRun(500, left);
  equal(index.runs.length, 3);
  index.replaceRun(2000, null);
  equal(index.runIn(2000), undefined);
  // What follows has a run of its own, without the offsets that are gone.
  index.append(30, 3000, 3064, 0, 64);
  deepEqual(index.runs.map((run) => [run.firstOffset, run.count]), [[0, 10], [13, 3], [30, 1]]);
  equal(index.position(25), MISSING);
  index.dropFile(0);
  equal(index.storedBytes, 3 * 64);
});
