import { deepEqual, equal, ok } from "node:assert/strict";
import { SeededRandom } from "@sluice/shared/testing";
import { decodeSidecar, encodeSidecar, type SidecarRun } from "./sidecar.ts";
import { IndexRun } from "./topic_index.ts";

function runOf(fileStart: number, firstOffset: number, count: number, random: SeededRandom) {
  const run = new IndexRun(fileStart, firstOffset);
  let position = fileStart;
  let offset = firstOffset;
  for (let index = 0; index < count; index++) {
    position += 8 * random.between(1, 100);
    run.add(offset, position, random.chance(0.2) ? 1_700_000_000_000 + random.u32() : 0);
    offset += random.chance(0.1) ? 3 : 1;
  }
  return run;
}

/** What a run says, without its spare room. */
function plain({ topic, run }: SidecarRun) {
  const { fileStart, firstOffset, count, due } = run;
  return { topic, fileStart, firstOffset, words: run.words.slice(0, count), due };
}

Deno.test("decodeSidecar() is null for bytes that do not add up", () => {
  const bytes = encodeSidecar([{ topic: 1, run: runOf(0, 4, 9, new SeededRandom(1)) }]);
  for (let length = 0; length < bytes.length; length++) {
    equal(decodeSidecar(bytes.slice(0, length), 0), null, `length ${length}`);
  }
  const longer = new Uint8Array(bytes.length + 1);
  longer.set(bytes);
  equal(decodeSidecar(longer, 0), null);
  for (const at of [0, 4, 12, 24]) {
    const changed = bytes.slice();
    new DataView(changed.buffer).setUint32(at, 0xfffffff0, true);
    equal(decodeSidecar(changed, 0), null, `word at ${at}`);
  }
});

Deno.test("decodeSidecar() gives the runs that encodeSidecar() was given", () => {
  for (let seed = 0; seed < 40; seed++) {
    const random = new SeededRandom(seed);
    const fileStart = random.below(2 ** 20) * 2 ** 26;
    const runs = Array.from({ length: random.below(6) }, () => ({
      topic: random.u32(),
      run: runOf(fileStart, random.below(2 ** 20) * 2 ** 27, random.below(80), random),
    }));
    const decoded = decodeSidecar(encodeSidecar(runs), fileStart);
    deepEqual(decoded?.map(plain), runs.map(plain));
  }
});

Deno.test("a sidecar has the bytes that docs/format/data_folder.md shows", () => {
  const run = new IndexRun(4096, 10);
  run.add(10, 4096 + 72, 0);
  run.add(12, 4096 + 200, 1_700_000_000_000);
  const bytes = encodeSidecar([{ topic: 7, run }]);
  const lines: string[] = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const line = bytes.subarray(at, at + 16);
    lines.push([...line].map((byte) => byte.toString(16).padStart(2, "0")).join(" "));
  }
  deepEqual(lines, [
    "01 00 00 00 01 00 00 00 07 00 00 00 03 00 00 00",
    "0a 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00",
    "48 00 00 00 ff ff ff ff c8 00 00 00 02 00 00 00",
    "00 00 00 00 00 68 e5 cf 8b 01 00 00",
  ]);
  const page = new URL("../../docs/format/data_folder.md", import.meta.url);
  const text = Deno.readTextFileSync(page);
  for (const line of lines) ok(text.includes(line), line);
});
