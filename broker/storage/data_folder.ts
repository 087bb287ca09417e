/**
 * The small files of a data folder and what they fence off.
 *
 * ```
 * LOCK          held while a broker uses the folder
 * FORMAT        "sluice-data 1\n"; anything else is refused
 * COMPATIBILITY JSON: the levels that a release needs to read the folder and to write to it
 * broker.meta   JSON: node_id, epoch (grows at each start), sequence_reserved (message sequences below
 *               it may have been used, whatever became of the messages)
 * journal/      the commit log
 * ```
 */
import { checkFormat, hasLogFiles, LogError, readSmallFile } from "@sluice/shared/log";
import { type Disk, type DiskLock, replaceFile } from "@sluice/shared/runtime";
import {
  checkCompatibility,
  type CompatibilityLevels,
  FIRST_LEVELS,
  readCompatibility,
  writeCompatibility,
} from "./compatibility.ts";

/** What kind of folder it is. */
export const DATA_FORMAT = "sluice-data 1";
/** All that FORMAT holds. */
export const FORMAT_TEXT = `${DATA_FORMAT}\n`;
/** Where the log is in a data folder. Not `log`: that is where people put what a broker prints. */
export const LOG_FOLDER = "journal";
/** Sequences reserved at a time: one small write for so many messages. */
export const SEQUENCE_BLOCK = 2 ** 24;
export const NODE_ID_MAX = 2 ** 16 - 1;

/** The content of broker.meta. */
export interface Meta {
  readonly node_id: number;
  readonly epoch: number;
  readonly sequence_reserved: number;
}

/** An opened data folder: nobody else has it, and its epoch and first sequence are new. */
export class DataFolder {
  #reserved: number;

  private constructor(
    readonly disk: Disk,
    readonly path: string,
    readonly nodeId: number,
    /** Above every epoch used in this folder before. */
    readonly epoch: number,
    /** The first message sequence never used before. */
    readonly firstSequence: number,
    readonly lock: DiskLock,
    /** When it was opened. */
    readonly levels: CompatibilityLevels,
  ) {
    this.#reserved = firstSequence + SEQUENCE_BLOCK;
  }

  /**
   * Opens or makes the folder. Rejects with `DiskError` `locked` when another broker has it and with
   * {@linkcode LogError} when it is of another format or needs a newer release. The node id is fixed when the folder is made:
   * a `nodeId` that was asked for and differs is refused, since the ids in the log carry it.
   */
  static async open(
    disk: Disk,
    path: string,
    nodeId: { readonly value: number; readonly required: boolean },
  ): Promise<DataFolder> {
    await disk.makeDirectory(path);
    const lock = await disk.lock(`${path}/LOCK`);
    try {
      await checkFormat(disk, path, FORMAT_TEXT);
      const levels = await readCompatibility(disk, path);
      checkCompatibility(path, levels ?? FIRST_LEVELS, "write");
      const stored = await readMeta(disk, path);
      if (stored === null && await hasLogFiles(disk, `${path}/${LOG_FOLDER}`)) {
        // Starting over would use the log's epochs and message ids again.
        throw new LogError("damaged", `Cannot open "${path}": there is a log, but no broker.meta`);
      }
      if (stored !== null && nodeId.required && stored.node_id !== nodeId.value) {
        throw new LogError(
          "foreign",
          `Cannot open "${path}": it belongs to node ${stored.node_id}, not to node ${nodeId.value}`,
        );
      }
      const folder = new DataFolder(
        disk,
        path,
        stored?.node_id ?? nodeId.value,
        (stored?.epoch ?? 0) + 1,
        stored?.sequence_reserved ?? 1,
        lock,
        levels ?? FIRST_LEVELS,
      );
      if (levels === null) await writeCompatibility(disk, path, FIRST_LEVELS);
      await folder.#writeMeta();
      return folder;
    } catch (error) {
      lock.release();
      throw error;
    }
  }

  /** Sequences below may be used. */
  get reserved(): number {
    return this.#reserved;
  }

  /** Reserves another block; the new bound holds once this has resolved. */
  async reserveMore(): Promise<void> {
    const reserved = this.#reserved + SEQUENCE_BLOCK;
    await this.#writeMeta(reserved);
    this.#reserved = reserved;
  }

  #writeMeta(reserved = this.#reserved): Promise<void> {
    const meta: Meta = { node_id: this.nodeId, epoch: this.epoch, sequence_reserved: reserved };
    const bytes = new TextEncoder().encode(JSON.stringify(meta) + "\n");
    return replaceFile(this.disk, `${this.path}/broker.meta`, bytes);
  }
}

/** Reads broker.meta, null when there is none; rejects with {@linkcode LogError} `damaged`. */
export async function readMeta(disk: Disk, path: string): Promise<Meta | null> {
  const bytes = await readSmallFile(disk, `${path}/broker.meta`);
  if (bytes === null) return null;
  let meta: Partial<Meta>;
  try {
    meta = (JSON.parse(new TextDecoder().decode(bytes)) ?? {}) as Partial<Meta>;
  } catch (error) {
    throw new LogError("damaged", `Cannot open "${path}": broker.meta is damaged`, {
      cause: error,
    });
  }
  const { node_id, epoch, sequence_reserved } = meta;
  if (
    !isCount(node_id, NODE_ID_MAX) || !isCount(epoch, 2 ** 32 - 2) || !isCount(sequence_reserved)
  ) {
    throw new LogError("damaged", `Cannot open "${path}": broker.meta is damaged`);
  }
  return { node_id, epoch, sequence_reserved };
}

function isCount(value: unknown, max = 2 ** 48): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= max;
}
