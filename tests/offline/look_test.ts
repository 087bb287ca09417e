import { SystemDisk } from "@sluice/shared/runtime/system";
import { SimDisk } from "@sluice/shared/testing";
import assert from "node:assert/strict";
import {
  bodiesOf,
  buildFolder,
  createChannel,
  createTopic,
  ctl,
  ctlIn,
  journal,
  openStorage,
  PATH,
  publish,
} from "./folder.ts";

const DUE_MS = 1_800_000_000_000;

function dump(disk: SimDisk, ...options: string[]): ReturnType<typeof ctl> {
  return ctl(disk, "data", "dump", PATH, ...options);
}

/** Topic `mixed`: plain, deferred, binary and empty messages, of which `c` owes one again. */
async function buildMixed(): Promise<SimDisk> {
  const disk = new SimDisk();
  const storage = await openStorage(disk);
  const topic = createTopic(storage, "mixed");
  const channel = createChannel(storage, topic, "c");
  const text = new TextEncoder();
  publish(storage, topic, text.encode("\ufeffplain \u00fc\n"));
  publish(storage, topic, text.encode("later"), DUE_MS);
  publish(storage, topic, new Uint8Array([255, 0, 1]));
  publish(storage, topic, new Uint8Array());
  storage.requeue(channel, 2, 5, DUE_MS + 1);
  storage.finish(channel, 3);
  await storage.close();
  return disk;
}

Deno.test("data dump writes one JSON object a message, whatever is in it", async () => {
  const disk = await buildMixed();
  const { code, out, err } = await dump(disk, "--topic=mixed", "--channel=c", "--include-finished");
  assert.deepEqual([code, err], [0, ""]);
  const common = { topic: "mixed", timestamp: "2023-11-14T22:13:20.000000001Z", finished: false };
  assert.deepEqual(out.trimEnd().split("\n").map((line) => JSON.parse(line) as unknown), [
    {
      ...common,
      id: "0003000000000001",
      offset: 0,
      attempts: 0,
      due: null,
      body: "\ufeffplain \u00fc\n",
    },
    {
      ...common,
      id: "0003000000000002",
      offset: 1,
      attempts: 0,
      due: "2027-01-15T08:00:00.000Z",
      body: "later",
    },
    {
      ...common,
      id: "0003000000000003",
      offset: 2,
      attempts: 5,
      due: "2027-01-15T08:00:00.001Z",
      body_base64: "/wAB",
    },
    {
      ...common,
      id: "0003000000000004",
      offset: 3,
      attempts: 0,
      due: null,
      body: "",
      finished: true,
    },
  ]);
});

Deno.test("data dump writes raw bodies with a line break after each", async () => {
  const { out } = await dump(await buildMixed(), "--topic=mixed", "--format=raw", "--from=1");
  assert.equal(out, "later\n\ufffd\0\x01\n");
});

Deno.test("data dump gives what a channel, any channel, or the first one to come is owed", async () => {
  const disk = await buildFolder();
  const count = async (...options: string[]) => bodiesOf((await dump(disk, ...options)).out).length;
  assert.equal(await count("--topic=orders", "--channel=fast"), 250);
  assert.equal(await count("--topic=orders", "--channel=fast", "--include-finished"), 300);
  assert.equal(await count("--topic=orders", "--channel=slow"), 300);
  assert.equal(await count("--topic=orders"), 300);
  assert.equal(await count("--topic=kept"), 2);
  const some = await dump(disk, "--topic=orders", "--from=199", "--limit=3");
  assert.deepEqual(bodiesOf(some.out), ["message 199", "message 200", "message 201"]);
  assert.equal(await count("--topic=orders", "--limit=0"), 0);
  assert.equal(disk.openFiles, 0);
});

Deno.test("data dump refuses a topic or channel that is not there, and options that make no sense", async () => {
  const disk = await buildFolder();
  for (
    const [options, reason] of [
      [["--topic=none"], /There is no topic "none"/],
      [["--topic=orders", "--channel=none"], /Topic "orders" has no channel "none"/],
      [[], /--topic is missing/],
      [["--topic=orders", "--format=xml"], /--format takes ndjson or raw/],
      [["--topic=orders", "--from=-1"], /--from takes an integer/],
    ] as const
  ) {
    const { code, out, err } = await dump(disk, ...options);
    assert.deepEqual([code, out], [2, ""]);
    assert.match(err, reason);
  }
});

Deno.test("data dump leaves out what is damaged and says so", async () => {
  const disk = await buildFolder();
  const [first] = journal(disk, ".log");
  const at = new TextDecoder("latin1").decode(disk.bytes(first!)).indexOf("message 17.");
  disk.flipBit(first!, at, 0);
  const { code, out, err } = await dump(disk, "--topic=orders");
  assert.equal(code, 1);
  assert.equal(bodiesOf(out).length, 299);
  assert.match(err, /^1 damaged places were passed over/);
  assert.equal((await dump(disk, "--topic=orders", "--quiet")).err, "");
});

Deno.test("data inspect shows files, checkpoints, topics, channels and depths", async () => {
  const disk = await buildFolder();
  const { code, out } = await ctl(disk, "data", "inspect", PATH);
  assert.equal(code, 0);
  for (
    const line of [
      /^\/data: node 3, epoch 1, message sequences below 16777217 reserved$/m,
      /^log: 3 files, /m,
      /^checkpoints: 53120, 47720$/m,
      /^ {2}orders {2}300 published$/m,
      /^ {4}fast {2}depth 250$/m,
      /^ {4}slow {2}depth 300$/m,
      /^ {2}kept {2}2 published, no channel, 2 kept for the first$/m,
      /^damage: none met$/m,
    ]
  ) assert.match(out, line);
});

Deno.test("data inspect gives the same to programs", async () => {
  const disk = await buildMixed();
  const { out } = await ctl(disk, "data", "inspect", PATH, "--json");
  const { node_id, topics, damage } = JSON.parse(out) as Record<string, unknown>;
  assert.deepEqual({ node_id, topics, damage }, {
    node_id: 3,
    topics: [{
      name: "mixed",
      paused: false,
      messages: 4,
      depth: 0,
      channels: [{ name: "c", paused: false, start: 0, depth: 3, requeued: 1 }],
    }],
    damage: [],
  });
});

Deno.test("data inspect shows what it can of a folder that a broker would refuse", async () => {
  const disk = await buildFolder();
  await disk.remove(journal(disk, ".log")[1]!);
  await disk.remove(`${PATH}/broker.meta`);
  const { code, out } = await ctl(disk, "data", "inspect", PATH);
  assert.equal(code, 1);
  assert.match(out, /^log: 2 files, /m);
  assert.match(out, /topics: not known/);
  assert.match(out, /broker\.meta: it is missing/);
  assert.match(out, /21072 bytes are missing/);
});

Deno.test("data inspect tells of a torn group and of the checkpoint that was used", async () => {
  const disk = await buildFolder({ crashed: true });
  const last = journal(disk, ".log").at(-1)!;
  const at = new TextDecoder("latin1").decode(disk.bytes(last)).indexOf("message 299.");
  disk.flipBit(last, at, 0);
  disk.flipBit(journal(disk, ".ckp").at(-1)!, 50, 0);
  const { out } = await ctl(disk, "data", "inspect", PATH);
  assert.match(out, /^torn group at the end: \d+ bytes/m);
  assert.match(out, /^checkpoints: 47720, 26792 \(used: 26792\)$/m);
  assert.match(out, /^ {2}orders {2}290 published$/m);
});

Deno.test("data commands work on a real disk, where a lock is a lock", async () => {
  const path = await Deno.makeTempDir();
  try {
    const sim = await buildFolder();
    await Deno.mkdir(`${path}/journal`);
    for (const name of sim.files()) {
      await Deno.writeFile(path + name.slice(PATH.length), sim.bytes(name));
    }
    const disk = new SystemDisk();
    const lock = await disk.lock(`${path}/LOCK`);
    assert.equal((await ctlIn({ disk }, "data", "verify", path)).code, 2);
    assert.equal((await ctlIn({ disk }, "data", "verify", path, "--read-only")).code, 0);
    lock.release();
    const log = `${path}/journal/0000000000000000.log`;
    const bytes = await Deno.readFile(log);
    bytes.fill(0, 2000, 2100);
    await Deno.writeFile(log, bytes);
    assert.equal((await ctlIn({ disk }, "data", "verify", path)).code, 1);
    const repaired = await ctlIn({ disk }, "data", "repair", path, "--yes");
    assert.equal(repaired.code, 0, repaired.out + repaired.err);
    const { out } = await ctlIn({ disk }, "data", "dump", path, "--topic=orders");
    assert.ok(bodiesOf(out).length >= 290);
  } finally {
    await Deno.remove(path, { recursive: true });
  }
});
