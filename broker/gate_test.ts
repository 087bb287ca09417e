import { deepEqual } from "node:assert/strict";
import { settle } from "@sluice/shared/testing";
import { Gate } from "./gate.ts";

Deno.test("enter() lets so many in at a time and the others in the order they came", async () => {
  const gate = new Gate(2);
  const inside: string[] = [];
  for (const name of ["a", "b", "c", "d"]) void gate.enter().then(() => inside.push(name));
  await settle();
  deepEqual(inside, ["a", "b"]);
  gate.leave();
  void gate.enter().then(() => inside.push("e"));
  await settle();
  deepEqual(inside, ["a", "b", "c"]);
  gate.leave();
  gate.leave();
  await settle();
  deepEqual(inside, ["a", "b", "c", "d", "e"]);
  gate.leave();
  gate.leave();
  void gate.enter().then(() => inside.push("f"));
  void gate.enter().then(() => inside.push("g"));
  void gate.enter().then(() => inside.push("h"));
  await settle();
  deepEqual(inside, ["a", "b", "c", "d", "e", "f", "g"]);
});
