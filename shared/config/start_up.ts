/**
 * How every service begins: settings from the command line, the environment and a file; `--help` and
 * `--version` answered; a logger that has said which settings are not the defaults.
 */
import { type Clock, NSQ_VERSION, SLUICE_VERSION } from "../runtime/mod.ts";
import { Logger, REPEATS_DEFAULT } from "../telemetry/mod.ts";
import { helpText } from "./describe.ts";
import { type LoadedSettings, loadSettings } from "./load.ts";
import type { logSettings } from "./log_settings.ts";
import { Reloader } from "./reload.ts";
import { type Declaration, environmentNames, type Settings, type ValuesOf } from "./setting.ts";

type LogSettings = ReturnType<typeof logSettings>;

/** The process as a start may see it. */
export interface StartUpWorld {
  readonly args: readonly string[];
  /** One variable of the environment: a service may not read all of it. */
  readonly env: (name: string) => string | undefined;
  /** Reads the file named by `--config`; may throw. */
  readonly readFile: (path: string) => string;
  /** Takes what was asked for with `--help` or `--version`. */
  readonly print: (text: string) => void;
  /** Takes the lines of the log. */
  readonly log: (line: string) => void;
  readonly clock: Pick<Clock, "wallMs" | "setTimer">;
}

/** What a service runs with. */
export interface StartedUp<S extends Settings> extends LoadedSettings<S> {
  readonly logger: Logger;
  /** Reads the settings once more, from the same places. Throws `SettingsError`. */
  readonly read: () => LoadedSettings<S>;
}

/** Null when the command line asked a question, which is answered. Throws `SettingsError`. */
export function startUp<S extends Settings & LogSettings>(
  declaration: Declaration<S>,
  world: StartUpWorld,
): StartedUp<S> | null {
  const { program } = declaration;
  const read = () => {
    const names = environmentNames(declaration);
    const env = Object.fromEntries(names.map((name) => [name, world.env(name)]));
    return loadSettings(declaration, { args: world.args, env, readFile: world.readFile });
  };
  const loaded = read();
  const versionText = `${program} v${SLUICE_VERSION} (compatible with NSQ ${NSQ_VERSION})`;
  if (loaded.request !== "run") {
    world.print(loaded.request === "help" ? helpText(declaration) : versionText);
    return null;
  }
  const { logLevel, logFormat, logPrefix }: ValuesOf<LogSettings> = loaded.values;
  const logger = new Logger({
    sink: world.log,
    clock: world.clock,
    level: logLevel,
    format: logFormat,
    prefix: logPrefix,
  });
  logger.info(versionText);
  for (const notice of loaded.notices) logger.warn(notice);
  for (const { name, value, origin } of loaded.listing()) {
    if (origin !== "default") logger.info("setting", { name, value, origin });
  }
  // The list of settings is told whole; what comes after it may repeat without end.
  logger.limitRepeats({ ...REPEATS_DEFAULT, clock: world.clock });
  return { ...loaded, logger, read };
}

/** Reloads a service that applies other levels of its log, and nothing else without a restart. */
export function logLevelReloader<S extends Settings & LogSettings>(
  declaration: Declaration<S>,
  { values, read, logger }: StartedUp<S>,
): Reloader<S> {
  let current = values;
  return new Reloader({
    declaration,
    read,
    current: () => current,
    apply: (changed) => {
      current = changed;
      const { logLevel }: ValuesOf<LogSettings> = changed;
      logger.levels = logLevel;
    },
    logger,
  });
}
