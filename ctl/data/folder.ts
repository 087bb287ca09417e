/**
 * Reaches a data folder without a broker. Reading takes no lock: it asks whether somebody has it,
 * before and after, and with `--read-only` does not even ask.
 */
import {
  checkCompatibility,
  type CompatibilityLevels,
  FIRST_LEVELS,
  FORMAT_TEXT,
  LOG_FOLDER,
  type Meta,
  readCompatibility,
  readMeta,
  ReadOnlyLog,
} from "@sluice/broker/storage/format";
import { LogError } from "@sluice/shared/log";
import { type Disk, DiskError, readWhole } from "@sluice/shared/runtime";
import type { Option } from "../command.ts";

const FORMAT_BYTES_MAX = 65_536;

/** A command that was understood and cannot be done; the message says why. */
export class CannotRunError extends Error {
  override name = "CannotRunError";
}

/** The options of every command that only reads. */
export const READ_OPTIONS: Readonly<Record<string, Option>> = {
  "read-only": {
    help: "look at the folder of a running broker too; results may be mid-flight",
  },
  quiet: { help: "no progress and no notices" },
};

/** What the small files of a folder say. */
export interface Folder {
  readonly path: string;
  /** Where the log is. */
  readonly journal: string;
  readonly names: readonly string[];
  /** What is wrong with FORMAT, or null. */
  readonly formatProblem: string | null;
  /** The levels that the folder needs; null when they are missing or cannot be read. */
  readonly compatibility: CompatibilityLevels | null;
  /** What is wrong with COMPATIBILITY, or null; one that is missing is not judged here. */
  readonly compatibilityProblem: string | null;
  readonly meta: Meta | null;
  /** What is wrong with broker.meta, or null; one that is missing is not judged here. */
  readonly metaProblem: string | null;
  readonly log: ReadOnlyLog;
}

/**
 * Reads the small files of a folder and lists its log. Rejects with {@linkcode CannotRunError} when it
 * is no data folder, and with `LogError` `newer_format` when it takes a newer release to read it.
 */
export async function readFolder(disk: Disk, path: string): Promise<Folder> {
  const names = await namesOf(disk, path);
  if (
    !["FORMAT", "broker.meta", LOG_FOLDER].some((name) => names.includes(name))
  ) {
    throw new CannotRunError(
      `"${path}" is not a data folder: it has no FORMAT and no ${LOG_FOLDER}/`,
    );
  }
  const formatProblem = await checkFormat(disk, path, names);
  const [compatibility, compatibilityProblem] = await readOrProblem(() =>
    readCompatibility(disk, path)
  );
  checkCompatibility(path, compatibility ?? FIRST_LEVELS, "read");
  const [meta, metaProblem] = await readOrProblem(() => readMeta(disk, path));
  const journal = `${path}/${LOG_FOLDER}`;
  const log = await ReadOnlyLog.open(disk, journal);
  return {
    path,
    journal,
    names,
    formatProblem,
    compatibility,
    compatibilityProblem,
    meta,
    metaProblem,
    log,
  };
}

/** What a small file holds, and what is wrong with it; both null when there is none. */
async function readOrProblem<T>(
  read: () => Promise<T | null>,
): Promise<[T | null, string | null]> {
  try {
    return [await read(), null];
  } catch (error) {
    if (!(error instanceof LogError)) throw error;
    return [null, "it cannot be read"];
  }
}

async function namesOf(disk: Disk, path: string): Promise<string[]> {
  try {
    return await disk.list(path);
  } catch (error) {
    if (!(error instanceof DiskError)) throw error;
    throw new CannotRunError(error.message, { cause: error });
  }
}

async function checkFormat(
  disk: Disk,
  path: string,
  names: readonly string[],
): Promise<string | null> {
  if (!names.includes("FORMAT")) return "it is missing";
  const bytes = await readWhole(disk, `${path}/FORMAT`, FORMAT_BYTES_MAX);
  const text = new TextDecoder().decode(bytes);
  if (text === FORMAT_TEXT) return null;
  if (/^sluice-data \d+\n$/.test(text)) {
    throw new LogError(
      "newer_format",
      `Cannot read "${path}": its FORMAT is "${text.trim()}", this release reads ` +
        `"${FORMAT_TEXT.trim()}"`,
    );
  }
  return `it does not hold "${FORMAT_TEXT.trim()}"`;
}

/** Rejects with {@linkcode CannotRunError} when a broker has the folder; `when` is for the message. */
export async function refuseLocked(
  disk: Disk,
  path: string,
  when: "before" | "after",
): Promise<void> {
  // Asking must not make the file.
  if (!(await namesOf(disk, path)).includes("LOCK")) return;
  try {
    (await disk.lock(`${path}/LOCK`)).release();
  } catch (error) {
    if (!(error instanceof DiskError)) throw error;
    if (error.kind !== "locked") {
      throw new CannotRunError(
        `Cannot tell whether a broker uses "${path}" (${error.message}); --read-only does not ask`,
        { cause: error },
      );
    }
    throw new CannotRunError(
      when === "before"
        ? `A broker uses "${path}". Stop it, or look with --read-only: results may be mid-flight`
        : `A broker has taken "${path}" meanwhile: what was read may be mid-flight`,
      { cause: error },
    );
  }
}
