/**
 * What a repair would do about what was found, decided without touching anything, and what stands in
 * its way. The order of the steps does not matter to a reader: each leaves the folder better or equal.
 */
import { type Meta, OWN_LEVELS, SEQUENCE_BLOCK } from "@sluice/broker/storage/format";
import { type Examination, type FileReport, hasDamage, nameIn, nameOf } from "./examination.ts";
import type { Folder } from "./folder.ts";
import { FILLING_BYTES_MIN } from "./mend.ts";

/** One thing to do. Files are named relative to the folder. */
export type Step =
  /** Bad bytes become skips; with `cutTo`, what is behind that position goes. */
  | {
    readonly kind: "mend";
    readonly report: FileReport;
    readonly cutTo: number | null;
  }
  /** A file of skips stands in for missing bytes; it replaces one of the same start. */
  | {
    readonly kind: "fill";
    readonly from: number;
    readonly to: number;
    readonly epoch: number;
    /** Bytes of the file before it that cannot be read and that it takes the place of. */
    readonly instead: {
      readonly start: number;
      readonly from: number;
      readonly to: number;
    } | null;
  }
  | { readonly kind: "remove"; readonly file: string; readonly because: string }
  | { readonly kind: "format" }
  | { readonly kind: "compatibility" }
  | { readonly kind: "meta"; readonly meta: Meta };

/** What the person who repairs has said. */
export interface RepairChoices {
  readonly nodeId: number | null;
  readonly acceptGap: boolean;
}

/** See the module. */
export interface Plan {
  readonly steps: readonly Step[];
  /** Why it cannot be done, or not with these choices; empty when it can. */
  readonly obstacles: readonly string[];
  /** What is gone for good, for people. */
  readonly losses: readonly string[];
}

/** Decides what to do about a folder. */
export function planRepair(
  folder: Folder,
  found: Examination,
  choices: RepairChoices,
): Plan {
  const obstacles: string[] = [];
  const steps: Step[] = [];
  const fills = planFills(found);
  const removals = new Map<string, string>();
  for (const report of found.files) {
    const { start } = report.info;
    const fill = fills.find(({ from, instead }) => instead?.start === start || from === start);
    const isReplaced = fill?.from === start;
    // What lies behind the last good block is the filling's.
    const kept = fill === undefined ? report : {
      ...report,
      damage: report.damage.filter(({ position }) => position < report.blocksEnd),
    };
    const cutTo = report.tornBytes > 0 ? report.end : null;
    if (!isReplaced && (kept.damage.length > 0 || cutTo !== null)) {
      steps.push({ kind: "mend", report: kept, cutTo });
    }
    if (report.sidecar === "damaged") {
      removals.set(nameIn("idx", start), "it is damaged");
    } else if (
      report.sidecar === "good" && (report.damage.length > 0 || isReplaced)
    ) {
      removals.set(nameIn("idx", start), "it names records that are gone");
    }
  }
  steps.push(...fills);
  for (const { from } of fills) {
    const sidecar = nameIn("idx", from);
    const isLeft = folder.log.names.some((name) => `journal/${name}` === sidecar);
    if (isLeft && !removals.has(sidecar)) {
      removals.set(sidecar, "its file is gone");
    }
  }
  for (const { position, problem } of found.checkpoints) {
    if (problem !== null) {
      removals.set(nameIn("ckp", position), "it is damaged");
    }
  }
  for (const [file, because] of removals) {
    steps.push({ kind: "remove", file, because });
  }
  if (folder.formatProblem !== null) steps.push({ kind: "format" });
  // One that is missing means level 1, and the next start writes it.
  if (folder.compatibilityProblem !== null) steps.push({ kind: "compatibility" });
  if (found.metaIsBad) {
    const meta = planMeta(folder, found, choices);
    if (typeof meta === "string") obstacles.push(meta);
    else steps.push({ kind: "meta", meta });
  }
  if (found.gaps.length > 0 && !choices.acceptGap) {
    obstacles.push(
      "bytes of the log are missing; if they cannot be brought back: --accept-gap",
    );
  }
  if (found.isStateLost) {
    obstacles.push(
      "no checkpoint can be read and the log before the first file is gone: what channels have " +
        "finished is not known any more. Restore the folder from a backup",
    );
  }
  const writer = folder.compatibility?.writer ?? 0;
  if (steps.length > 0 && writer > OWN_LEVELS.writer) {
    obstacles.push(
      `a newer release has used the folder: to write to it takes writer level ${writer}, this ` +
        `release has ${OWN_LEVELS.writer}. Repair with that release or a later one`,
    );
  }
  if (steps.length === 0 && obstacles.length === 0 && hasDamage(found)) {
    obstacles.push(
      "what is wrong here cannot be repaired. Restore the folder from a backup",
    );
  }
  return { steps, obstacles, losses: lossesOf(found) };
}

type Fill = Extract<Step, { kind: "fill" }>;

function planFills(found: Examination): Fill[] {
  return found.gaps.map((gap) => {
    const before = found.files.findLast(({ info }) => info.start <= gap.from);
    const next = found.files.find(({ info }) => info.start >= gap.to && info.start > gap.from);
    if (before === undefined) {
      const to = next === undefined ? gap.to + FILLING_BYTES_MIN : gap.to;
      return {
        kind: "fill",
        from: Math.max(0, Math.min(gap.from, to - FILLING_BYTES_MIN)),
        to,
        epoch: 1,
        instead: null,
      };
    }
    const from = before.blocksEnd;
    return {
      kind: "fill",
      from,
      to: next === undefined ? Math.max(gap.to, from + FILLING_BYTES_MIN) : gap.to,
      epoch: Math.max(1, before.epoch),
      instead: from < before.info.end
        ? { start: before.info.start, from, to: before.info.end }
        : null,
    };
  });
}

/** The meta to write, or why that cannot be done. */
function planMeta(
  folder: Folder,
  found: Examination,
  choices: RepairChoices,
): Meta | string {
  const { meta } = folder;
  const [inLog] = found.nodeIds;
  const nodeId = meta?.node_id ?? choices.nodeId;
  if (nodeId === null) {
    return "broker.meta is gone; say which node this is: --node-id" +
      (inLog === undefined ? "" : ` (the messages in the log are of node ${inLog})`);
  }
  if (meta === null && inLog !== undefined && inLog !== nodeId) {
    return `the messages in the log are of node ${inLog}, not of node ${nodeId}`;
  }
  return {
    node_id: nodeId,
    epoch: Math.max(meta?.epoch ?? 0, found.epochMax + 1),
    // Room for messages whose bytes were lost with the meta: their ids were given out.
    sequence_reserved: Math.max(
      meta?.sequence_reserved ?? 0,
      found.sequenceNext + SEQUENCE_BLOCK,
    ),
  };
}

function lossesOf(found: Examination): string[] {
  const losses: string[] = [];
  const bad = found.files.flatMap(({ damage }) => damage);
  if (bad.length > 0) {
    const bytes = bad.reduce((sum, one) => sum + one.bytes, 0);
    losses.push(
      `${bytes} bytes of the log in ${bad.length} places, which cannot be read`,
    );
  }
  for (const { from, to } of found.gaps) {
    losses.push(`the log from position ${from} to ${to}, which is not there`);
  }
  const torn = found.files.reduce((sum, { tornBytes }) => sum + tornBytes, 0);
  if (torn > 0) {
    losses.push(
      `a torn group of ${torn} bytes, which nobody was told is stored`,
    );
  }
  if (bad.length === 0 && found.gaps.length === 0) return losses;
  for (const { topic, from, to } of found.lost) {
    losses.push(
      `messages of topic ${nameOf(found, topic)}: offsets ${from} to ${to - 1}`,
    );
  }
  const orphans = found.state?.state.orphanRecords ?? 0;
  if (orphans > 0) {
    losses.push(`${orphans} records of topics or channels that nothing else knows of`);
  }
  losses.push(
    "messages at the end of a topic, and decisions in those bytes: what they finished is " +
      "delivered again, what they requeued loses its delay",
  );
  return losses;
}
