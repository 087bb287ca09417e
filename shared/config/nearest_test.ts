import assert from "node:assert/strict";
import { editDistance, nearestName } from "./nearest.ts";

Deno.test("nearestName() names nothing when all known names are far away or the text is huge", () => {
  assert.equal(nearestName("zzzz", ["data-path", "log-level"]), undefined);
  assert.equal(nearestName("anything", []), undefined);
  assert.equal(nearestName("x".repeat(101), ["x".repeat(101)]), undefined);
});

Deno.test("nearestName() names the fewest edits, the first of equals, whatever the case", () => {
  const known = ["data-path", "msg-timeout", "max-msg-timeout", "log-level"];
  assert.equal(nearestName("msg-timout", known), "msg-timeout");
  assert.equal(nearestName("Data_Path", known), "data-path");
  assert.equal(nearestName("lgo-level", known), "log-level");
  assert.equal(nearestName("ab", ["ax", "ay"]), "ax");
});

Deno.test("editDistance() counts inserts, deletes, replacements and swaps of neighbours", () => {
  const rows: [string, string, number][] = [
    ["", "", 0],
    ["", "abc", 3],
    ["abc", "", 3],
    ["abc", "abc", 0],
    ["abc", "acb", 1],
    ["kitten", "sitting", 3],
    ["ab", "ba", 1],
    ["abcd", "badc", 2],
  ];
  for (const [from, to, edits] of rows) {
    assert.equal(editDistance(from, to), edits, `${from} ${to}`);
  }
});
