/** Power cuts of a real broker: see `image_run.ts`. `deno task crash:images` judges more of them. */
import { deepEqual, ok } from "node:assert/strict";
import { SeededRandom, SimDisk } from "@sluice/shared/testing";
import { ImageFailure, makeImagesFolder, runImages } from "./images.ts";
import { chooseCuts, imageAt, type Recording } from "./power_images.ts";
import { type DiskChange, RecordingDisk } from "./recording_disk.ts";

const IMAGES = 200;
const MESSAGES = 2_500;
const FAULTY_IMAGES = 60;
const FAULTY_MESSAGES = 600;
const CUTS = 100;
const LOST_REGEXP = /does not open|lost on|not there|there is no|damages nothing/;

async function inFolder<T>(run: (path: string) => Promise<T>): Promise<T> {
  const path = await makeImagesFolder();
  try {
    return await run(path);
  } finally {
    await Deno.remove(path, { recursive: true });
  }
}

/** The recording without some of its changes. */
function without(leavesOut: (change: DiskChange) => boolean): (recording: Recording) => Recording {
  return ({ events, failed }) => {
    const changes = events.map(({ change }) => change).filter(leavesOut);
    return { events, failed: new Set([...failed, ...changes]) };
  };
}

Deno.test("a real broker keeps its promises over power cuts at any moment", async () => {
  const seed = crypto.getRandomValues(new Uint32Array(1))[0]!;
  console.log(`seed: ${seed}`);
  const options = { images: IMAGES, seed, messages: MESSAGES };
  const report = await inFolder((path) => runImages(path, options));
  // The run must have been one.
  ok(report.checkpoints > 3 && report.events > 500, JSON.stringify(report));
  ok(report.removedFiles > 0, JSON.stringify(report));
  ok(report.compactedFiles > 0 && report.largeMessages > 2, JSON.stringify(report));
});

for (
  const [what, symptom, leavesOut] of [
    ["of the log", LOST_REGEXP, ({ type, path }) => type === "sync" && path.endsWith(".log")],
    ["of small files", LOST_REGEXP, ({ type, path }) => type === "sync" && path.endsWith(".tmp")],
    ["of folders", LOST_REGEXP, ({ type }) => type === "syncDirectory"],
  ] satisfies [string, RegExp, (change: DiskChange) => boolean][]
) {
  Deno.test(`runImages() finds a broker that leaves out the syncs ${what}`, async () => {
    const options = { images: FAULTY_IMAGES, seed: 7, messages: FAULTY_MESSAGES };
    const failure = await inFolder((path) =>
      runImages(path, options, without(leavesOut)).then(() => null, (error) => error)
    );
    ok(failure instanceof ImageFailure, `no image of ${FAULTY_IMAGES} fails: ${failure}`);
    ok(symptom.test(failure.message), failure.message);
  });
}

/** The texts that power cuts without torn sectors after the first `cut` events leave in a file; null without the file. */
function textsAt(recording: Recording, cut: number, path: string): Set<string | null> {
  const texts = new Set<string | null>();
  for (let seed = 0; seed < CUTS; seed++) {
    const bytes = imageAt(recording, cut, new SeededRandom(seed), [0]).get(path);
    texts.add(bytes === undefined ? null : new TextDecoder().decode(bytes));
  }
  return texts;
}

Deno.test("imageAt() keeps what a sync covered, and of the rest some or nothing", async () => {
  const disk = new RecordingDisk(new SimDisk());
  const text = (value: string) => new TextEncoder().encode(value);
  const file = await disk.open("/f.tmp", "create");
  await file.writeAt(0, text("a"));
  const [syncing] = [file.syncData(), file.writeAt(0, text("b"))];
  await syncing;
  await disk.rename("/f.tmp", "/f");
  const renamed = disk.now;
  await disk.syncDirectory("/");
  const synced = disk.now;
  await file.truncate(0);
  await file.syncData();
  file.close();
  // The write that the sync did not wait for is there or not, whatever was synced.
  deepEqual(textsAt(disk, synced, "/f"), new Set(["a", "b"]));
  deepEqual(textsAt(disk, renamed, "/f"), new Set([null, "a", "b"]));
  deepEqual(textsAt(disk, disk.now, "/f"), new Set([""]));
  deepEqual(textsAt(disk, disk.now, "/f.tmp"), new Set([null]));
  deepEqual(textsAt(disk, 0, "/f"), new Set([null]));
});

Deno.test("imageAt() leaves out what the disk refused", async () => {
  const inner = new SimDisk();
  const disk = new RecordingDisk(inner);
  const file = await disk.open("/f", "create");
  await disk.syncDirectory("/");
  inner.failNext({ operation: "sync", kind: "io" });
  await file.writeAt(0, new Uint8Array([65]));
  await file.syncData().catch(() => {});
  await disk.remove("/missing").catch(() => {});
  file.close();
  deepEqual(textsAt(disk, disk.now, "/f"), new Set(["", "\0", "A"]));
});

Deno.test("chooseCuts() chooses the same moments for the same seed, in order, and near names", async () => {
  const disk = new RecordingDisk(new SimDisk());
  const file = await disk.open("/f", "create");
  for (let count = 0; count < 500; count++) await file.writeAt(count, new Uint8Array(1));
  file.close();
  const cuts = chooseCuts(disk.events, CUTS, 3);
  deepEqual(chooseCuts(disk.events, CUTS, 3), cuts);
  deepEqual(cuts.toSorted((a, b) => a - b), cuts);
  const near = cuts.filter((cut) => cut < 6).length;
  ok(near > CUTS / 4 && near < CUTS && cuts.at(-1)! > disk.now / 2, cuts.join(" "));
});
