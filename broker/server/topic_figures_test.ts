/** What a scrape tells of topics and channels. */
import assert from "node:assert/strict";
import { encodeSub } from "@sluice/shared/protocol";
import { Slices } from "@sluice/shared/runtime";
import { TopicFigures } from "./topic_figures.ts";
import { pub, World } from "./world_test.ts";

async function read(figures: TopicFigures): Promise<TopicFigures> {
  await figures.read(new Slices(null));
  return figures;
}

function topicNames({ topics }: TopicFigures): string[] {
  return topics.map(({ labels }) => labels.topic);
}

function channelNames({ channels }: TopicFigures): string[] {
  return channels.map(({ labels }) => `${labels.topic}/${labels.channel}`);
}

Deno.test("the first topics by name are told of, ephemeral ones last, and the others are counted", async () => {
  await World.use({}, async ({ broker }) => {
    for (const name of ["c", "a#ephemeral", "d", "b"]) broker.ensureTopic(name);
    const figures = new TopicFigures(broker, 3);
    assert.deepEqual(topicNames(await read(figures)), ["b", "c", "d"]);
    assert.equal(figures.topicsOmitted, 1);
    broker.administration.deleteTopic(broker.ensureTopic("c"));
    assert.deepEqual(topicNames(await read(figures)), ["a#ephemeral", "b", "d"]);
    assert.equal(figures.topicsOmitted, 0);
    assert.deepEqual(topicNames(await read(new TopicFigures(broker, 0))), []);
  });
});

Deno.test("four channels are told of for each topic that may be, by name, and the others are counted", async () => {
  await World.use({}, async ({ broker }) => {
    const [a, b] = [broker.ensureTopic("a"), broker.ensureTopic("b")];
    for (const name of ["z", "x", "y"]) broker.ensureChannel(a, name);
    for (const name of ["v", "w"]) broker.ensureChannel(b, name);
    const figures = await read(new TopicFigures(broker, 1));
    assert.deepEqual(channelNames(figures), ["a/x", "a/y", "a/z"]);
    assert.equal(figures.channelsOmitted, 2);
    for (const name of ["m", "n"]) broker.ensureChannel(a, name);
    assert.deepEqual(channelNames(await read(figures)), ["a/m", "a/n", "a/x", "a/y"]);
    assert.equal(figures.channelsOmitted, 3);
  });
});

Deno.test("totals are over all topics, told of or not, and never go back when a channel goes", async () => {
  await World.use({}, async (world) => {
    const { broker } = world;
    const figures = new TopicFigures(broker, 0);
    const channel = broker.ensureChannel(broker.ensureTopic("t"), "c");
    const client = await world.client(encodeSub("t", "c"), "RDY 2\n", pub("t", "1"), pub("t", "2"));
    await client.send(pub("t", "3"));
    let { totals } = await read(figures);
    assert.equal(totals.channels, 1);
    assert.equal(totals.consumers, 1);
    assert.equal(totals.inFlight, 2);
    assert.equal(totals.depth, 1);
    assert.equal(totals.delivered, 2);
    broker.administration.deleteChannel(broker.ensureTopic("t"), channel);
    ({ totals } = await read(figures));
    assert.equal(totals.channels, 0);
    assert.equal(totals.depth, 0);
    assert.equal(totals.delivered, 2);
  });
});

Deno.test("the age of a channel's oldest message counts what is in flight, and ends with its finish", async () => {
  await World.use({}, async (world) => {
    const { broker, clock } = world;
    const figures = new TopicFigures(broker, 10);
    broker.ensureChannel(broker.ensureTopic("t"), "c");
    await world.client(pub("t", "1"));
    await clock.advance(5000);
    const client = await world.client(encodeSub("t", "c"), "RDY 1\n");
    assert.equal((await read(figures)).channels[0]?.oldestAgeSeconds, 5);
    assert.equal(figures.totals.oldestAgeSeconds, 5);
    await client.send(client.ids.map((id) => `FIN ${id}\n`).join(""));
    assert.equal((await read(figures)).channels[0]?.oldestAgeSeconds, 0);
  });
});
