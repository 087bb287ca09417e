import { deepStrictEqual as equal } from "node:assert/strict";
import type { Figure } from "./peer_scenarios.ts";
import { peersTable, Results } from "./peers_table.ts";

function resultsOf(figures: Record<string, Record<string, number[]>>): Results {
  const results = new Results();
  for (const [name, targets] of Object.entries(figures)) {
    for (const [target, taken] of Object.entries(targets)) {
      for (const figure of taken) results.add(target, name, figure);
    }
  }
  return results;
}

function lastCells(figure: Figure, results: Results): string[] {
  const table = peersTable([figure], ["sluice", "nsqd disk"], results);
  return table.split("\n").at(-1)!.split("|").map((cell) => cell.trim()).slice(1, -1);
}

Deno.test("peersTable() judges a goal by the median ratio of a round, and more is better", () => {
  const figure = {
    name: "PUB",
    unit: "messages/s",
    goals: [{ target: "nsqd disk", ratioMin: 2 }],
  } as const;
  const met = resultsOf({ PUB: { sluice: [20, 90, 30], "nsqd disk": [10, 30, 20] } });
  equal(lastCells(figure, met), [
    "PUB, messages/s",
    "30.0",
    "20.0",
    "2x nsqd disk",
    "2.00x (1.50-3.00) met",
  ]);
  const missed = resultsOf({ PUB: { sluice: [19], "nsqd disk": [10] } });
  equal(lastCells(figure, missed).at(-1), "1.90x (1.90-1.90) **not met**");
});

Deno.test("peersTable() takes less for better where the figure is a time", () => {
  const figure = {
    name: "wait",
    unit: "ms",
    goals: [{ target: "nsqd disk", ratioMin: 2 }, { max: 4 }],
  } as const;
  const results = resultsOf({ wait: { sluice: [5], "nsqd disk": [20] } });
  equal(lastCells(figure, results).slice(-2), [
    "2x nsqd disk; at most 4 ms",
    "4.00x (4.00-4.00) met; **not met**",
  ]);
});

Deno.test("peersTable() compares with another figure of ours, and leaves out what was not measured", () => {
  const figure = {
    name: "many",
    unit: "messages/s",
    goals: [{ figure: "one", ratioMin: 0.9 }, { target: "gone", ratioMin: 1 }],
  } as const;
  const results = resultsOf({ many: { sluice: [8] }, one: { sluice: [10] } });
  equal(lastCells(figure, results), [
    "many, messages/s",
    "8.0",
    "-",
    '0.9x ours of "one"',
    "0.80x (0.80-0.80) **not met**",
  ]);
});
