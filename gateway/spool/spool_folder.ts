/**
 * The small files of a spool's folder and what they fence off.
 *
 * ```
 * LOCK       held while a gateway uses the folder
 * FORMAT     "sluice-spool 1\n"; anything else is refused
 * spool.meta JSON: epoch (grows at each start)
 * journal/   the log
 * ```
 */
import {
  type Disk,
  DiskError,
  type DiskLock,
  readWhole,
  replaceFile,
} from "@sluice/shared/runtime";
import { LogError } from "@sluice/shared/log";

/** All that FORMAT holds. */
export const SPOOL_FORMAT_TEXT = "sluice-spool 1\n";
/** Where the log is in the folder of a spool. */
export const SPOOL_LOG_FOLDER = "journal";
const META_BYTES_MAX = 65_536;
const EPOCH_MAX = 2 ** 32 - 2;

/** An opened folder: nobody else has it, and its epoch is above all before. */
export interface SpoolFolder {
  readonly epoch: number;
  readonly lock: DiskLock;
}

/**
 * Opens or makes the folder. Rejects with `DiskError` `locked` when another gateway has it, and with
 * {@linkcode LogError} when it is of another format or its spool.meta is damaged or gone.
 */
export async function openSpoolFolder(disk: Disk, path: string): Promise<SpoolFolder> {
  await disk.makeDirectory(path);
  const lock = await disk.lock(`${path}/LOCK`);
  try {
    await checkFormat(disk, path);
    const before = await readEpoch(disk, path);
    if (before === null && await hasLog(disk, path)) {
      // Starting over would use the log's epochs again.
      throw new LogError("damaged", `Cannot open "${path}": there is a log, but no spool.meta`);
    }
    const epoch = (before ?? 0) + 1;
    const bytes = new TextEncoder().encode(JSON.stringify({ epoch }) + "\n");
    await replaceFile(disk, `${path}/spool.meta`, bytes);
    return { epoch, lock };
  } catch (error) {
    lock.release();
    throw error;
  }
}

async function checkFormat(disk: Disk, path: string): Promise<void> {
  const bytes = await readIfThere(disk, `${path}/FORMAT`);
  if (bytes === null) {
    await replaceFile(disk, `${path}/FORMAT`, new TextEncoder().encode(SPOOL_FORMAT_TEXT));
    return;
  }
  const text = new TextDecoder().decode(bytes);
  if (text === SPOOL_FORMAT_TEXT) return;
  throw new LogError(
    "newer_format",
    `Cannot open "${path}": its FORMAT is "${text.trim().slice(0, 40)}", this release reads ` +
      `"${SPOOL_FORMAT_TEXT.trim()}"`,
  );
}

async function readEpoch(disk: Disk, path: string): Promise<number | null> {
  const bytes = await readIfThere(disk, `${path}/spool.meta`);
  if (bytes === null) return null;
  let epoch: unknown;
  try {
    epoch = (JSON.parse(new TextDecoder().decode(bytes)) as { epoch?: unknown } | null)?.epoch;
  } catch (error) {
    throw new LogError("damaged", `Cannot open "${path}": spool.meta is damaged`, {
      cause: error,
    });
  }
  if (
    typeof epoch !== "number" || !Number.isInteger(epoch) || epoch < 0 || epoch >= EPOCH_MAX
  ) {
    throw new LogError("damaged", `Cannot open "${path}": spool.meta is damaged`);
  }
  return epoch;
}

async function hasLog(disk: Disk, path: string): Promise<boolean> {
  try {
    const names = await disk.list(`${path}/${SPOOL_LOG_FOLDER}`);
    return names.some((name) => name.endsWith(".log"));
  } catch (error) {
    if (error instanceof DiskError && error.kind === "not_found") return false;
    throw error;
  }
}

async function readIfThere(disk: Disk, path: string): Promise<Uint8Array | null> {
  try {
    return await readWhole(disk, path, META_BYTES_MAX);
  } catch (error) {
    if (error instanceof DiskError && error.kind === "not_found") return null;
    throw error;
  }
}
