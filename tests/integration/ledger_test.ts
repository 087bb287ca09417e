/** A judge that lets things pass is none. */
import { deepEqual, equal } from "node:assert/strict";
import { Ledger, nameOf } from "./ledger.ts";

function newBody(ledger: Ledger, deferMs = 0): string {
  const [body = ""] = ledger.newBodies("t", 1, 3, deferMs);
  return body;
}

function kinds(ledger: Ledger): string[] {
  return [...ledger.counts.keys()];
}

Deno.test("deliver() takes what was sent, again and again, until it is finished for sure", () => {
  const ledger = new Ledger();
  const body = newBody(ledger);
  for (const attempts of [1, 2]) ledger.deliver({ id: "a", attempts, body }, "t/c");
  ledger.channel("t/other").finishedDurably.add(nameOf(body));
  ledger.deliver({ id: "a", attempts: 3, body }, "t/c");
  deepEqual(kinds(ledger), []);
  equal(ledger.delivered, 3);
  ledger.channel("t/c").finishedDurably.add(nameOf(body));
  ledger.deliver({ id: "a", attempts: 4, body }, "t/c");
  deepEqual(kinds(ledger), ["resurrected"]);
});

Deno.test("deliver() finds a body that was never sent or is cut", () => {
  const ledger = new Ledger();
  ledger.deliver({ id: "a", attempts: 1, body: "t 7 0 " }, "t/c");
  ledger.deliver({ id: "b", attempts: 1, body: newBody(ledger).slice(0, -1) }, "t/c");
  equal(ledger.counts.get("unknown body"), 2);
});

Deno.test("deliver() finds an id of two bodies, and a body of two ids", () => {
  const ledger = new Ledger();
  const [one, other] = [newBody(ledger), newBody(ledger)];
  ledger.deliver({ id: "a", attempts: 1, body: one }, "t/c");
  ledger.deliver({ id: "a", attempts: 1, body: other }, "t/c");
  equal(ledger.counts.get("id repeated"), 1);
  ledger.deliver({ id: "b", attempts: 1, body: one }, "t/c");
  equal(ledger.counts.get("id repeated"), 2);
});

Deno.test("deliver() finds what comes before it is due, deferred or requeued", () => {
  const ledger = new Ledger();
  const [deferred, requeued] = [newBody(ledger, 60_000), newBody(ledger)];
  ledger.deliver({ id: "a", attempts: 1, body: deferred }, "t/c");
  equal(ledger.counts.get("early"), 1);
  ledger.channel("t/c").requeuedUntil.set(nameOf(requeued), Date.now() + 60_000);
  ledger.deliver({ id: "b", attempts: 2, body: requeued }, "t/other");
  equal(ledger.counts.get("early"), 1);
  ledger.deliver({ id: "b", attempts: 2, body: requeued }, "t/c");
  equal(ledger.counts.get("early"), 2);
});

Deno.test("missing() names what was confirmed and never finished, unless it was given up", () => {
  const ledger = new Ledger();
  const [lost, done] = [newBody(ledger), newBody(ledger)];
  ledger.confirm([lost, done]);
  ledger.channel("t/c").finished.add(nameOf(done));
  deepEqual(ledger.missing("t", "c"), [nameOf(lost)]);
  deepEqual(kinds(ledger), ["missing"]);
  ledger.giveUp("t");
  deepEqual(ledger.missing("t", "c"), []);
});
