/** The offline tools on folders with large messages. */
import { TopicState, WrittenBody } from "@sluice/broker/storage";
import { SimDisk } from "@sluice/shared/testing";
import assert from "node:assert/strict";
import {
  bodyOf,
  createChannel,
  createTopic,
  ctl,
  journal,
  openStorage,
  PATH,
  publish,
  publishLarge,
} from "./folder.ts";

const PART_BYTES = 4096;

/** Text that differs in every part. */
function largeBody(bytes: number): string {
  let text = "";
  for (let at = 0; text.length < bytes; at++) text += `${at},`;
  return text.slice(0, bytes);
}

interface Built {
  readonly disk: SimDisk;
  readonly texts: readonly string[];
  /** Positions of the parts of the first large message. */
  readonly parts: readonly number[];
}

/** Topic `t`: small, large over several files, small, large and binary, small. */
async function build(): Promise<Built> {
  const disk = new SimDisk();
  const storage = await openStorage(disk);
  const topic = createTopic(storage, "t");
  createChannel(storage, topic, "c");
  const encoder = new TextEncoder();
  const texts = ["first", largeBody(50_000), "second", "third"];
  publish(storage, topic, encoder.encode(texts[0]));
  const parts = await publishLarge(storage, topic, encoder.encode(texts[1]));
  publish(storage, topic, encoder.encode(texts[2]));
  await publishLarge(storage, topic, new Uint8Array(9000).fill(255));
  publish(storage, topic, encoder.encode(texts[3]));
  await storage.close();
  return { disk, texts, parts };
}

interface Line {
  readonly offset: number;
  readonly body?: string;
  readonly body_base64?: string;
}

function linesOf(out: string): Line[] {
  return out.trimEnd().split("\n").map((line) => JSON.parse(line) as Line);
}

/** Flips a bit of the part at a position, after its header. */
function damage(disk: SimDisk, position: number): void {
  const path = journal(disk, ".log").findLast((name) => startOf(name) <= position)!;
  disk.flipBit(path, position - startOf(path) + 100, 1);
}

function startOf(path: string): number {
  return Number(/(\d{16})\.log$/.exec(path)![1]);
}

Deno.test("data dump writes large messages whole and in their place", async () => {
  const { disk, texts } = await build();
  const { code, out, err } = await ctl(disk, "data", "dump", PATH, "--topic=t");
  assert.deepEqual([code, err], [0, ""]);
  const lines = linesOf(out);
  assert.deepEqual(lines.map(({ offset }) => offset), [0, 1, 2, 3, 4]);
  assert.deepEqual([0, 1, 2, 4].map((index) => lines[index]!.body), texts);
  assert.equal(lines[3]!.body_base64, new Uint8Array(9000).fill(255).toBase64());
  const limited = await ctl(disk, "data", "dump", PATH, "--topic=t", "--from=1", "--limit=2");
  assert.deepEqual(linesOf(limited.out).map(({ offset }) => offset), [1, 2]);
  const raw = await ctl(disk, "data", "dump", PATH, "--topic=t", "--limit=2", "--format=raw");
  assert.equal(raw.out, `${texts[0]}\n${texts[1]}\n`);
});

Deno.test("data dump leaves out a large message with a damaged part, and says so", async () => {
  const { disk, parts } = await build();
  damage(disk, parts[2]!);
  const { code, out, err } = await ctl(disk, "data", "dump", PATH, "--topic=t");
  assert.equal(code, 1);
  assert.deepEqual(linesOf(out).map(({ offset }) => offset), [0, 2, 3, 4]);
  // The place in the log, and the message that lacks it.
  assert.match(err, /^2 damaged places were passed over/);
});

Deno.test("data inspect and verify know large messages, and find nothing wrong with good ones", async () => {
  const { disk } = await build();
  const { code, out } = await ctl(disk, "data", "verify", PATH);
  assert.equal(code, 0, out);
  const inspected = await ctl(disk, "data", "inspect", PATH);
  assert.equal(inspected.code, 0);
  assert.match(inspected.out, /^needs reader level 3, writer level 3$/m);
});

Deno.test("data verify names an owed message that lacks a part; repair leaves the folder in service", async () => {
  const { disk, parts } = await build();
  damage(disk, parts[1]!);
  const { code, out } = await ctl(disk, "data", "verify", PATH);
  assert.equal(code, 1);
  assert.match(
    out,
    new RegExp(`offset 1 of topic t is owed, and its part at position ${parts[1]}`),
  );
  assert.equal((await ctl(disk, "data", "repair", PATH, "--yes")).code, 0);
  const again = await ctl(disk, "data", "verify", PATH);
  assert.equal(again.code, 0, again.out);
  const storage = await openStorage(disk);
  const topic = storage.state.topics.get("t");
  assert.ok(topic instanceof TopicState);
  assert.equal(topic.tail, 5);
  publish(storage, topic, bodyOf("later"));
  await storage.close();
});

Deno.test("parts that no message names are nobody's: verify and dump pass over them", async () => {
  const disk = new SimDisk();
  const storage = await openStorage(disk);
  const topic = createTopic(storage, "t");
  publish(storage, topic, bodyOf("only"));
  const upload = new WrittenBody();
  while (!storage.hasPartRoom(PART_BYTES, 1)) await storage.room();
  storage.large.write(upload, new Uint8Array(PART_BYTES), 0, PART_BYTES);
  publish(storage, topic, bodyOf("here"));
  await storage.drain();
  await storage.abandon();
  assert.equal((await ctl(disk, "data", "verify", PATH)).code, 0);
  const { code, out } = await ctl(disk, "data", "dump", PATH, "--topic=t");
  assert.deepEqual([code, linesOf(out).length], [0, 2]);
});
