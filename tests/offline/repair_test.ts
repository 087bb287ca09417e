import { SeededRandom, SimDisk } from "@sluice/shared/testing";
import assert from "node:assert/strict";
import {
  bodiesOf,
  bodyOf,
  buildFolder,
  contentOf,
  createTopic,
  ctl,
  journal,
  openStorage,
  overwrite,
  PATH,
  publish,
  publishMany,
} from "./folder.ts";

/** Offsets from `from` up to `to`, without `to`. */
function range(from: number, to: number): number[] {
  return Array.from({ length: to - from }, (_, index) => from + index);
}

/** Where a text first stands in a file. */
function find(disk: SimDisk, path: string, text: string): number {
  return new TextDecoder("latin1").decode(disk.bytes(path)).indexOf(text);
}

/** The messages of `orders` that are in the log, finished or not. */
async function ordersOf(disk: SimDisk): Promise<string[]> {
  const { code, out, err } = await ctl(
    disk,
    ...["data", "dump", PATH, "--topic", "orders", "--include-finished"],
  );
  assert.equal(code, 0, err);
  return bodiesOf(out);
}

/** Verify is clean, a storage opens without damage, takes another message and leaves a clean folder. */
async function assertSound(disk: SimDisk, lost: readonly number[]): Promise<void> {
  const verified = await ctl(disk, "data", "verify", PATH);
  assert.equal(verified.code, 0, verified.out);
  const survivors = range(0, 300).filter((offset) => !lost.includes(offset))
    .map((offset) => `message ${offset}`);
  assert.deepEqual(await ordersOf(disk), survivors);
  const storage = await openStorage(disk);
  assert.deepEqual(storage.opening.damage, []);
  const orders = storage.state.topics.get("orders");
  assert.ok(orders !== undefined);
  assert.deepEqual([...orders.channels.keys()], ["fast", "slow"]);
  publish(storage, orders, bodyOf("another"));
  await storage.drain();
  await storage.close();
  const again = await ctl(disk, "data", "verify", PATH);
  assert.equal(again.code, 0, again.out);
  assert.deepEqual(await ordersOf(disk), [...survivors, "another"]);
  assert.equal(disk.openFiles, 0);
}

interface Case {
  readonly name: string;
  readonly crashed?: boolean;
  damage(disk: SimDisk): void | Promise<void>;
  readonly options?: readonly string[];
  readonly lost: readonly number[];
  /** What the printed plan says. */
  readonly says: RegExp;
}

const CASES: readonly Case[] = [
  {
    name: "a damaged message",
    damage(disk) {
      const [first] = journal(disk, ".log");
      disk.flipBit(first!, find(disk, first!, "message 17."), 3);
    },
    lost: [17],
    says: /messages of topic orders: offsets 17 to 17/,
  },
  {
    name: "two damaged messages in one block and one in another",
    damage(disk) {
      const [first] = journal(disk, ".log");
      for (const text of ["message 12.", "message 17.", "message 31."]) {
        disk.flipBit(first!, find(disk, first!, text), 0);
      }
    },
    lost: [12, 17, 31],
    says: /take out 3 damaged places/,
  },
  {
    name: "a record whose length is damaged, so that the rest of its block is lost",
    damage(disk) {
      const [first] = journal(disk, ".log");
      // The record begins 46 bytes before the body, its length there.
      overwrite(disk, first!, find(disk, first!, "message 15.") - 46, new Uint8Array([255, 255]));
    },
    lost: range(15, 20),
    says: /a record is longer than its block/,
  },
  {
    name: "a damaged block header",
    damage(disk) {
      const [first] = journal(disk, ".log");
      const block = find(disk, first!, "message 20.") - 46 - 64;
      disk.flipBit(first!, block + 20, 1);
    },
    lost: range(20, 30),
    says: /no block can be read here/,
  },
  {
    name: "the damaged header of a file's first block",
    damage: (disk) => disk.flipBit(journal(disk, ".log")[1]!, 4, 0),
    lost: range(120, 130),
    says: /no block can be read here/,
  },
  {
    name: "a sealed file that is nothing but rubbish",
    damage(disk) {
      const second = journal(disk, ".log")[1]!;
      disk.writeDurable(second, disk.bytes(second).fill(0x55));
    },
    lost: range(120, 240),
    says: /offsets 120 to 239/,
  },
  {
    name: "a damaged message in the newest block, which a checkpoint vouches for",
    damage(disk) {
      const last = journal(disk, ".log").at(-1)!;
      disk.flipBit(last, find(disk, last, "message 299."), 3);
    },
    lost: [299],
    says: /take out 1 damaged places/,
  },
  {
    name: "the damaged header of the newest block, which a checkpoint vouches for",
    damage(disk) {
      const last = journal(disk, ".log").at(-1)!;
      disk.flipBit(last, find(disk, last, "message 290.") - 46 - 64, 3);
    },
    lost: range(290, 300),
    says: /no block can be read here/,
  },
  {
    name: "the damaged header of the newest block in a file of an odd length",
    damage(disk) {
      const last = journal(disk, ".log").at(-1)!;
      disk.flipBit(last, find(disk, last, "message 290.") - 46 - 64, 3);
      const logBytes = 53_120 - 42_488;
      disk.writeDurable(last, disk.bytes(last).subarray(0, logBytes + 13).fill(7, logBytes));
    },
    lost: range(290, 300),
    says: /no block can be read here/,
  },
  {
    name: "a torn group",
    crashed: true,
    damage(disk) {
      const last = journal(disk, ".log").at(-1)!;
      disk.flipBit(last, find(disk, last, "message 299."), 3);
    },
    lost: range(290, 300),
    says: /cut off the torn group at its end/,
  },
  {
    name: "damage in the middle and a torn group of an odd length",
    crashed: true,
    damage(disk) {
      const last = journal(disk, ".log").at(-1)!;
      disk.flipBit(last, find(disk, last, "message 250."), 3);
      const bytes = disk.bytes(last);
      disk.writeDurable(last, bytes.subarray(0, find(disk, last, "message 299.") + 7));
    },
    lost: [250, ...range(290, 300)],
    says: /take out 1 damaged places, cut off the torn group/,
  },
  {
    name: "a damaged sidecar",
    damage: (disk) => disk.flipBit(journal(disk, ".idx")[0]!, 30, 2),
    lost: [],
    says: /0000000000000000\.idx: remove, it is damaged/,
  },
  {
    name: "the sidecar of another file",
    damage(disk) {
      const [first, second] = journal(disk, ".idx");
      disk.writeDurable(first!, disk.bytes(second!));
    },
    lost: [],
    says: /0000000000000000\.idx: remove, it is damaged/,
  },
  {
    name: "a damaged newest checkpoint",
    damage: (disk) => disk.flipBit(journal(disk, ".ckp").at(-1)!, 50, 2),
    lost: [],
    says: /\.ckp: remove, it is damaged/,
  },
  {
    name: "both checkpoints damaged while the log is whole",
    damage(disk) {
      for (const path of journal(disk, ".ckp")) disk.flipBit(path, 50, 2);
    },
    lost: [],
    says: /Lost for good:\n {2}nothing/,
  },
  {
    name: "a missing broker.meta",
    damage: (disk) => disk.remove(`${PATH}/broker.meta`),
    options: ["--node-id", "3"],
    lost: [],
    says: /broker\.meta: write node 3, epoch 2/,
  },
  {
    name: "a damaged broker.meta",
    damage: (disk) => disk.writeDurable(`${PATH}/broker.meta`, new Uint8Array(20)),
    options: ["--node-id", "3"],
    lost: [],
    says: /broker\.meta: write node 3/,
  },
  {
    name: "a broker.meta that is older than the log",
    async damage(disk) {
      const old = disk.bytes(`${PATH}/broker.meta`);
      for (let starts = 0; starts < 2; starts++) {
        const storage = await openStorage(disk);
        storage.decide({ type: "topic_paused", topic: 2, paused: false, at: 0 });
        await storage.close();
      }
      disk.writeDurable(`${PATH}/broker.meta`, old);
    },
    lost: [],
    says: /broker\.meta: write node 3, epoch 4/,
  },
  {
    name: "a missing FORMAT",
    damage: (disk) => disk.remove(`${PATH}/FORMAT`),
    lost: [],
    says: /FORMAT: write again/,
  },
  {
    name: "a FORMAT that holds something else",
    damage: (disk) => disk.writeDurable(`${PATH}/FORMAT`, new TextEncoder().encode("sluice-dat")),
    lost: [],
    says: /FORMAT: write again/,
  },
  {
    name: "a damaged COMPATIBILITY",
    damage: (disk) => disk.writeDurable(`${PATH}/COMPATIBILITY`, new Uint8Array(20)),
    lost: [],
    says: /COMPATIBILITY: write this release's levels, reader 4 and writer 4/,
  },
  {
    name: "a missing file in the middle",
    damage: (disk) => disk.remove(journal(disk, ".log")[1]!),
    options: ["--accept-gap"],
    lost: range(120, 240),
    says: /the log from position 21416 to 42488, which is not there/,
  },
  {
    name: "a file in the middle that was cut short within a block",
    damage(disk) {
      const second = journal(disk, ".log")[1]!;
      disk.writeDurable(second, disk.bytes(second).subarray(0, find(disk, second, "message 175.")));
    },
    options: ["--accept-gap"],
    lost: range(170, 240),
    says: /are missing, from position/,
  },
  {
    name: "a file in the middle that is empty",
    damage: (disk) => disk.writeDurable(journal(disk, ".log")[1]!, new Uint8Array()),
    options: ["--accept-gap"],
    lost: range(120, 240),
    says: /are missing, from position/,
  },
  {
    name: "a log that ends before its checkpoint",
    damage: (disk) => disk.remove(journal(disk, ".log")[2]!),
    options: ["--accept-gap"],
    lost: range(240, 300),
    says: /the log ends at position 42488/,
  },
  {
    name: "a log that was cut short within a block before its checkpoint",
    damage(disk) {
      const last = journal(disk, ".log").at(-1)!;
      disk.writeDurable(last, disk.bytes(last).subarray(0, find(disk, last, "message 295.") + 1));
    },
    options: ["--accept-gap"],
    lost: range(290, 300),
    says: /but a checkpoint says it was on disk up to 53120/,
  },
  {
    name: "a log that is gone but for its checkpoints",
    async damage(disk) {
      for (const path of [...journal(disk, ".log"), ...journal(disk, ".idx")]) {
        await disk.remove(path);
      }
    },
    options: ["--accept-gap"],
    lost: range(0, 300),
    says: /make a file of/,
  },
  {
    name: "everything at once",
    async damage(disk) {
      const [first, second, third] = journal(disk, ".log");
      disk.flipBit(first!, find(disk, first!, "message 17."), 3);
      disk.flipBit(first!, find(disk, first!, "message 20.") - 46 - 64, 1);
      await disk.remove(second!);
      disk.flipBit(third!, find(disk, third!, "message 299."), 1);
      disk.flipBit(journal(disk, ".idx")[0]!, 30, 2);
      disk.flipBit(journal(disk, ".ckp")[0]!, 30, 2);
      await disk.remove(`${PATH}/broker.meta`);
      await disk.remove(`${PATH}/FORMAT`);
    },
    options: ["--accept-gap", "--node-id=3"],
    lost: [17, ...range(20, 30), ...range(120, 240), 299],
    says: /In the way|Lost for good/,
  },
];

for (const { name, crashed = false, damage, options = [], lost, says } of CASES) {
  Deno.test(`data repair mends ${name}`, async () => {
    const disk = await buildFolder({ crashed });
    await damage(disk);
    const before = contentOf(disk);
    const plan = await ctl(disk, "data", "repair", PATH, ...options);
    assert.match(plan.out, says);
    assert.match(plan.out, /Nothing was changed\. To do it: --yes\n$/);
    assert.deepEqual(contentOf(disk), before);

    if (options.length > 0) {
      const refused = await ctl(disk, "data", "repair", PATH, "--yes");
      assert.equal(refused.code, 2);
      assert.match(refused.out, /In the way:/);
      assert.deepEqual(contentOf(disk), before);
    }

    const done = await ctl(disk, "data", "repair", PATH, "--yes", ...options);
    assert.equal(done.code, 0, done.out + done.err);
    assert.match(done.out, /\nclean\n$/);
    const again = await ctl(disk, "data", "repair", PATH, "--yes");
    assert.deepEqual([again.code, again.out], [0, "nothing to repair\n"]);
    await assertSound(disk, lost);
  });
}

Deno.test("data repair keeps the damaged bytes so that the files can be put back as they were", async () => {
  const disk = await buildFolder();
  const [first, second] = journal(disk, ".log");
  disk.flipBit(first!, find(disk, first!, "message 17."), 3);
  disk.flipBit(second!, 4, 0);
  disk.flipBit(journal(disk, ".idx")[0]!, 30, 2);
  const before = contentOf(disk);
  const { code } = await ctl(disk, "data", "repair", PATH, "--yes", "--keep", "/aside/here");
  assert.equal(code, 0);
  const { kept } = JSON.parse(
    new TextDecoder().decode(disk.bytes("/aside/here/repair.json")),
  ) as { kept: { name: string; file: string; at: number; bytes: number }[] };
  assert.deepEqual(kept.map(({ file }) => file), [
    "journal/0000000000000000.log",
    "journal/0000000000021416.log",
    "journal/0000000000000000.idx",
    "journal/0000000000021416.idx",
  ]);
  for (const { name, file, at, bytes } of kept) {
    const piece = disk.bytes(`/aside/here/${name}`);
    assert.equal(piece.length, bytes);
    const path = `${PATH}/${file}`;
    if (disk.files().includes(path)) overwrite(disk, path, at, piece);
    else disk.writeDurable(path, piece);
  }
  const after = contentOf(disk);
  for (const [path, content] of before) assert.equal(after.get(path), content, path);
});

Deno.test("data repair keeps nothing in a folder that holds something, and changes nothing then", async () => {
  const disk = await buildFolder();
  disk.flipBit(journal(disk, ".log")[1]!, 4, 0);
  disk.writeDurable("/aside/mine", new Uint8Array(1));
  const before = contentOf(disk);
  const { code, err } = await ctl(disk, "data", "repair", PATH, "--yes", "--keep", "/aside");
  assert.equal(code, 2);
  assert.match(err, /it is not empty/);
  assert.deepEqual(contentOf(disk), before);
});

Deno.test("data repair takes out an event that is none, and keeps what stands around it", async () => {
  const disk = new SimDisk();
  const storage = await openStorage(disk);
  const orders = createTopic(storage, "orders");
  await publishMany(storage, orders, 3);
  storage.log.ring.set(new TextEncoder().encode("{bad"), storage.log.begin(4, 4));
  storage.log.finish();
  await publishMany(storage, orders, 3);
  await storage.abandon();
  await assert.rejects(openStorage(disk));
  assert.equal((await ctl(disk, "data", "repair", PATH, "--yes")).code, 0);
  assert.equal((await ordersOf(disk)).length, 6);
  const reopened = await openStorage(disk);
  await reopened.close();
});

Deno.test("data repair refuses a folder whose state nothing leads to", async () => {
  const disk = await buildFolder();
  await disk.remove(journal(disk, ".log")[0]!);
  for (const path of journal(disk, ".ckp")) disk.flipBit(path, 50, 2);
  const before = contentOf(disk);
  const { code, out } = await ctl(disk, "data", "repair", PATH, "--yes", "--accept-gap");
  assert.equal(code, 2);
  assert.match(out, /Restore the folder from a backup/);
  assert.deepEqual(contentOf(disk), before);
});

Deno.test("data repair says so when messages are left of a topic that nothing knows any more", async () => {
  const disk = await buildFolder();
  for (const path of journal(disk, ".ckp")) disk.flipBit(path, 50, 2);
  // The events that made the topics are in the first block.
  disk.flipBit(journal(disk, ".log")[0]!, 4, 0);
  const { code, out } = await ctl(disk, "data", "repair", PATH, "--yes");
  assert.equal(code, 0);
  assert.match(out, /\n {2}\d+ records of topics or channels that nothing else knows of\n/);
  assert.match(out, /note {4}journal {2}\d+ records are of topics or channels that nothing else/);
});

Deno.test("data repair does not take another node's id for a lost one", async () => {
  const disk = await buildFolder();
  await disk.remove(`${PATH}/broker.meta`);
  const asked = await ctl(disk, "data", "repair", PATH, "--yes");
  assert.equal(asked.code, 2);
  assert.match(asked.out, /--node-id \(the messages in the log are of node 3\)/);
  const wrong = await ctl(disk, "data", "repair", PATH, "--yes", "--node-id=4");
  assert.equal(wrong.code, 2);
  assert.match(wrong.out, /of node 3, not of node 4/);
  assert.equal((await ctl(disk, "data", "repair", PATH, "--node-id=65536")).code, 2);
});

Deno.test("data repair never gives out ids again that the lost broker.meta had reserved", async () => {
  const disk = await buildFolder();
  await disk.remove(`${PATH}/broker.meta`);
  await ctl(disk, "data", "repair", PATH, "--yes", "--node-id=3");
  const storage = await openStorage(disk);
  assert.ok(storage.nextSequence >= 2 ** 24 + 302);
  await storage.close();
});

Deno.test("data repair can be cut off by the power anywhere and run again", async () => {
  let cuts = 0;
  for (let mutations = 1;; mutations++) {
    const disk = await buildFolder();
    const [first, second] = journal(disk, ".log");
    disk.flipBit(first!, find(disk, first!, "message 17."), 3);
    await disk.remove(second!);
    disk.flipBit(journal(disk, ".ckp")[1]!, 50, 2);
    await disk.remove(`${PATH}/broker.meta`);
    await disk.syncDirectory(PATH);
    await disk.syncDirectory(`${PATH}/journal`);
    const command = ["data", "repair", PATH, "--yes", "--node-id=3", "--accept-gap"];
    disk.powerCutAfter(mutations);
    const { code } = await ctl(disk, ...command);
    if (!disk.poweredOff) {
      assert.equal(code, 0);
      break;
    }
    cuts++;
    disk.crash();
    // Another time, so another folder for what is kept.
    const again = await ctl(disk, ...command, "--keep", "/aside");
    assert.equal(again.code, 0, `${mutations}: ${again.out}${again.err}`);
    await assertSound(disk, [17, ...range(120, 240)]);
  }
  assert.ok(cuts > 15, `${cuts} cuts`);
});

Deno.test("data repair leaves a clean folder, whatever bits were flipped, and what was good in it", async () => {
  const whole = await buildFolder();
  // Several starts, so that the blocks of a file are of several epochs.
  for (let starts = 0; starts < 4; starts++) {
    const storage = await openStorage(whole);
    const orders = storage.state.topics.get("orders");
    assert.ok(orders !== undefined);
    await publishMany(storage, orders, 40);
    await storage.close();
  }
  const baseline = await ordersOf(whole);
  assert.equal(baseline.length, 460);
  for (let seed = 0; seed < 60; seed++) {
    const random = new SeededRandom(seed);
    // Of the two checkpoints one at a time: without any, a damaged event can cost a topic.
    const checkpoint = journal(whole, ".ckp")[seed % 2]!;
    const files = [...journal(whole, ".log"), ...journal(whole, ".idx"), checkpoint];
    const disk = new SimDisk();
    for (const path of whole.files()) disk.writeDurable(path, whole.bytes(path));
    for (let flips = 1 + random.below(6); flips > 0; flips--) {
      const path = files[random.below(files.length)]!;
      disk.flipBit(path, random.below(disk.bytes(path).length), random.below(8));
    }
    // A whole header, now and then: they are seldom hit.
    if (random.chance(0.5)) {
      const path = journal(disk, ".log")[random.below(journal(disk, ".log").length)]!;
      overwrite(disk, path, 0, random.bytes(64));
    }
    const { code, out, err } = await ctl(disk, "data", "repair", PATH, "--yes");
    assert.equal(code, 0, `seed ${seed}: ${out}${err}`);
    const verified = await ctl(disk, "data", "verify", PATH);
    assert.equal(verified.code, 0, `seed ${seed}: ${verified.out}`);
    const left = await ordersOf(disk);
    assert.deepEqual(left, baseline.filter((body) => left.includes(body)), `seed ${seed}`);
    assert.ok(left.length >= 460 - 7 * 10, `seed ${seed}: ${left.length} messages are left`);
    const storage = await openStorage(disk);
    assert.deepEqual(storage.opening.damage, [], `seed ${seed}`);
    await storage.close();
  }
});
