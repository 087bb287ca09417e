import assert from "node:assert/strict";
import { type Budget, Budgets } from "./budgets.ts";

function budget(name: string, change: Partial<Budget> = {}): Budget {
  return {
    name,
    unit: "bytes",
    atLimit: "refuse",
    doc: "Something.",
    used: () => 3,
    limit: () => 10,
    refused: () => 1,
    ...change,
  };
}

Deno.test("Budgets are reported by name, as they are at that moment", () => {
  let used = 3;
  const budgets = new Budgets([budget("publish", { used: () => used })]);
  budgets.add(budget("connections", { unit: "count", limit: () => null }));
  used = 4;
  assert.deepEqual(budgets.report(), [
    { name: "connections", unit: "count", atLimit: "refuse", used: 3, limit: null, refused: 1 },
    { name: "publish", unit: "bytes", atLimit: "refuse", used: 4, limit: 10, refused: 1 },
  ]);
});

Deno.test("Budgets.add() takes a name once, and only words", () => {
  const budgets = new Budgets([budget("publish")]);
  assert.throws(() => budgets.add(budget("publish")), /once/);
  assert.throws(() => budgets.add(budget("Publish bytes")), /words/);
});
