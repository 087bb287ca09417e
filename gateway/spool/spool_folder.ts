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
import { checkFormat, hasLogFiles, LogError, readSmallFile } from "@sluice/shared/log";
import { type Disk, type DiskLock, replaceFile } from "@sluice/shared/runtime";

/** All that FORMAT holds. */
export const SPOOL_FORMAT_TEXT = "sluice-spool 1\n";
/** Where the log is in the folder of a spool. */
export const SPOOL_LOG_FOLDER = "journal";
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
    await checkFormat(disk, path, SPOOL_FORMAT_TEXT);
    const before = await readEpoch(disk, path);
    if (before === null && await hasLogFiles(disk, `${path}/${SPOOL_LOG_FOLDER}`)) {
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

async function readEpoch(disk: Disk, path: string): Promise<number | null> {
  const bytes = await readSmallFile(disk, `${path}/spool.meta`);
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
