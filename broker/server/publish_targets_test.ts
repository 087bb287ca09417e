import { deepStrictEqual as equal, notStrictEqual, strictEqual, throws } from "node:assert/strict";
import { utf8Bytes } from "@sluice/shared/protocol";
import { RefusedError } from "../broker.ts";
import type { Topic } from "../queue/mod.ts";
import { PublishTargets } from "./publish_targets.ts";
import { World } from "./world_test.ts";

function find(world: World, targets: PublishTargets, name: string): Topic {
  const bytes = utf8Bytes(`PUB ${name}\n`);
  return targets.find(world.broker, bytes, 4, 4 + name.length);
}

Deno.test("PublishTargets finds and makes topics by the bytes of their name", async () => {
  await World.use({}, (world) => {
    const targets = new PublishTargets();
    equal(targets.isEmpty, true);
    const a = find(world, targets, "a");
    strictEqual(find(world, targets, "a"), a);
    const ab = find(world, targets, "ab");
    notStrictEqual(ab, a);
    strictEqual(find(world, targets, "a"), a);
    strictEqual(world.broker.topics.get("ab"), ab);
    return Promise.resolve();
  });
});

Deno.test("PublishTargets counts messages by topic, over a topic's deletion too", async () => {
  await World.use({}, (world) => {
    const targets = new PublishTargets();
    const a = find(world, targets, "a");
    targets.count(2);
    find(world, targets, "b");
    targets.count(1);
    world.broker.administration.deleteTopic(a);
    const again = find(world, targets, "a");
    notStrictEqual(again, a);
    targets.count(5);
    equal([...targets.counts()], [{ topic: "a", count: 7 }, { topic: "b", count: 1 }]);
    return Promise.resolve();
  });
});

Deno.test("PublishTargets passes on why a topic cannot be made", async () => {
  await World.use({ broker: { topicsMax: 1 } }, (world) => {
    const targets = new PublishTargets();
    find(world, targets, "a");
    throws(() => find(world, targets, "b"), RefusedError);
    return Promise.resolve();
  });
});
