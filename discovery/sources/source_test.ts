import { deepStrictEqual as equal } from "node:assert/strict";
import { SimClock } from "@sluice/shared/testing";
import { at, HandSource } from "./fake_brokers_test.ts";
import { ENDPOINTS_MAX, SourceView } from "./source.ts";

function newView(staleAfterMs = 10_000) {
  const clock = new SimClock();
  let changes = 0;
  const reasons: string[] = [];
  const view = new SourceView(
    new HandSource("hand", staleAfterMs),
    clock,
    () => changes++,
    (reason) => reasons.push(reason),
  );
  const state = () => {
    const { state, reason } = view.status();
    return `${state}: ${reason}`;
  };
  return {
    clock,
    view,
    state,
    keys: () => [...view.endpoints.keys()],
    changes: () => changes,
    reasons,
  };
}

Deno.test("SourceView tells a source that was never heard of from one that failed at once", () => {
  const { view, state } = newView();
  equal(state(), "starting: nothing was heard yet");
  view.failed("refused");
  equal(state(), "failed: refused");
  view.listed([], "1");
  equal(state(), "current: null");
});

Deno.test("SourceView keeps what a failing source said last, and calls it stale", () => {
  const { view, state, keys, reasons } = newView();
  view.listed([at("a"), at("b")], "7");
  view.failed("refused");
  view.failed("refused");
  equal([state(), keys()], ["stale: refused", ["a:4151", "b:4151"]]);
  equal([view.status().version, view.status().failures, reasons], ["7", 2, ["refused"]]);
  view.listed([at("b")], "8");
  equal([state(), keys()], ["current: null", ["b:4151"]]);
});

Deno.test("SourceView calls a source stale that has been silent for too long, until it says that nothing changed", () => {
  const { view, state, clock, changes } = newView();
  view.listed([at("a")], "1");
  clock.advance(10_000);
  equal(state(), "current: null");
  clock.advance(1);
  equal(state(), "stale: nothing was heard for 10001 ms");
  view.changed({ added: [], removed: [], version: "2" });
  equal([state(), changes(), view.status().version], ["current: null", 1, "2"]);
});

Deno.test("SourceView takes a list and then changes, and tells only of those that are some", () => {
  const { view, keys, changes } = newView();
  view.listed([at("a"), at("a"), at("b")], "1");
  view.listed([at("b"), at("a")], "2");
  equal([keys(), changes()], [["a:4151", "b:4151"], 1]);
  view.changed({ added: [at("c")], removed: [at("a"), at("unknown")], version: "3" });
  equal([keys(), changes()], [["b:4151", "c:4151"], 2]);
  view.changed({ added: [at("c")], removed: [], version: "4" });
  equal(changes(), 2);
});

Deno.test("SourceView changes nothing when a source lists too much", () => {
  const { view, state, keys } = newView();
  view.listed([at("a")], "1");
  view.listed(Array.from({ length: ENDPOINTS_MAX + 1 }, (_, index) => at(`b${index}`)), "2");
  equal(keys(), ["a:4151"]);
  equal(state(), `stale: it lists ${ENDPOINTS_MAX + 1} brokers, more than ${ENDPOINTS_MAX}`);
});
