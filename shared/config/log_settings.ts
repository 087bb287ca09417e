/** The settings of a service's log, the same in every service but for the prefix. */
import { choice, text } from "./kind.ts";
import { setting } from "./setting.ts";

/** `log-level`, `log-format` and `log-prefix`, in a group of the service's settings. */
export function logSettings(group: string, prefix: string) {
  return {
    logLevel: setting({
      name: "log-level",
      kind: choice(["debug", "info", "warn", "error", "fatal"], { numbered: true }),
      default: "info",
      doc: "The least severe lines that are logged.",
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
