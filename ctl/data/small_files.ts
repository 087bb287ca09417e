/** The small files of a data folder, and its names. */
import { COMPATIBILITY_FILE } from "@sluice/broker/storage/format";
import type { Folder } from "./folder.ts";
import { Findings } from "./examination.ts";

const KNOWN_NAMES = [
  "LOCK",
  "FORMAT",
  "COMPATIBILITY",
  "broker.meta",
  "journal",
  "audit",
  "quarantine",
  "scrub.json",
  "drain.json",
  "management.jsonl",
];

/** Notes what means nothing or is left over. */
export function checkNames({ names, log }: Folder, findings: Findings): void {
  for (const name of names) {
    if (name.endsWith(".tmp")) findings.note(name, "half a replacement; it means nothing");
    else if (!KNOWN_NAMES.includes(name)) findings.note(name, "nothing of ours has this name");
  }
  for (const name of log.names) {
    const match = /^(\d{16})\.(log|idx|ckp)$/.exec(name);
    const file = `journal/${name}`;
    if (name.endsWith(".tmp")) {
      findings.note(file, "half a replacement; a broker removes it at its next start");
    } else if (match === null) {
      findings.note(file, "nothing of ours has this name");
    } else if (match[2] === "idx" && !log.names.includes(`${match[1]}.log`)) {
      findings.note(
        file,
        "the sidecar of a file that is gone; a broker removes it at its next start",
      );
    }
  }
}

/** Notes or reports what is wrong with FORMAT and COMPATIBILITY. */
export function checkFences(folder: Folder, findings: Findings): void {
  const { formatProblem, compatibility, compatibilityProblem } = folder;
  if (formatProblem !== null) findings.damage("FORMAT", formatProblem);
  if (compatibilityProblem !== null) {
    findings.damage(COMPATIBILITY_FILE, compatibilityProblem);
  } else if (compatibility === null) {
    findings.note(
      COMPATIBILITY_FILE,
      "it is missing, which means level 1; a broker writes it at its next start",
    );
  }
}

/** What the log says about the small files. */
export interface LogFacts {
  readonly hasLog: boolean;
  readonly epochMax: number;
  readonly sequenceNext: number;
  readonly nodeIds: readonly number[];
}

/** Holds broker.meta against the log; whether it has to be written again. */
export function checkMeta(folder: Folder, facts: LogFacts, findings: Findings): boolean {
  const { meta, metaProblem } = folder;
  const own = new Findings();
  const file = "broker.meta";
  if (metaProblem !== null) {
    own.damage(file, metaProblem);
  } else if (meta === null) {
    if (facts.hasLog) own.damage(file, "it is missing");
    else own.note(file, "it is missing, as it is in a folder that was never used");
  } else {
    const { epoch, node_id, sequence_reserved } = meta;
    const { epochMax, sequenceNext } = facts;
    if (epoch < epochMax) {
      own.damage(file, `its epoch is ${epoch}, but the log has blocks of epoch ${epochMax}`);
    }
    if (sequence_reserved < sequenceNext) {
      const used = `${sequenceNext - 1} is used`;
      own.damage(file, `it reserves message sequences below ${sequence_reserved}, but ${used}`);
    }
    const foreign = facts.nodeIds.find((nodeId) => nodeId !== node_id);
    if (foreign !== undefined) {
      own.note(file, `it is of node ${node_id}, the log has messages of node ${foreign}`);
    }
  }
  findings.list.push(...own.list);
  return own.list.some(({ severity }) => severity === "damage");
}
