/** What people read about settings: the `--help` text and the tables of the documentation. */
import type { Declaration, Setting, Settings } from "./setting.ts";

const WIDTH = 92;
const INDENT = "      ";

/** Headings of settings that are listed last, whatever group they name. */
const WITHOUT_EFFECT = "Accepted from NSQ command lines, without effect";
const UNSUPPORTED = "Not supported by this version: giving one is an error";

/** The text of `--help`. */
export function helpText(declaration: Declaration<Settings>): string {
  const lines: string[] = [];
  if (declaration.about !== "") lines.push(...wrap(declaration.about, ""), "");
  lines.push(
    `Usage: ${declaration.program} [--setting=value ...]`,
    "",
    ...wrap(
      "Each setting is a flag, an environment variable or a key of the TOML file named by " +
        "--config. A flag wins over the environment, the environment over the file.",
      "",
    ),
  );
  for (const [group, settings] of grouped(declaration)) {
    lines.push("", group);
    if (group === WITHOUT_EFFECT || group === UNSUPPORTED) {
      lines.push(...wrap(settings.map((one) => `--${one.name}`).join(", "), "  "));
      continue;
    }
    for (const one of settings) {
      lines.push(
        `  ${flagForm(one)}`,
        ...wrap(one.doc, INDENT),
        `${INDENT}default ${shownDefault(one)}   env ${one.environment}`,
      );
    }
  }
  lines.push(
    "",
    "Other flags",
    "  --config=PATH",
    `${INDENT}The TOML file with settings.`,
    `${INDENT}default none   env SLUICE_CONFIG`,
    "  --version",
    `${INDENT}Prints the version and exits.`,
    "  --help",
    `${INDENT}Prints this text and exits.`,
    "",
  );
  return lines.join("\n");
}

/** The settings of a program as Markdown: a heading and a table for each group. */
export function settingsMarkdown(declaration: Declaration<Settings>): string {
  const lines: string[] = [];
  for (const [group, settings] of grouped(declaration)) {
    lines.push(
      `### ${group}`,
      "",
      "| Flag | Environment | File key | Default | Reload | Meaning |",
      "|---|---|---|---|---|---|",
    );
    for (const one of settings) {
      const isCode = one.defaultDoc === undefined && one.kind.show(one.default) !== "";
      const shown = isCode ? `\`${shownDefault(one)}\`` : shownDefault(one);
      const cells = [
        `\`${flagForm(one)}\``,
        `\`${one.environment}\``,
        `\`${one.file}\``,
        shown,
        one.reload ? "yes" : "",
        one.doc,
      ];
      lines.push(`| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`);
    }
    lines.push("");
  }
  return lines.join("\n").trimEnd();
}

/** `--msg-timeout=DURATION`, or `--snappy[=true|false]` where the value may be left out. */
function flagForm(one: Setting<unknown>): string {
  const value = `=${one.kind.placeholder}`;
  return `--${one.name}${one.kind.bare === undefined ? value : `[${value}]`}`;
}

function shownDefault(one: Setting<unknown>): string {
  if (one.defaultDoc !== undefined) return one.defaultDoc;
  const shown = one.kind.show(one.default);
  if (shown === "") return "none";
  // Outer spaces matter and would not be seen.
  return shown === shown.trim() ? shown : JSON.stringify(shown);
}

/** Groups in the order of their first setting; those without effect or support come last. */
function grouped(declaration: Declaration<Settings>): Map<string, Setting<unknown>[]> {
  const groups = new Map<string, Setting<unknown>[]>();
  for (const one of Object.values(declaration.settings)) {
    const group = headingOf(one);
    const members = groups.get(group);
    if (members === undefined) groups.set(group, [one]);
    else members.push(one);
  }
  for (const group of [WITHOUT_EFFECT, UNSUPPORTED]) {
    const members = groups.get(group);
    if (members === undefined) continue;
    groups.delete(group);
    groups.set(group, members);
  }
  return groups;
}

function headingOf(one: Setting<unknown>): string {
  if (one.accepted) return WITHOUT_EFFECT;
  return one.refused === undefined ? one.group : UNSUPPORTED;
}

function wrap(text: string, indent: string): string[] {
  const lines: string[] = [];
  let line = indent;
  for (const word of text.split(" ")) {
    if (line !== indent && line.length + 1 + word.length > WIDTH) {
      lines.push(line);
      line = indent;
    }
    line += line === indent ? word : ` ${word}`;
  }
  return [...lines, line];
}
