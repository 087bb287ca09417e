/** `sluicectl data repair`: says what a repair would do and, when told to, does it. */
import { COMPATIBILITY_FILE, NODE_ID_MAX, OWN_LEVELS } from "@sluice/broker/storage/format";
import { DiskError, type DiskLock } from "@sluice/shared/runtime";
import {
  type Command,
  EXIT_CANNOT_RUN,
  EXIT_DAMAGE,
  EXIT_DONE,
  type Input,
  print,
  type World,
} from "../command.ts";
import { bytesText, Progress, ReadingDisk } from "../progress.ts";
import { applyPlan } from "./apply.ts";
import { type Examination, hasDamage, nameIn } from "./examination.ts";
import { examine } from "./examine.ts";
import { CannotRunError, type Folder, readFolder, refuseLocked } from "./folder.ts";
import { type Plan, planRepair, type Step } from "./plan.ts";
import { findingText, textReport } from "./verify.ts";

/** The command. */
export const repairCommand: Command = {
  name: "repair",
  summary: "Take damage out of a data folder, so that a broker opens it.",
  positionals: ["DIR"],
  options: {
    yes: { help: "do it; without, the plan is printed and nothing is changed" },
    keep: {
      value: "FOLDER",
      help: "where damaged bytes are kept; DIR/quarantine/TIME otherwise",
    },
    "node-id": {
      value: "N",
      help: "this broker's node id, when broker.meta is gone",
    },
    "accept-gap": { help: "give up bytes of the log that are not there" },
    quiet: { help: "no progress" },
  },
  description: [
    "Nothing that can be read is lost by it: what is lost is what verify reports as damage. Bad bytes\n" +
    "are replaced by bytes that mean nothing, so that everything else stays where it is; sidecars\n" +
    "that are wrong are removed, and a broker makes them again. Everything that is taken out is kept\n" +
    "aside with a list, repair.json, of where it was.",
    "The folder must not be in use; it is locked meanwhile. Make a copy first if you can.",
  ],
  examples: [
    ["data repair /var/lib/sluice", "what would be done, and what is lost?"],
    ["data repair /var/lib/sluice --yes", "do it"],
    [
      "data repair /var/lib/sluice --yes --node-id 3",
      "broker.meta is gone; this was node 3",
    ],
  ],
  async run(input, world) {
    const path = input.positional(0);
    if (!input.flag("yes")) {
      await refuseLocked(world.disk, path, "before");
      return await repair(input, world, path);
    }
    // Not before it is known to be a data folder: the lock file is made when it is missing.
    await readFolder(world.disk, path);
    const lock = await lockFolder(world, path);
    try {
      return await repair(input, world, path);
    } finally {
      lock.release();
    }
  },
};

async function lockFolder(world: World, path: string): Promise<DiskLock> {
  try {
    return await world.disk.lock(`${path}/LOCK`);
  } catch (error) {
    if (!(error instanceof DiskError) || error.kind !== "locked") throw error;
    throw new CannotRunError(`A broker uses "${path}". Stop it first`, {
      cause: error,
    });
  }
}

async function repair(
  input: Input,
  world: World,
  path: string,
): Promise<number> {
  const { folder, found } = await look(input, world, path);
  const plan = planRepair(folder, found, {
    nodeId: input.integer("node-id", NODE_ID_MAX),
    acceptGap: input.flag("accept-gap"),
  });
  if (plan.steps.length === 0 && plan.obstacles.length === 0) {
    print(world, "nothing to repair\n");
    return EXIT_DONE;
  }
  print(world, planText(found, plan));
  if (plan.obstacles.length > 0) {
    return input.flag("yes") ? EXIT_CANNOT_RUN : EXIT_DAMAGE;
  }
  if (!input.flag("yes")) {
    print(world, "Nothing was changed. To do it: --yes\n");
    return hasDamage(found) ? EXIT_DAMAGE : EXIT_DONE;
  }
  const time = new Date(world.clock.wallMs()).toISOString().replaceAll(
    /[-:]/g,
    "",
  );
  const keepPath = input.text("keep") ?? `${path}/quarantine/${time}`;
  await applyPlan(world.disk, folder, plan, keepPath);
  print(world, `Done. What was taken out is in ${keepPath}\n\n`);
  const after = (await look(input, world, path)).found;
  print(world, textReport(path, after));
  return hasDamage(after) ? EXIT_DAMAGE : EXIT_DONE;
}

async function look(
  input: Input,
  world: World,
  path: string,
): Promise<{ folder: Folder; found: Examination }> {
  const progress = new Progress(world, input.flag("quiet"));
  const folder = await readFolder(new ReadingDisk(world.disk, progress), path);
  return { folder, found: await examine(folder, progress) };
}

function planText(found: Examination, plan: Plan): string {
  const part = (title: string, lines: readonly string[]) =>
    lines.length === 0 ? [] : [title, ...lines.map((line) => `  ${line}`), ""];
  return [
    ...part("Found:", found.findings.map(findingText)),
    ...part("To do:", plan.steps.map(stepText)),
    ...part(
      "Lost for good:",
      plan.losses.length === 0 ? ["nothing"] : plan.losses,
    ),
    ...part("In the way:", plan.obstacles),
  ].join("\n");
}

function stepText(step: Step): string {
  switch (step.kind) {
    case "mend": {
      const { report, cutTo } = step;
      const deeds = [
        ...report.damage.length > 0 ? [`take out ${report.damage.length} damaged places`] : [],
        ...cutTo === null ? [] : [`cut off the torn group at its end (${report.tornBytes} bytes)`],
      ];
      return `${nameIn("log", report.info.start)}: ${deeds.join(", ")}`;
    }
    case "fill":
      return `${nameIn("log", step.from)}: make a file of ${bytesText(step.to - step.from)} ` +
        "without content for what is missing";
    case "remove":
      return `${step.file}: remove, ${step.because}`;
    case "format":
      return "FORMAT: write again";
    case "compatibility":
      return `${COMPATIBILITY_FILE}: write this release's levels, reader ${OWN_LEVELS.reader} and ` +
        `writer ${OWN_LEVELS.writer}`;
    case "meta": {
      const { node_id, epoch, sequence_reserved } = step.meta;
      return `broker.meta: write node ${node_id}, epoch ${epoch}, message sequences below ` +
        `${sequence_reserved} reserved`;
    }
  }
}
