import assert from "node:assert/strict";
import { Slices } from "@sluice/shared/runtime";
import { TopicOrder } from "../queue/mod.ts";
import { World } from "./world_test.ts";

function names(topics: readonly { state: { name: string } }[]): string[] {
  return topics.map(({ state }) => state.name);
}

Deno.test("TopicOrder lists topics by name, with those that came and without those that went", async () => {
  await World.use({}, async ({ broker }) => {
    const order = new TopicOrder(broker.topics);
    const list = async () => names(await order.list(new Slices(null)));
    assert.deepEqual(await list(), []);
    for (const name of ["b", "d", "a"]) broker.ensureTopic(name);
    assert.deepEqual(await list(), ["a", "b", "d"]);
    broker.administration.deleteTopic(broker.ensureTopic("b"));
    for (const name of ["c", "e"]) broker.ensureTopic(name);
    assert.deepEqual(await list(), ["a", "c", "d", "e"]);
    // One that is made anew is another topic of the same name.
    broker.administration.deleteTopic(broker.ensureTopic("c"));
    broker.ensureTopic("c");
    assert.deepEqual(await list(), ["a", "c", "d", "e"]);
    broker.administration.deleteTopic(broker.ensureTopic("e"));
    assert.deepEqual(await list(), ["a", "c", "d"]);
  });
});

Deno.test("TopicOrder.list() has what there was when it was asked for, also when asked twice at a time", async () => {
  await World.use({}, async ({ broker }) => {
    const order = new TopicOrder(broker.topics);
    broker.ensureTopic("b");
    const first = order.list(new Slices(null));
    broker.ensureTopic("a");
    const second = order.list(new Slices(null));
    assert.ok(names(await first).includes("b"));
    assert.deepEqual(names(await second), ["a", "b"]);
  });
});
