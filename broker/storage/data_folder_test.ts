import { deepEqual, equal, ok, rejects } from "node:assert/strict";
import { DiskError } from "@sluice/shared/runtime";
import { LogError } from "@sluice/shared/log";
import { SeededRandom, SimDisk } from "@sluice/shared/testing";
import { DataFolder, LOG_FOLDER, SEQUENCE_BLOCK } from "./data_folder.ts";

const PATH = "/data";
const ANY_NODE = { value: 3, required: false };

function open(disk: SimDisk, nodeId = ANY_NODE): Promise<DataFolder> {
  return DataFolder.open(disk, PATH, nodeId);
}

function put(disk: SimDisk, name: string, text: string): void {
  disk.writeDurable(`${PATH}/${name}`, new TextEncoder().encode(text));
}

function text(disk: SimDisk, name: string): string {
  return new TextDecoder().decode(disk.bytes(`${PATH}/${name}`));
}

/** Fails with this code, and gives the lock back. */
async function refuses(disk: SimDisk, code: LogError["code"], message: RegExp, nodeId = ANY_NODE) {
  await rejects(open(disk, nodeId), (error) => {
    ok(error instanceof LogError, String(error));
    equal(error.code, code);
    ok(message.test(error.message), error.message);
    return true;
  });
  (await disk.lock(`${PATH}/LOCK`)).release();
  equal(disk.openFiles, 0);
}

Deno.test("open() refuses a folder of another format", async () => {
  for (const format of ["sluice-data 2\n", "sluice-data 1", "", "something else\n"]) {
    const disk = new SimDisk();
    put(disk, "FORMAT", format);
    await refuses(disk, "newer_format", /its FORMAT is ".*", this release reads "sluice-data 1"$/);
    equal(text(disk, "FORMAT"), format);
  }
});

Deno.test("open() refuses a folder that needs a newer release and changes nothing in it", async () => {
  for (const levels of [`{"reader":1,"writer":5}`, `{"reader":5,"writer":5,"new":true}`]) {
    const disk = new SimDisk();
    (await open(disk)).lock.release();
    const meta = text(disk, "broker.meta");
    put(disk, "COMPATIBILITY", levels);
    await refuses(disk, "newer_format", /this one has 4 and 4\. A newer release has used it: use/);
    deepEqual([text(disk, "COMPATIBILITY"), text(disk, "broker.meta")], [levels, meta]);
  }
});

Deno.test("open() refuses a damaged COMPATIBILITY and leaves it alone", async () => {
  const disk = new SimDisk();
  (await open(disk)).lock.release();
  put(disk, "COMPATIBILITY", `{"reader":1,"wri`);
  await refuses(
    disk,
    "damaged",
    /COMPATIBILITY is damaged; sluicectl data repair writes it again$/,
  );
  equal(text(disk, "COMPATIBILITY"), `{"reader":1,"wri`);
});

Deno.test("open() takes a folder without COMPATIBILITY as one of level 1 and writes it", async () => {
  const disk = new SimDisk();
  (await open(disk)).lock.release();
  await disk.remove(`${PATH}/COMPATIBILITY`);
  const folder = await open(disk);
  equal(folder.epoch, 2);
  equal(text(disk, "COMPATIBILITY"), `{"reader":1,"writer":1}\n`);
  folder.lock.release();
});

Deno.test("open() refuses a folder that another broker has", async () => {
  const disk = new SimDisk();
  const first = await open(disk);
  await rejects(open(disk), (error) => error instanceof DiskError && error.kind === "locked");
  first.lock.release();
  (await open(disk)).lock.release();
});

Deno.test("open() refuses a folder of another node only when the node was asked for", async () => {
  const disk = new SimDisk();
  (await open(disk, { value: 9, required: true })).lock.release();
  await refuses(disk, "foreign", /belongs to node 9, not to node 8$/, { value: 8, required: true });
  const folder = await open(disk, { value: 8, required: false });
  equal(folder.nodeId, 9);
  folder.lock.release();
});

Deno.test("open() refuses a damaged broker.meta and leaves it alone", async () => {
  const fine = `"epoch":1,"sequence_reserved":5}`;
  for (
    const meta of [
      "",
      "{",
      "null",
      "7",
      "[]",
      "{}",
      `{"node_id":70000,${fine}`,
      `{"node_id":-1,${fine}`,
      `{"node_id":"1",${fine}`,
      `{"node_id":1.5,${fine}`,
      `{"node_id":1,"epoch":4294967295,"sequence_reserved":5}`,
      `{"node_id":1,"epoch":1,"sequence_reserved":281474976710657}`,
      `{"node_id":1,"epoch":1}`,
    ]
  ) {
    const disk = new SimDisk();
    (await open(disk)).lock.release();
    put(disk, "broker.meta", meta);
    await refuses(disk, "damaged", /broker\.meta is damaged$/);
    equal(text(disk, "broker.meta"), meta);
  }
});

Deno.test("open() refuses a log without its broker.meta, which would use epochs and ids again", async () => {
  const disk = new SimDisk();
  (await open(disk)).lock.release();
  await disk.remove(`${PATH}/broker.meta`);
  (await open(disk)).lock.release();
  await disk.remove(`${PATH}/broker.meta`);
  put(disk, `${LOG_FOLDER}/0000000000000000.log`, "");
  await refuses(disk, "damaged", /there is a log, but no broker\.meta$/);
});

Deno.test("open() gives the lock back when the disk fails", async () => {
  const disk = new SimDisk();
  for (const operation of ["open", "create", "write", "sync", "rename", "syncDirectory"] as const) {
    disk.failNext({ operation, kind: "io" });
    await rejects(open(disk), DiskError);
    equal(disk.openFiles, 0);
  }
  (await open(disk)).lock.release();
});

Deno.test("open() makes a folder with FORMAT, COMPATIBILITY, broker.meta and LOCK", async () => {
  const disk = new SimDisk();
  const folder = await open(disk);
  deepEqual(disk.files(), [
    "/data/COMPATIBILITY",
    "/data/FORMAT",
    "/data/LOCK",
    "/data/broker.meta",
  ]);
  equal(text(disk, "COMPATIBILITY"), `{"reader":1,"writer":1}\n`);
  equal(text(disk, "FORMAT"), "sluice-data 1\n");
  equal(text(disk, "broker.meta"), `{"node_id":3,"epoch":1,"sequence_reserved":16777217}\n`);
  deepEqual([folder.epoch, folder.firstSequence, folder.reserved], [1, 1, 1 + SEQUENCE_BLOCK]);
  folder.lock.release();
});

Deno.test("reserveMore() moves the bound only once it is on disk", async () => {
  const disk = new SimDisk();
  const folder = await open(disk);
  const before = folder.reserved;
  disk.failNext({ operation: "sync", kind: "io" });
  await rejects(folder.reserveMore(), DiskError);
  equal(folder.reserved, before);
  await folder.reserveMore();
  equal(folder.reserved, before + SEQUENCE_BLOCK);
  disk.crash();
  const again = await open(disk);
  equal(again.firstSequence, before + SEQUENCE_BLOCK);
});

Deno.test("no epoch and no sequence is ever handed out twice, over power cuts at any moment", async () => {
  for (let seed = 0; seed < 50; seed++) {
    const random = new SeededRandom(seed);
    const disk = new SimDisk({ random: random.fork(), tornSectorChance: 0.3 });
    let epoch = 0;
    let used = 0;
    for (let start = 0; start < 12; start++) {
      if (random.chance(0.7)) {
        disk.powerCutAfter(random.between(1, 14), random.pick(["before_effect", "after_effect"]));
      }
      try {
        const folder = await open(disk);
        ok(folder.epoch > epoch, `seed ${seed}: epoch ${folder.epoch} after ${epoch}`);
        ok(folder.firstSequence > used, `seed ${seed}: ${folder.firstSequence} after ${used}`);
        epoch = folder.epoch;
        used = folder.reserved - 1;
        await folder.reserveMore();
        used = folder.reserved - 1;
        await folder.reserveMore();
        used = folder.reserved - 1;
      } catch (error) {
        ok(error instanceof DiskError, `seed ${seed}: ${error}`);
      }
      disk.crash();
    }
  }
});
