/** `sluicectl data verify`: reads everything in a folder and says what is wrong with it. */
import { type Command, EXIT_DAMAGE, EXIT_DONE, print } from "../command.ts";
import { bytesText, Progress, ReadingDisk } from "../progress.ts";
import { type Examination, type Finding, hasDamage } from "./examination.ts";
import { examine } from "./examine.ts";
import { READ_OPTIONS, readFolder, refuseLocked } from "./folder.ts";

/** Findings that are printed for people; `--json` gives all. */
const FINDINGS_SHOWN_MAX = 200;

/** The command. */
export const verifyCommand: Command = {
  name: "verify",
  summary: "Read a whole data folder and report all damage.",
  positionals: ["DIR"],
  options: { json: { help: "the report as one JSON object" }, ...READ_OPTIONS },
  description: [
    "Checks the small files, the names, gaps between files, every block and every record, the\n" +
    "sidecars against their files, the checkpoints, and that the state can be rebuilt from them.",
    "Damage is what cost something or would stop a broker. A note is what a broker mends by itself\n" +
    "at its next start, such as a group that a crash cut short; notes leave the exit code at 0.",
  ],
  examples: [
    ["data verify /var/lib/sluice", "check the folder of a stopped broker"],
    [
      "data verify --read-only --json backup/sluice",
      "check a copy that must not be touched",
    ],
  ],
  async run(input, world) {
    const path = input.positional(0);
    const readOnly = input.flag("read-only");
    if (readOnly && !input.flag("quiet")) {
      world.err(
        "read-only: if a broker is running, results may be mid-flight\n",
      );
    }
    if (!readOnly) await refuseLocked(world.disk, path, "before");
    const progress = new Progress(world, input.flag("quiet"));
    const disk = new ReadingDisk(world.disk, progress);
    const found = await examine(await readFolder(disk, path), progress);
    if (!readOnly) await refuseLocked(world.disk, path, "after");
    print(
      world,
      input.flag("json") ? jsonReport(path, found) : textReport(path, found),
    );
    return hasDamage(found) ? EXIT_DAMAGE : EXIT_DONE;
  },
};

/** The report for people. */
export function textReport(path: string, found: Examination): string {
  const { files, findings } = found;
  const bytes = files.reduce((sum, { info, end }) => sum + end - info.start, 0);
  const total = (field: "blocks" | "records" | "messages") =>
    files.reduce((sum, file) => sum + file[field], 0);
  const lines = findings.slice(0, FINDINGS_SHOWN_MAX).map(findingText);
  if (findings.length > lines.length) {
    lines.push(`and ${findings.length - lines.length} more`);
  }
  const damaged = findings.filter(({ severity }) => severity === "damage").length;
  return [
    ...lines,
    `${path}: ${files.length} files, ${bytesText(bytes)}, ${total("blocks")} blocks, ` +
    `${total("records")} records, ${total("messages")} messages, ` +
    `${found.checkpoints.length} checkpoints`,
    damaged === 0 ? "clean" : `damaged: ${damaged} findings`,
    "",
  ].join("\n");
}

/** `damage  journal/0000000000000000.log  the record's checksum is wrong (72 bytes at position 4096)`. */
export function findingText(
  { severity, file, text, position, bytes }: Finding,
): string {
  const where = position === undefined ? "" : ` (${bytes} bytes at position ${position})`;
  return `${severity.padEnd(6)}  ${file}  ${text}${where}`;
}

function jsonReport(path: string, found: Examination): string {
  const { files, checkpoints, findings, lost } = found;
  const report = {
    path,
    clean: !hasDamage(found),
    findings,
    files: files.map((
      { info, end, tornBytes, blocks, records, messages, sidecar },
    ) => ({
      start: info.start,
      end,
      torn_bytes: tornBytes,
      blocks,
      records,
      messages,
      sidecar,
    })),
    checkpoints: checkpoints.map(({ position, problem }) => ({
      position,
      problem,
    })),
    lost_messages: lost,
  };
  return `${JSON.stringify(report, null, 2)}\n`;
}
