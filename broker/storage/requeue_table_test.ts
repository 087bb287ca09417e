import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { SeededRandom } from "@sluice/shared/testing";
import { PAGE_OFFSETS } from "./finished_page.ts";
import { type Owed, RequeueTable } from "./requeue_table.ts";

function sorted(entries: Iterable<[number, Owed]>): [number, Owed][] {
  return [...entries].sort(([a], [b]) => a - b);
}

Deno.test("a table does what a map would, over random sets, deletes and ranges", () => {
  for (let seed = 0; seed < 30; seed++) {
    const random = new SeededRandom(seed);
    const table = new RequeueTable();
    const model = new Map<number, Owed>();
    const spread = random.pick([40, 5000, 3 * PAGE_OFFSETS]);
    const base = random.pick([0, PAGE_OFFSETS - 20, 2 ** 48 - 4 * PAGE_OFFSETS]);
    for (let step = 0; step < 3000; step++) {
      const offset = base + random.between(0, spread);
      if (random.chance(0.002)) {
        const to = offset + random.between(0, spread);
        table.deleteRange(offset, to);
        for (const known of model.keys()) if (known >= offset && known < to) model.delete(known);
      } else if (random.chance(0.4)) {
        equal(table.delete(offset), model.delete(offset), `seed ${seed}`);
      } else {
        const owed = { attempts: random.between(1, 65_535), dueMs: random.between(0, 2 ** 41) };
        table.set(offset, owed.attempts, owed.dueMs);
        model.set(offset, owed);
      }
      equal([table.size, table.has(offset)], [model.size, model.has(offset)], `seed ${seed}`);
      equal(table.get(offset), model.get(offset), `seed ${seed}`);
    }
    equal(sorted(table), sorted(model), `seed ${seed}`);
  }
});

Deno.test("a full page holds every one of its offsets and gives all memory back", () => {
  const table = new RequeueTable();
  for (let offset = 0; offset < PAGE_OFFSETS; offset++) table.set(offset, 1, offset);
  equal(table.size, PAGE_OFFSETS);
  for (let offset = 0; offset < PAGE_OFFSETS; offset++) {
    equal(table.get(offset), { attempts: 1, dueMs: offset });
  }
  ok(table.heldBytes <= 28 * PAGE_OFFSETS + 14, `${table.heldBytes} bytes`);
  for (let offset = 0; offset < PAGE_OFFSETS; offset++) ok(table.delete(offset));
  equal([table.size, table.heldBytes, [...table]], [0, 0, []]);
});

Deno.test("whoever walks a table sees all that stays, however it changes meanwhile", () => {
  for (let seed = 0; seed < 50; seed++) {
    const random = new SeededRandom(seed);
    const table = new RequeueTable();
    const offsets = Array.from({ length: 400 }, () => random.between(0, 4 * PAGE_OFFSETS));
    const staying = new Set(offsets.filter(() => random.chance(0.5)));
    for (const offset of offsets) table.set(offset, 1, offset);
    const seen = new Set<number>();
    for (const [offset, { dueMs }] of table) {
      equal(dueMs, offset);
      seen.add(offset);
      const other = random.pick(offsets);
      if (!staying.has(other)) table.delete(other);
      const more = random.between(0, 4 * PAGE_OFFSETS);
      table.set(more, 2, more);
    }
    for (const offset of staying) ok(seen.has(offset), `seed ${seed}: ${offset}`);
  }
});

Deno.test("deleteRange() of all forgets at the cost of pages, not of entries", () => {
  const table = new RequeueTable();
  const pages = 30;
  for (let offset = 0; offset < pages * PAGE_OFFSETS; offset += 3) table.set(offset, 1, 0);
  ok(table.size > 300_000);
  table.deleteRange(0, 2 ** 48);
  equal([table.size, table.heldBytes], [0, 0]);
});
