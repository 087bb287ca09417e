import { SimClock, SimDisk } from "@sluice/shared/testing";
import assert from "node:assert/strict";
import { MISSING, ReadOnlyLog, recoverState, walkSidecar } from "./format.ts";
import { createChannel, createTopic, openStorage, publish } from "./storage_test_fixture.ts";

/** A folder with several files that a storage has left without closing it. */
async function buildFolder(): Promise<SimDisk> {
  const disk = new SimDisk();
  const { storage } = await openStorage(disk, new SimClock());
  const topic = createTopic(storage, "orders");
  const channel = createChannel(storage, topic, "c");
  for (let group = 0; group < 40; group++) {
    for (let index = 0; index < 10; index++) publish(storage, topic, "body".padEnd(120));
    storage.finish(channel, group * 10);
    await storage.drain();
    if (group === 20) await storage.maintain();
  }
  await storage.abandon();
  return disk;
}

function contentOf(disk: SimDisk): [string, string][] {
  return disk.files().map((path) => [path, disk.bytes(path).toString()]);
}

Deno.test("ReadOnlyLog gives recovery the state that a storage has, and changes nothing", async () => {
  const disk = await buildFolder();
  for (const path of disk.files()) if (path.endsWith(".idx")) await disk.remove(path);
  disk.writeDurable("/data/journal/left.tmp", new Uint8Array(1));
  const last = disk.files().filter((path) => path.endsWith(".log")).at(-1)!;
  const bytes = disk.bytes(last);
  disk.writeDurable(last, new Uint8Array([...bytes, ...new Uint8Array(100).fill(7)]));
  const before = contentOf(disk);
  const { mutations } = disk.trace;

  const log = await ReadOnlyLog.open(disk, "/data/journal");
  const found = await recoverState(log);
  assert.ok(found.tornBytes >= 100);
  assert.equal(log.epochMax, 1);
  assert.deepEqual(contentOf(disk), before);
  assert.equal(disk.trace.mutations, mutations);
  assert.equal(disk.openFiles, 0);

  const { storage } = await openStorage(disk, new SimClock());
  const [mine, theirs] = [found.state, storage.state].map((state) => {
    const topic = state.topics.get("orders");
    const channel = topic?.channels.get("c");
    return [topic?.tail, channel?.finished.floor, channel?.finished.above];
  });
  assert.deepEqual(mine, theirs);
  assert.equal(mine?.[0], 400);
  await storage.close();
});

Deno.test("ReadOnlyLog names gaps, and recovery refuses them as a broker does", async () => {
  const disk = await buildFolder();
  const [first, second, third] = disk.files().filter((path) => path.endsWith(".log"));
  await disk.remove(second!);
  const log = await ReadOnlyLog.open(disk, "/data/journal");
  const start = (path: string | undefined) => Number(path?.slice(-20, -4));
  assert.deepEqual(log.gaps, [{
    from: start(first) + disk.bytes(first!).length,
    to: start(third),
  }]);
  await assert.rejects(recoverState(log), /bytes are missing between position/);
});

Deno.test("ReadOnlyLog takes no blocks, checkpoints or removals", async () => {
  const log = await ReadOnlyLog.open(new SimDisk(), "/data/journal");
  assert.deepEqual(log.files, []);
  for (const change of [() => log.write(), () => log.remove(), () => log.putCheckpoint()]) {
    await assert.rejects(change, /open for reading only/);
  }
});

Deno.test("ReadOnlyLog keeps sidecars that are put in memory and reads the others", async () => {
  const disk = await buildFolder();
  const log = await ReadOnlyLog.open(disk, "/data/journal");
  const [first, second] = log.files;
  const stored = await log.getSidecar(first!);
  assert.ok(stored !== null);
  const part = new Uint8Array(8);
  assert.equal(await log.readSidecar(first!, 4, part), 8);
  assert.deepEqual(part, stored.slice(4, 12));
  await log.putSidecar(second!, new Uint8Array([1, 2, 3]));
  assert.deepEqual(await log.getSidecar(second!), new Uint8Array([1, 2, 3]));
  assert.equal(await log.readSidecar(second!, 1, part), 2);
  assert.deepEqual(part.subarray(0, 2), new Uint8Array([2, 3]));
  assert.equal(await log.getSidecar(log.files.at(-1)!), null);
  assert.equal(await log.readSidecar(log.files.at(-1)!, 0, part), 0);
});

Deno.test("walkSidecar() visits every message where it stands in the file", async () => {
  const disk = await buildFolder();
  const log = await ReadOnlyLog.open(disk, "/data/journal");
  const file = log.files[1]!;
  const stand: number[] = [];
  await log.scan(file, {
    block() {},
    record(kind, _bytes, _start, _end, position) {
      if (kind === 1) stand.push(position);
    },
  });
  const sidecar = await log.getSidecar(file);
  const visited: number[] = [];
  assert.ok(sidecar !== null);
  assert.ok(walkSidecar(sidecar, file.start, (topic, _offset, position) => {
    assert.equal(topic, 1);
    assert.notEqual(position, MISSING);
    visited.push(position);
  }));
  assert.deepEqual(visited, stand);
  assert.equal(walkSidecar(sidecar.subarray(1), file.start, () => {}), false);
});
