/** The settings of a service's log, the same in every service but for the prefix. */
import {
  LOG_COMPONENTS,
  LOG_LEVELS,
  type LogLevelChoice,
  parseLogLevels,
  showLogLevels,
} from "../telemetry/mod.ts";
import { choice, type Kind, text } from "./kind.ts";
import { setting } from "./setting.ts";

/** `log-level`, `log-format` and `log-prefix`, in a group of the service's settings. */
export function logSettings(group: string, prefix: string) {
  return {
    logLevel: setting({
      name: "log-level",
      kind: logLevels(),
      default: "info",
      doc:
        "The least severe lines that are logged, and of parts of the service where that differs: " +
        `info,storage=debug. The parts are ${LOG_COMPONENTS.join(", ")}.`,
      reload: true,
      group,
    }),
    logFormat: setting({
      name: "log-format",
      kind: choice(["text", "json"]),
      default: "text",
      doc: "How a line of the log is written.",
      group,
    }),
    logPrefix: setting({
      name: "log-prefix",
      kind: text(),
      default: prefix,
      doc: "Text in front of every line of the log.",
      group,
    }),
  };
}

/** A level for all, and levels of parts; `/config` answers the number of the first, as in nsqd. */
function logLevels(): Kind<LogLevelChoice> {
  return {
    placeholder: "LEVEL[,PART=LEVEL...]",
    wanted: `a level (one of ${LOG_LEVELS.join(", ")}), and PART=LEVEL for any of ` +
      LOG_COMPONENTS.join(", "),
    repeats: false,
    parse: parseLogLevels,
    fromDocument: (value) => typeof value === "string" ? parseLogLevels(value) : undefined,
    show: showLogLevels,
    toOption: ({ base }) => ({ body: String(LOG_LEVELS.indexOf(base) + 1), json: true }),
  };
}
