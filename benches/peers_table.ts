/** The table of figures side by side, with what ours are to reach. */
import { type Figure, type Goal, OURS } from "./peer_scenarios.ts";
import { median, type Ratio, ratioOf, showFigure, showRatio } from "./summary.ts";

/** Figures by target and name, one a round. */
export class Results {
  readonly #figures = new Map<string, number[]>();

  add(target: string, name: string, figure: number): void {
    this.of(target, name).push(figure);
  }

  of(target: string, name: string): number[] {
    const key = `${target}\n${name}`;
    let figures = this.#figures.get(key);
    if (figures === undefined) this.#figures.set(key, figures = []);
    return figures;
  }
}

/** What was asked for, and what came of it. */
interface Verdict {
  readonly goal: string;
  readonly outcome: string;
}

/** Markdown: a line for each figure. A goal beside what was not measured is left out. */
export function peersTable(
  figures: readonly Figure[],
  targets: readonly string[],
  results: Results,
): string {
  const lines = [
    `| 200-byte bodies | ${targets.join(" | ")} | goal | ours beside it |`,
    `|---|${targets.map(() => "---:").join("|")}|---|---|`,
  ];
  for (const figure of figures) {
    const { name, unit, goals } = figure;
    const medians = targets.map((target) => showFigure(median(results.of(target, name))));
    const verdicts = goals.map((goal) => judge(figure, goal, results)).filter((one) =>
      one !== null
    );
    const cells = [
      `${name}, ${unit}`,
      ...medians,
      verdicts.map(({ goal }) => goal).join("; "),
      verdicts.map(({ outcome }) => outcome).join("; "),
    ];
    lines.push(`| ${cells.join(" | ")} |`);
  }
  return lines.join("\n");
}

function judge({ name, unit }: Figure, goal: Goal, results: Results): Verdict | null {
  const ours = results.of(OURS, name);
  if ("max" in goal) {
    const isMet = median(ours) <= goal.max;
    return { goal: `at most ${goal.max} ${unit}`, outcome: isMet ? "met" : "**not met**" };
  }
  const theirs = "figure" in goal ? results.of(OURS, goal.figure) : results.of(goal.target, name);
  if (ours.length === 0 || theirs.length === 0) return null;
  const ratio: Ratio = unit === "messages/s" ? ratioOf(ours, theirs) : ratioOf(theirs, ours);
  const beside = "figure" in goal ? `ours of "${goal.figure}"` : goal.target;
  const isMet = ratio.median >= goal.ratioMin;
  return {
    goal: `${goal.ratioMin}x ${beside}`,
    outcome: `${showRatio(ratio)} ${isMet ? "met" : "**not met**"}`,
  };
}
