/**
 * Carries out a plan. First everything that is about to be taken out is kept aside and synced, with a
 * list of what it is; then each file is replaced whole. A crash in between leaves a folder that can be
 * repaired again.
 */
import {
  COMPATIBILITY_FILE,
  encodeCompatibility,
  FORMAT_TEXT,
  OWN_LEVELS,
} from "@sluice/broker/storage/format";
import { BLOCK_HEADER_BYTES, type BlockHeader, type Damage } from "@sluice/shared/log";
import { type Disk, DiskError, type DiskFile, replaceFile } from "@sluice/shared/runtime";
import { nameIn } from "./examination.ts";
import { CannotRunError, type Folder } from "./folder.ts";
import { FILLING_BYTES_MIN, mendBlock, writeFilling } from "./mend.ts";
import type { Plan, Step } from "./plan.ts";

const COPY_BYTES = 1024 * 1024;

/** Bytes of a file, `[from, to)` counted from its start. */
interface Piece {
  /** Relative to the folder. */
  readonly file: string;
  readonly from: number;
  readonly to: number;
}

/** A place of a log file that is written again. */
type Patch =
  | {
    readonly kind: "block";
    readonly header: BlockHeader;
    readonly malformed: Set<number>;
  }
  | {
    readonly kind: "filling";
    readonly from: number;
    readonly to: number;
    readonly epoch: number;
    readonly firstSequence: number;
  };

type Mend = Extract<Step, { kind: "mend" }>;
type Fill = Extract<Step, { kind: "fill" }>;

/** Keeps the damaged bytes in `keepPath`, which is new, and repairs the folder. */
export async function applyPlan(
  disk: Disk,
  folder: Folder,
  plan: Plan,
  keepPath: string,
): Promise<void> {
  const patches = new Map<Mend, Patch[]>();
  for (const step of plan.steps) {
    if (step.kind === "mend") {
      patches.set(step, await findPatches(folder, step));
    }
  }
  const pieces = plan.steps.flatMap((step) => piecesOf(folder, step, patches));
  await keepAside(disk, folder.path, pieces, keepPath, plan);
  for (const [step, list] of patches) await mendFile(disk, folder, step, list);
  for (const step of plan.steps) {
    if (step.kind === "fill") await fillFile(disk, folder, step);
    if (step.kind === "remove") {
      await disk.remove(`${folder.path}/${step.file}`);
    }
  }
  if (plan.steps.some(({ kind }) => kind === "remove")) {
    await disk.syncDirectory(folder.journal);
  }
  for (const step of plan.steps) {
    if (step.kind === "format") {
      await replaceText(disk, `${folder.path}/FORMAT`, FORMAT_TEXT);
    }
    if (step.kind === "compatibility") {
      // All that could be read is known to this release; older ones may have to keep away.
      await replaceFile(
        disk,
        `${folder.path}/${COMPATIBILITY_FILE}`,
        encodeCompatibility(OWN_LEVELS),
      );
    }
    if (step.kind === "meta") {
      await replaceText(
        disk,
        `${folder.path}/broker.meta`,
        `${JSON.stringify(step.meta)}\n`,
      );
    }
  }
}

function replaceText(disk: Disk, path: string, text: string): Promise<void> {
  return replaceFile(disk, path, new TextEncoder().encode(text));
}

/** Which blocks hold the bad records of a file, and where there is no block at all. */
async function findPatches(folder: Folder, { report }: Mend): Promise<Patch[]> {
  const { info, damage } = report;
  const patches: Patch[] = [];
  // An epoch that fits is the one of the block that follows; at the end, of the one before.
  let stamp = { epoch: Math.max(1, report.epoch), firstSequence: 0 };
  let next = 0;
  const fillUpTo = (position: number) => {
    for (
      let one = damage[next];
      one !== undefined && one.position < position;
      one = damage[++next]
    ) {
      patches.push({ kind: "filling", ...fillingOf(one, report), ...stamp });
    }
  };
  await folder.log.walk(info, info.start, info.end, {
    block(header) {
      stamp = { epoch: header.epoch, firstSequence: header.firstSequence };
      fillUpTo(header.position);
      const end = header.position + BLOCK_HEADER_BYTES + header.recordsBytes;
      const malformed = new Set<number>();
      for (
        let one = damage[next];
        one !== undefined && one.position < end;
        one = damage[++next]
      ) {
        malformed.add(one.position);
      }
      if (malformed.size > 0) {
        patches.push({ kind: "block", header, malformed });
      }
    },
    record() {},
  });
  fillUpTo(Infinity);
  return patches;
}

function fillingOf(
  damage: Damage,
  { info, last }: Mend["report"],
): { from: number; to: number } {
  const from = damage.position;
  let to = from + damage.bytes;
  // Nothing follows, so it may grow; blocks end at multiples of 8.
  if (last && to === info.end) {
    to = Math.max(to - (to % 8), from + FILLING_BYTES_MIN);
  }
  if (to - from < BLOCK_HEADER_BYTES) {
    throw new CannotRunError(
      `Cannot repair ${to - from} bytes at position ${from}: no block fits`,
    );
  }
  return { from, to };
}

/** What a step takes out. */
function piecesOf(
  folder: Folder,
  step: Step,
  patches: ReadonlyMap<Mend, readonly Patch[]>,
): Piece[] {
  switch (step.kind) {
    case "mend": {
      const { start, end } = step.report.info;
      const file = nameIn("log", start);
      const pieces = (patches.get(step) ?? []).map((patch): Piece => {
        if (patch.kind === "filling") {
          return { file, from: patch.from - start, to: patch.to - start };
        }
        const { position, recordsBytes } = patch.header;
        const from = position - start;
        return { file, from, to: from + BLOCK_HEADER_BYTES + recordsBytes };
      });
      const { cutTo } = step;
      return cutTo === null ? pieces : [...pieces, { file, from: cutTo - start, to: end - start }];
    }
    case "fill": {
      if (step.instead === null) return [];
      const { start, from, to } = step.instead;
      return [{
        file: nameIn("log", start),
        from: from - start,
        to: to - start,
      }];
    }
    case "remove":
      return [{ file: step.file, from: 0, to: Infinity }];
    case "format":
      return folder.names.includes("FORMAT") ? [{ file: "FORMAT", from: 0, to: Infinity }] : [];
    case "compatibility":
      return [{ file: COMPATIBILITY_FILE, from: 0, to: Infinity }];
    case "meta":
      return folder.names.includes("broker.meta")
        ? [{ file: "broker.meta", from: 0, to: Infinity }]
        : [];
  }
}

/** Copies the pieces and a list of them to a folder of their own, durably. */
async function keepAside(
  disk: Disk,
  root: string,
  pieces: readonly Piece[],
  keepPath: string,
  plan: Plan,
): Promise<void> {
  await disk.makeDirectory(keepPath);
  if ((await disk.list(keepPath)).length > 0) {
    throw new CannotRunError(
      `Cannot keep damaged bytes in "${keepPath}": it is not empty`,
    );
  }
  const kept = [];
  for (const { file, from, to } of pieces) {
    const name = file.replace(/^.*\//, "") +
      (to === Infinity ? "" : `.${from}`);
    const source = await disk.open(`${root}/${file}`, "read");
    try {
      const bytes = Math.max(0, Math.min(to, await source.size()) - from);
      await writeNew(disk, `${keepPath}/${name}`, async (target) => {
        await copy(source, from, target, 0, bytes);
      });
      kept.push({ name, file, at: from, bytes });
    } finally {
      source.close();
    }
  }
  const made = plan.steps.flatMap((step) => step.kind === "fill" ? [nameIn("log", step.from)] : []);
  const list = { kept, made, lost: plan.losses };
  await replaceText(
    disk,
    `${keepPath}/repair.json`,
    `${JSON.stringify(list, null, 2)}\n`,
  );
}

/** Writes a log file again with its patches. */
async function mendFile(
  disk: Disk,
  folder: Folder,
  { report, cutTo }: Mend,
  patches: readonly Patch[],
): Promise<void> {
  const { info, last } = report;
  const path = `${folder.path}/${nameIn("log", info.start)}`;
  const source = await disk.open(path, "read");
  try {
    await replaceWith(disk, path, async (target) => {
      const end = last && cutTo === null ? info.start + await source.size() : cutTo ?? info.end;
      await copy(source, 0, target, 0, end - info.start);
      let patchedTo = info.start;
      for (const patch of patches) {
        if (patch.kind === "filling") {
          await writeFilling(target, info.start, patch.from, patch.to, patch);
          patchedTo = patch.to;
          continue;
        }
        const { header, malformed } = patch;
        const block = new Uint8Array(BLOCK_HEADER_BYTES + header.recordsBytes);
        await source.readAt(header.position - info.start, block);
        mendBlock(block, header, malformed);
        await target.writeAt(header.position - info.start, block);
      }
      // Of a filling that reaches the end, an odd rest is left.
      if (last && patchedTo > info.end - 8 && patchedTo < info.end) {
        await target.truncate(patchedTo - info.start);
      }
    });
  } finally {
    source.close();
  }
}

function fillFile(
  disk: Disk,
  folder: Folder,
  { from, to, epoch }: Fill,
): Promise<void> {
  const path = `${folder.path}/${nameIn("log", from)}`;
  return replaceWith(
    disk,
    path,
    (target) => writeFilling(target, from, from, to, { epoch, firstSequence: 0 }),
  );
}

/** Replaces or makes a file so that a crash leaves the old or the new content, whole. */
async function replaceWith(
  disk: Disk,
  path: string,
  write: (file: DiskFile) => Promise<void>,
): Promise<void> {
  const temporary = `${path}.tmp`;
  await disk.remove(temporary).catch((error) => {
    if (!(error instanceof DiskError) || error.kind !== "not_found") {
      throw error;
    }
  });
  await writeNew(disk, temporary, write);
  await disk.rename(temporary, path);
  await disk.syncDirectory(path.slice(0, path.lastIndexOf("/")));
}

async function writeNew(
  disk: Disk,
  path: string,
  write: (file: DiskFile) => Promise<void>,
): Promise<void> {
  const file = await disk.open(path, "create");
  try {
    await write(file);
    await file.syncData();
  } finally {
    file.close();
  }
}

async function copy(
  source: DiskFile,
  from: number,
  target: DiskFile,
  to: number,
  bytes: number,
): Promise<void> {
  const buffer = new Uint8Array(Math.min(COPY_BYTES, bytes));
  for (let done = 0; done < bytes;) {
    const part = buffer.subarray(0, Math.min(buffer.length, bytes - done));
    const read = await source.readAt(from + done, part);
    if (read === 0) break;
    await target.writeAt(to + done, part.subarray(0, read));
    done += read;
  }
}
