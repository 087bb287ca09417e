/** Rows for people, and the same for programs. */
import { EXIT_DONE, type Input, print, type World } from "./command.ts";
import { type Answer, shown } from "./admin_door.ts";

/** A column: its heading, and what stands in it. */
export type Column = readonly [heading: string, value: (row: Answer) => unknown];

/** Tells an answer as JSON when that is asked for, else in the words of `text`. */
export function tell(input: Input, world: World, answer: unknown, text: () => string): number {
  print(world, input.flag("json") ? `${JSON.stringify(answer)}\n` : text());
  return EXIT_DONE;
}

/** A table; numbers stand at the right. */
export function table(rows: readonly Answer[], columns: readonly Column[]): string {
  const cells = rows.map((row) => columns.map(([, value]) => value(row)));
  const widths = columns.map(([heading], index) =>
    cells.reduce((width, row) => Math.max(width, shown(row[index]).length), heading.length)
  );
  const isNumber = columns.map((_, index) => cells.some((row) => typeof row[index] === "number"));
  const line = (texts: readonly string[]) =>
    texts.map((text, index) =>
      isNumber[index] ? text.padStart(widths[index]!) : text.padEnd(widths[index]!)
    ).join("  ").trimEnd() + "\n";
  return [
    line(columns.map(([heading]) => heading)),
    ...cells.map((row) => line(row.map(shown))),
  ].join("");
}

/** Names and values, one a line. */
export function facts(pairs: readonly (readonly [string, unknown])[]): string {
  const width = Math.max(...pairs.map(([name]) => name.length));
  return pairs.map(([name, value]) => `${name.padEnd(width)}  ${shown(value)}\n`).join("");
}

/** Milliseconds that have passed, for people. */
export function since(ms: unknown): string {
  if (typeof ms !== "number") return "-";
  const seconds = Math.floor(ms / 1000);
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  return seconds < 172_800 ? `${Math.floor(seconds / 3600)}h` : `${Math.floor(seconds / 86_400)}d`;
}

/** A Unix time in ms as ISO 8601. */
export function time(ms: unknown): string {
  const isTime = typeof ms === "number" && Math.abs(ms) <= 8.64e15;
  return isTime ? new Date(ms).toISOString() : "-";
}
