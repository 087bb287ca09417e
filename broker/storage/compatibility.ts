/**
 * The feature levels of a data folder, in its file COMPATIBILITY: what a release must know at least to
 * read the folder, and to write to it.
 *
 * - FORMAT says which kind of folder it is; the levels say which later additions are in use. A folder
 *   without the file is of level 1.
 * - Levels are raised by the feature that needs them, when it is first used, and never lowered: a
 *   release that is too old refuses the folder instead of passing over what it does not know.
 * - Whoever writes also reads, so the writer level is never below the reader level.
 * - Further fields are a newer release's; they mean nothing to this one and are kept.
 * - Assumed: only the holder of the folder's lock raises, one at a time.
 */
import { LogError, readSmallFile } from "@sluice/shared/log";
import { type Disk, invariant, replaceFile } from "@sluice/shared/runtime";

/** The file, beside FORMAT. */
export const COMPATIBILITY_FILE = "COMPATIBILITY";
/** Level 2: topics have policies, an event and an entry of checkpoints. */
export const POLICY_LEVELS: CompatibilityLevels = { reader: 2, writer: 2 };
/** Level 3: there are large messages, or parts of them, and an entry of checkpoints about them. */
export const LARGE_MESSAGE_LEVELS: CompatibilityLevels = { reader: 3, writer: 3 };
/** Level 4: messages name their producers, and checkpoints have entries about them. */
export const PRODUCER_LEVELS: CompatibilityLevels = { reader: 4, writer: 4 };
/**
 * A log that still has its first file was compacted: without a checkpoint a release that does not know
 * that would not miss the events in it. Of a log whose first file is gone every release refuses that.
 */
export const COMPACTED_START_LEVELS: CompatibilityLevels = POLICY_LEVELS;
/** This release reads folders up to this level. */
export const READER_LEVEL = 4;
/** This release writes to folders up to this level. */
export const WRITER_LEVEL = 4;
/** No release comes near it; a number above it is damage. */
const LEVEL_MAX = 65_535;

/** What a release must know at least: `reader` to read a folder, `writer` to write to it. */
export interface CompatibilityLevels {
  readonly reader: number;
  readonly writer: number;
}

/** The levels of a new folder, and of one that has no file. */
export const FIRST_LEVELS: CompatibilityLevels = { reader: 1, writer: 1 };

/** All that this release can do. */
export const OWN_LEVELS: CompatibilityLevels = { reader: READER_LEVEL, writer: WRITER_LEVEL };

/** Reads the levels, null when there is no file; rejects with {@linkcode LogError} `damaged`. */
export async function readCompatibility(
  disk: Disk,
  path: string,
): Promise<CompatibilityLevels | null> {
  const content = await readContent(disk, path);
  return content === null ? null : { reader: content.reader, writer: content.writer };
}

/**
 * Throws {@linkcode LogError} `newer_format` when a release that knows up to `own` must not do this with
 * the folder. To write is also to read.
 */
export function checkCompatibility(
  path: string,
  needed: CompatibilityLevels,
  intent: "read" | "write",
  own: CompatibilityLevels = OWN_LEVELS,
): void {
  const mayRead = needed.reader <= own.reader;
  const mayWrite = needed.writer <= own.writer;
  if (mayRead && (mayWrite || intent === "read")) return;
  throw new LogError(
    "newer_format",
    `Cannot ${intent === "read" ? "read" : "open"} "${path}": it needs a release of reader level ` +
      `${needed.reader} and writer level ${needed.writer}, this one has ${own.reader} and ` +
      `${own.writer}. A newer release has used it: use that one or a later one, or a copy from ` +
      "before the upgrade",
  );
}

/** Writes the file whole; what stands there is lost. To raise is {@linkcode raiseCompatibility}. */
export function writeCompatibility(
  disk: Disk,
  path: string,
  levels: CompatibilityLevels,
): Promise<void> {
  return replaceFile(disk, `${path}/${COMPATIBILITY_FILE}`, encodeCompatibility(levels));
}

/** The content of the file. */
export function encodeCompatibility(levels: CompatibilityLevels): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(levels) + "\n");
}

/**
 * Has releases below `levels` refuse the folder from now on; a level that is higher already stays. It
 * holds, also after a power cut, once this has resolved: before anything is written that needs it.
 */
export async function raiseCompatibility(
  disk: Disk,
  path: string,
  levels: CompatibilityLevels,
  own: CompatibilityLevels = OWN_LEVELS,
): Promise<CompatibilityLevels> {
  invariant(
    levels.reader <= own.reader && levels.writer <= own.writer,
    "a release raises levels to those it knows",
  );
  const content = await readContent(disk, path) ?? FIRST_LEVELS;
  const reader = Math.max(content.reader, levels.reader);
  const raised = { reader, writer: Math.max(content.writer, levels.writer, reader) };
  if (raised.reader > content.reader || raised.writer > content.writer) {
    await writeCompatibility(disk, path, { ...content, ...raised });
  }
  return raised;
}

async function readContent(disk: Disk, path: string): Promise<CompatibilityLevels | null> {
  const bytes = await readSmallFile(disk, `${path}/${COMPATIBILITY_FILE}`);
  if (bytes === null) return null;
  let content: Partial<CompatibilityLevels>;
  try {
    content = (JSON.parse(new TextDecoder().decode(bytes)) ?? {}) as Partial<CompatibilityLevels>;
  } catch (error) {
    throw damaged(path, error);
  }
  const { reader, writer } = content;
  if (!isLevel(reader) || !isLevel(writer) || reader > writer) throw damaged(path);
  return { ...content, reader, writer };
}

function damaged(path: string, cause?: unknown): LogError {
  return new LogError(
    "damaged",
    `Cannot open "${path}": ${COMPATIBILITY_FILE} is damaged; sluicectl data repair writes it again`,
    cause === undefined ? {} : { cause },
  );
}

function isLevel(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= LEVEL_MAX;
}
