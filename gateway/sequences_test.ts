/** Numbers of publishes. */
import { deepStrictEqual as equal } from "node:assert/strict";
import { Sequences } from "./sequences.ts";

Deno.test("each topic is counted from 0, and no number is used twice when topics are forgotten", () => {
  const sequences = new Sequences(2);
  equal([0, 1, 2].map(() => sequences.next("a")), [0, 1, 2]);
  equal([0, 1].map(() => sequences.next("b")), [0, 1]);
  // One topic too many: all go on above the highest.
  equal(sequences.next("c"), 3);
  equal(sequences.next("a"), 3);
  equal(sequences.next("b"), 4);
  equal(sequences.next("a"), 4);
});
