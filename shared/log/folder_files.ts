/** The small files beside a log, by which a folder is known to be what it is taken for. */
import { type Disk, DiskError, readWhole, replaceFile } from "../runtime/mod.ts";
import { LogError } from "./log_store.ts";

const SMALL_FILE_BYTES_MAX = 65_536;

/** A file of at most 64 KiB, null when there is none; rejects with `DiskError`. */
export async function readSmallFile(disk: Disk, path: string): Promise<Uint8Array | null> {
  try {
    return await readWhole(disk, path, SMALL_FILE_BYTES_MAX);
  } catch (error) {
    if (error instanceof DiskError && error.kind === "not_found") return null;
    throw error;
  }
}

/**
 * Makes sure that the folder `path` is of the format `formatText`, all that its file FORMAT holds: one without
 * that file becomes so. Rejects with {@linkcode LogError} `newer_format` when it is of another one.
 */
export async function checkFormat(disk: Disk, path: string, formatText: string): Promise<void> {
  const bytes = await readSmallFile(disk, `${path}/FORMAT`);
  if (bytes === null) {
    await replaceFile(disk, `${path}/FORMAT`, new TextEncoder().encode(formatText));
    return;
  }
  const text = new TextDecoder().decode(bytes);
  if (text === formatText) return;
  throw new LogError(
    "newer_format",
    `Cannot open "${path}": its FORMAT is "${text.trim().slice(0, 40)}", this release reads ` +
      `"${formatText.trim()}"`,
  );
}

/** Whether the folder of a log, which may not be there, has files of one. */
export async function hasLogFiles(disk: Disk, path: string): Promise<boolean> {
  try {
    return (await disk.list(path)).some((name) => name.endsWith(".log"));
  } catch (error) {
    if (error instanceof DiskError && error.kind === "not_found") return false;
    throw error;
  }
}
