/** What `sluicectl` can do, and how its errors become exit codes. */
import { LogError } from "@sluice/shared/log";
import { DiskError } from "@sluice/shared/runtime";
import { channelCommands, topicCommands } from "./admin.ts";
import { deferredCommands, moveCommand, peekCommand } from "./admin_messages.ts";
import { type CommandGroup, EXIT_CANNOT_RUN, runCommandLine, type World } from "./command.ts";
import { dumpCommand } from "./data/dump.ts";
import { CannotRunError } from "./data/folder.ts";
import { inspectCommand } from "./data/inspect.ts";
import { repairCommand } from "./data/repair.ts";
import { verifyCommand } from "./data/verify.ts";
import { drainCommands } from "./drain.ts";
import { quarantineCommands } from "./quarantine.ts";

export type { World } from "./command.ts";

const ROOT: CommandGroup = {
  name: "sluicectl",
  summary: "Tools for Sluice.",
  commands: [
    {
      name: "data",
      summary: "Look at, check and repair a data folder without a broker.",
      commands: [inspectCommand, verifyCommand, dumpCommand, repairCommand],
    },
    topicCommands,
    channelCommands,
    peekCommand,
    deferredCommands,
    moveCommand,
    drainCommands,
    quarantineCommands,
  ],
};

/** Does what the arguments say; resolves with the exit code. Errors of ours are thrown on. */
export async function run(
  args: readonly string[],
  world: World,
): Promise<number> {
  try {
    return await runCommandLine(ROOT, args, world);
  } catch (error) {
    const expected = error instanceof CannotRunError ||
      error instanceof DiskError ||
      error instanceof LogError;
    if (!expected) throw error;
    world.err(`${error.message}\n`);
    return EXIT_CANNOT_RUN;
  }
}
