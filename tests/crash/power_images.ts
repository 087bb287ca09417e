/**
 * What a power cut at some moment of a recording could have left: each change that was not synced is
 * there or not, or in part, by the rules of the simulated disk. A change may reach the disk from when
 * it began; a sync makes durable, once it is heard of, what was heard of before it began.
 */
import { directoryOf } from "@sluice/shared/runtime";
import { SeededRandom, SimFileData, SimNames } from "@sluice/shared/testing";
import type { DiskChange, DiskEvent, RecordingDisk } from "./recording_disk.ts";

/** Files by path, whole. */
export type Image = ReadonlyMap<string, Uint8Array>;

/** What was recorded, maybe with something left out. */
export type Recording = Pick<RecordingDisk, "events" | "failed">;

/** How likely the last sector of a write is torn, drawn once an image. */
const TORN_SECTOR_CHANCES = [0, 0, 0.5];
/** Moments near a change of names are rare, and looked at as often as all others. */
const NAMES_SHARE = 0.5;
const NEAR_EVENTS = 3;

/** One state that a power cut after the first `cut` events may leave, when all of `base` was synced. */
export function imageAt(
  { events, failed }: Recording,
  cut: number,
  random: SeededRandom,
  tornSectorChances = TORN_SECTOR_CHANCES,
  base: Image = new Map(),
): Image {
  const names = new SimNames<SimFileData>();
  const files = new Map<number, SimFileData>();
  for (const [path, bytes] of base) files.set(files.size + 1, synced(names, path, bytes));
  const heardOf = new Map<DiskChange, number>();
  for (let at = 0; at < cut; at++) {
    const { kind, change } = events[at]!;
    if (failed.has(change)) continue;
    if (kind === "begin") heardOf.set(change, begin(change, names, files));
    else hear(change, heardOf.get(change)!, names, files);
  }
  names.restart(random);
  const tornChance = random.pick(tornSectorChances);
  const image = new Map<string, Uint8Array>();
  for (const [path, data] of names.entries()) {
    data.settlePending(random, tornChance);
    data.restart();
    image.set(path, data.view());
  }
  return image;
}

/** A file that is on disk, and its name. */
function synced(names: SimNames<SimFileData>, path: string, bytes: Uint8Array): SimFileData {
  const data = new SimFileData();
  data.hear(data.write(0, bytes));
  data.makeDurable(data.heard);
  names.hear(names.create(path, data));
  names.makeDurable(directoryOf(path), names.heard);
  return data;
}

/** The image of another folder with the same in it. */
export function movedImage(image: Image, from: string, to: string): Image {
  return new Map([...image].map(([path, bytes]) => [to + path.slice(from.length), bytes]));
}

/** Moments to cut the power at, ascending; the same ones for the same seed. */
export function chooseCuts(events: readonly DiskEvent[], count: number, seed: number): number[] {
  const random = new SeededRandom(seed);
  const ofNames: number[] = [];
  for (const [at, { change }] of events.entries()) {
    if (change.type !== "write" && change.type !== "sync") ofNames.push(at);
  }
  const cuts = Array.from({ length: count }, () => {
    if (!random.chance(NAMES_SHARE) || ofNames.length === 0) return random.below(events.length + 1);
    const near = random.pick(ofNames) + random.between(-NEAR_EVENTS, NEAR_EVENTS);
    return Math.min(Math.max(0, near), events.length);
  });
  return cuts.sort((a, b) => a - b);
}

/** Begins a change; returns what its end is to be told, or for a sync what it covers. */
function begin(
  change: DiskChange,
  names: SimNames<SimFileData>,
  files: Map<number, SimFileData>,
): number {
  switch (change.type) {
    case "create": {
      const data = new SimFileData();
      files.set(change.file, data);
      return names.create(change.path, data);
    }
    case "rename":
      return names.rename(change.path, change.to, names.get(change.path)!);
    case "remove":
      return names.remove(change.path);
    case "syncDirectory":
      return names.heard;
    case "write":
      return files.get(change.file)!.write(change.position, change.bytes);
    case "truncate":
      return files.get(change.file)!.truncate(change.size);
    case "sync":
      return files.get(change.file)!.heard;
  }
}

function hear(
  change: DiskChange,
  sequence: number,
  names: SimNames<SimFileData>,
  files: Map<number, SimFileData>,
): void {
  switch (change.type) {
    case "create":
    case "rename":
    case "remove":
      names.hear(sequence);
      return;
    case "syncDirectory":
      names.makeDurable(change.path, sequence);
      return;
    case "write":
    case "truncate":
      files.get(change.file)!.hear(sequence);
      return;
    case "sync":
      files.get(change.file)!.makeDurable(sequence);
      return;
  }
}
