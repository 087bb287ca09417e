/**
 * A disk in memory that keeps exactly what {@linkcode Disk} promises and loses the rest: a power cut
 * leaves any state that the promises allow, chosen from a seed (the rules are in `sim_file_data.ts`
 * and `sim_names.ts`). All of it is repeatable: the same seed and the same calls give the same disk.
 *
 * Folders are durable once made and are neither renamed nor removed. Space is what the sizes of all
 * files with a name or an open handle add up to; holes count. Operations resolve in promise jobs,
 * never in timers.
 */
import {
  directoryOf,
  type Disk,
  DiskError,
  type DiskErrorKind,
  type DiskFile,
  type DiskLock,
  type DiskSpace,
  invariant,
} from "../runtime/mod.ts";
import { SeededRandom } from "./seeded_random.ts";
import { type PlannedFailure, type PowerCutMoment, SimDiskPower } from "./sim_disk_power.ts";
import { SimDiskTrace } from "./sim_disk_trace.ts";
import { SimFile, type SimFileHost } from "./sim_file.ts";
import { SimFileData } from "./sim_file_data.ts";
import { SimNames } from "./sim_names.ts";

/** How a {@linkcode SimDisk} behaves. */
export interface SimDiskOptions {
  /** Where all choices come from; seed 0 by default. */
  readonly random?: SeededRandom;
  /** What the files may hold in total; 1 TiB by default. */
  readonly capacityBytes?: number;
  /**
   * Promise turns that may pass before an effect, and again before its caller hears of it; a random
   * number up to this. With 0, the default, an effect happens within the call.
   */
  readonly extraTurnsMax?: number;
  /** How likely the last surviving sector of a write is torn by a power cut; 0 by default. */
  readonly tornSectorChance?: number;
  /** How many operations the trace remembers; 200 by default. */
  readonly traceEntriesMax?: number;
}

/** {@linkcode Disk} in memory, with power cuts and failures on demand. */
export class SimDisk implements Disk {
  /** Counts and the latest operations, to print with a failing seed. */
  readonly trace: SimDiskTrace;
  readonly #random: SeededRandom;
  readonly #power: SimDiskPower;
  readonly #names = new SimNames<SimFileData>();
  /** Files with a handle and without a name: they still take space. */
  readonly #unnamed = new Set<SimFileData>();
  readonly #directories = new Set(["/", "."]);
  readonly #locked = new Set<string>();
  readonly #host: SimFileHost;
  readonly #tornSectorChance: number;
  #capacityBytes: number;
  #openFiles = 0;

  constructor(options: SimDiskOptions = {}) {
    this.#random = options.random ?? new SeededRandom(0);
    this.trace = new SimDiskTrace(options.traceEntriesMax ?? 200);
    this.#power = new SimDiskPower(this.#random, this.trace, options.extraTurnsMax ?? 0);
    this.#tornSectorChance = options.tornSectorChance ?? 0;
    this.#capacityBytes = options.capacityBytes ?? 2 ** 40;
    this.#host = {
      power: this.#power,
      random: this.#random,
      freeBytes: () => this.#freeBytes(),
      closed: (data) => this.#closed(data),
    };
  }

  async open(path: string, mode: "create" | "read" | "write"): Promise<DiskFile> {
    const name = normal(path);
    const opened = await this.#power.perform({
      operation: mode === "create" ? "create" : "open",
      path: name,
      effect: () => {
        const { data, sequence } = mode === "create"
          ? this.#create(name)
          : { data: this.#find("open", name), sequence: 0 };
        data.handles++;
        this.#openFiles++;
        return { data, sequence, life: this.#power.life };
      },
    });
    this.#names.hear(opened.sequence);
    return new SimFile(this.#host, { path: name, writable: mode !== "read", ...opened });
  }

  list(directory: string): Promise<string[]> {
    const folder = normal(directory);
    return this.#power.perform({
      operation: "list",
      path: folder,
      effect: () => {
        this.#requireDirectory("list", folder, folder);
        const paths = [...this.#directories, ...this.files()];
        return paths
          .filter((path) => directoryOf(path) === folder && path !== "/" && path !== ".")
          .map((path) => path.slice(path.lastIndexOf("/") + 1))
          .sort();
      },
    });
  }

  async rename(from: string, to: string): Promise<void> {
    const [source, target] = [normal(from), normal(to)];
    const sequence = await this.#power.perform({
      operation: "rename",
      path: source,
      detail: target,
      effect: () => {
        const data = this.#find("rename", source);
        this.#requireDirectory("rename", source, directoryOf(target));
        if (this.#directories.has(target)) throw failure("io", "rename", source, "onto a folder");
        const replaced = this.#names.get(target);
        if (replaced === data) return 0;
        if (replaced !== undefined) this.#unname(replaced);
        return this.#names.rename(source, target, data);
      },
    });
    this.#names.hear(sequence);
  }

  async remove(path: string): Promise<void> {
    const name = normal(path);
    const sequence = await this.#power.perform({
      operation: "remove",
      path: name,
      effect: () => {
        this.#unname(this.#find("remove", name));
        return this.#names.remove(name);
      },
    });
    this.#names.hear(sequence);
  }

  makeDirectory(path: string): Promise<void> {
    const folder = normal(path);
    return this.#power.perform({
      operation: "makeDirectory",
      path: folder,
      effect: () => this.#makeDirectory(folder),
    });
  }

  async syncDirectory(path: string): Promise<void> {
    const folder = normal(path);
    const covered = this.#names.heard;
    await this.#power.perform({
      operation: "syncDirectory",
      path: folder,
      effect: () => {
        this.#requireDirectory("syncDirectory", folder, folder);
        this.#names.makeDurable(folder, covered);
      },
      failedEffect: () => this.#names.settleDirectory(folder, this.#random),
    });
  }

  async lock(path: string): Promise<DiskLock> {
    const name = normal(path);
    const taken = await this.#power.perform({
      operation: "lock",
      path: name,
      effect: () => {
        if (this.#locked.has(name)) throw failure("locked", "lock", name, "another holder has it");
        const sequence = this.#names.get(name) === undefined ? this.#create(name).sequence : 0;
        this.#locked.add(name);
        return { sequence, life: this.#power.life };
      },
    });
    this.#names.hear(taken.sequence);
    let held = true;
    return {
      release: () => {
        if (held && taken.life === this.#power.life) this.#locked.delete(name);
        held = false;
      },
    };
  }

  space(path: string): Promise<DiskSpace> {
    const name = normal(path);
    return this.#power.perform({
      operation: "space",
      path: name,
      effect: () => {
        if (!this.#directories.has(name)) this.#find("space", name);
        const freeBytes = Math.max(0, this.#freeBytes());
        return { totalBytes: this.#capacityBytes, freeBytes };
      },
    });
  }

  /**
   * Cuts the power at the `mutations`-th operation from now that changes the disk (1 is the next).
   * It and all later operations reject with `io`, until {@linkcode crash} starts the disk again.
   */
  powerCutAfter(mutations: number, moment: PowerCutMoment = "before_effect"): void {
    invariant(mutations >= 1, "a power cut hits an operation to come");
    this.#power.cutAfter(mutations, moment);
  }

  /** The power is cut, and {@linkcode crash} is due. */
  get poweredOff(): boolean {
    return this.#power.off;
  }

  /**
   * Ends the life of all handles (they reject with `closed`), locks and plans, and starts again with
   * one of the states that a power cut at this moment may leave.
   */
  crash(): void {
    this.#power.restart();
    this.#names.restart(this.#random);
    this.#unnamed.clear();
    this.#locked.clear();
    this.#openFiles = 0;
    for (const [, data] of this.#names.entries()) {
      data.settlePending(this.#random, this.#tornSectorChance);
      data.restart();
    }
  }

  /**
   * Lets one operation to come fail. A failed write leaves some of its bytes; a failed sync decides
   * at once what of the pending changes is on the disk, and a later sync does not bring back the rest.
   */
  failNext(plan: PlannedFailure): void {
    const path = plan.path === undefined ? {} : { path: normal(plan.path) };
    this.#power.failNext({ ...plan, ...path });
  }

  /** Changes the room on the disk; less than what is used means a full disk. */
  setCapacity(bytes: number): void {
    this.#capacityBytes = bytes;
  }

  /** Damages a bit (0 to 7) of a file. A pending write of that place undoes it when synced. */
  flipBit(path: string, position: number, bit: number): void {
    const data = this.#find("flip a bit of", normal(path));
    invariant(position < data.size && bit >= 0 && bit < 8, "the bit is in the file");
    data.flipBit(position, bit);
  }

  /** A copy of what readers of the file see. */
  bytes(path: string): Uint8Array {
    return this.#find("copy", normal(path)).view().slice();
  }

  /** Makes or replaces a file with its folders; name and content are durable at once. */
  writeDurable(path: string, bytes: Uint8Array): void {
    const name = normal(path);
    this.#makeDirectory(directoryOf(name));
    const data = this.#names.get(name) ?? new SimFileData();
    data.replace(bytes);
    this.#names.createDurable(name, data);
  }

  /** The paths of all files, sorted. */
  files(): string[] {
    return [...this.#names.entries()].map(([path]) => path).sort();
  }

  /** Handles that are open; 0 when nothing leaked. */
  get openFiles(): number {
    return this.#openFiles;
  }

  #create(name: string): { data: SimFileData; sequence: number } {
    this.#requireDirectory("create", name, directoryOf(name));
    if (this.#names.get(name) !== undefined || this.#directories.has(name)) {
      throw failure("exists", "create", name, "the name is taken");
    }
    const data = new SimFileData();
    return { data, sequence: this.#names.create(name, data) };
  }

  #find(action: string, name: string): SimFileData {
    const data = this.#names.get(name);
    if (data !== undefined) return data;
    if (this.#directories.has(name)) throw failure("io", action, name, "it is a directory");
    throw failure("not_found", action, name, "there is no such file");
  }

  #makeDirectory(folder: string): void {
    if (this.#directories.has(folder)) return;
    if (this.#names.get(folder) !== undefined) {
      throw failure("exists", "make directory", folder, "a file has that name");
    }
    this.#makeDirectory(directoryOf(folder));
    this.#directories.add(folder);
  }

  /** Fails the action on `path` unless `folder` is one. */
  #requireDirectory(action: string, path: string, folder: string): void {
    if (this.#directories.has(folder)) return;
    if (this.#names.get(folder) !== undefined) {
      throw failure("io", action, path, `"${folder}" is a file`);
    }
    throw failure("not_found", action, path, `there is no folder "${folder}"`);
  }

  #unname(data: SimFileData): void {
    if (data.handles > 0) this.#unnamed.add(data);
  }

  #closed(data: SimFileData): void {
    this.#openFiles--;
    if (--data.handles === 0) this.#unnamed.delete(data);
  }

  #freeBytes(): number {
    let used = 0;
    for (const [, data] of this.#names.entries()) used += data.size;
    for (const data of this.#unnamed) used += data.size;
    return this.#capacityBytes - used;
  }
}

/** One spelling for each path: no doubled slash, none at the end, no `./` at the start. */
function normal(path: string): string {
  const single = path.replaceAll(/\/{2,}/g, "/").replace(/^\.\/(?=.)/, "");
  return single.length > 1 && single.endsWith("/") ? single.slice(0, -1) : single;
}

function failure(kind: DiskErrorKind, action: string, path: string, detail: string): DiskError {
  return new DiskError(kind, `Cannot ${action} "${path}": ${detail}`);
}
