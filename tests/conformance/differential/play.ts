/**
 * Plays a scenario against two servers at once and says what differs. A difference counts when it shows
 * again on another play: a server whose threads race may answer either way, and is then no witness.
 */
import type { Clock } from "@sluice/shared/runtime";
import { compare, figures } from "./compare.ts";
import { int32, type Scenario, type Step } from "./scenario.ts";
import { fromLatin1, type Recorder, Side } from "./side.ts";

/** Where the two servers are. */
export interface Pair {
  readonly ours: { readonly tcpPort: number; readonly httpPort: number };
  readonly theirs: { readonly tcpPort: number; readonly httpPort: number };
  readonly clock: Clock;
  /** Makes the topics of each play new. */
  playCount: number;
}

/** How long both may take to come to the same. */
const PATIENCE_MS = 1_500;
/** How long they must then stay there, so that what comes late is seen. */
const CALM_MS = 12;
const POLL_MS = 3;
/** How long an answer is waited for: there is none when the end of a step was taken for a body. */
const UNANSWERED_MS = 200;
const PLAYS = 3;

/** What differs each time a scenario is played; empty when nothing does, or not each time. */
export async function differs(pair: Pair, scenario: Scenario): Promise<string> {
  let difference = "";
  for (let play = 0; play < PLAYS; play++) {
    difference = await playOnce(pair, scenario);
    if (difference === "") return "";
  }
  return difference;
}

async function playOnce(pair: Pair, scenario: Scenario): Promise<string> {
  const prefix = `f${String(pair.playCount++).padStart(7, "0")}_`;
  const ours = new Side(pair.ours.tcpPort, pair.ours.httpPort, prefix);
  const theirs = new Side(pair.theirs.tcpPort, pair.theirs.httpPort, prefix);
  try {
    for (const step of scenario) {
      const recorders = [
        await ours.recorder(step.connection),
        await theirs.recorder(step.connection),
      ];
      if (recorders.some(({ ended }) => ended !== "")) continue;
      const before = recorders.map(({ replies }) => replies.length);
      await Promise.all([ours, theirs].map((side) => playStep(pair.clock, side, step)));
      const answered = () =>
        recorders.every(({ replies, ended }, at) => ended !== "" || replies.length > before[at]!);
      const difference = await settled(
        pair.clock,
        () => compare(ours, theirs),
        answered,
        recorders,
      );
      if (difference !== "") return difference;
      if (isExcused(ours)) return "";
      if (step.end === "close") {
        await Promise.all(recorders.map((recorder) => recorder.close()));
      }
    }
    return await settledFigures(pair.clock, ours, theirs);
  } finally {
    await Promise.all([ours.close(), theirs.close()]);
  }
}

async function playStep(clock: Clock, side: Side, step: Step): Promise<void> {
  const recorder = await side.recorder(step.connection);
  // A publish at the end has an answer, so whatever came before it has been dealt with by then.
  const probe = step.end === "" ? [`PUB ${side.prefix}probe\n${int32(1)}p`] : [];
  const text = [...step.commands.map((command) => side.encode(step.connection, command)), ...probe]
    .join("");
  const bytes = fromLatin1(text);
  let from = 0;
  for (const cut of step.cuts) {
    const to = Math.floor(cut * bytes.length);
    if (to > from) {
      await recorder.send(bytes.subarray(from, to));
      await clock.sleep(1);
      from = to;
    }
  }
  await recorder.send(bytes.subarray(from));
  if (step.end === "end") await recorder.end();
}

/** Whether a known difference has made the rest say nothing. */
function isExcused(ours: Side): boolean {
  return [...ours.recorders.values()].some(({ excused }) => excused);
}

/** Waits until both sides are the same and calm; what differs when that does not come. */
async function settled(
  clock: Clock,
  judge: () => string,
  answered: () => boolean,
  recorders: readonly Recorder[],
): Promise<string> {
  const startMs = clock.monoMs();
  let calmMs = 0;
  let count = -1;
  for (;;) {
    const difference = judge();
    const nowMs = clock.monoMs();
    const arrived = recorders.reduce(
      (sum, { replies, messages, ended }) => sum + replies.length + messages.length + ended.length,
      0,
    );
    if (arrived !== count || difference !== "") {
      count = arrived;
      calmMs = nowMs;
    }
    const calm = nowMs - calmMs >= CALM_MS;
    if (difference === "" && calm && (answered() || nowMs - startMs > UNANSWERED_MS)) return "";
    if (difference !== "" && nowMs - startMs > PATIENCE_MS) return difference;
    await clock.sleep(POLL_MS);
  }
}

async function settledFigures(clock: Clock, ours: Side, theirs: Side): Promise<string> {
  const endMs = clock.monoMs() + PATIENCE_MS;
  for (;;) {
    const [mine, its] = await Promise.all([figures(ours), figures(theirs)]);
    const difference = compare(ours, theirs);
    if (isExcused(ours) || (mine === its && difference === "")) return "";
    if (clock.monoMs() > endMs) return difference || `figures are\n${mine}\nnsqd's\n${its}`;
    await clock.sleep(POLL_MS * 5);
  }
}

/** The smallest scenario found that still differs, and how. */
export async function shrink(
  pair: Pair,
  scenario: Scenario,
  difference: string,
): Promise<{ readonly scenario: Scenario; readonly difference: string }> {
  for (const candidate of smaller(scenario)) {
    const found = await differs(pair, candidate);
    if (found !== "") return await shrink(pair, candidate, found);
  }
  return { scenario, difference };
}

function* smaller(scenario: Scenario): Iterable<Scenario> {
  for (const [at, step] of scenario.entries()) {
    yield scenario.toSpliced(at, 1);
    if (step.cuts.length > 0) yield scenario.with(at, { ...step, cuts: [] });
    if (step.end !== "") yield scenario.with(at, { ...step, end: "" });
    // The first thing that a connection sends is its magic.
    const first = scenario.findIndex(({ connection }) => connection === step.connection) === at;
    for (let command = first ? 1 : 0; command < step.commands.length; command++) {
      if (step.commands.length > 1) {
        yield scenario.with(at, { ...step, commands: step.commands.toSpliced(command, 1) });
      }
    }
  }
}
