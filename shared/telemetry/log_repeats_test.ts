import assert from "node:assert/strict";
import { SimClock } from "../testing/mod.ts";
import { KINDS_MAX, LogRepeats } from "./log_repeats.ts";
import { Logger, type LoggerOptions } from "./logger.ts";

const WINDOW = { linesMax: 3, windowMs: 10_000 };

function limited(options: Partial<LoggerOptions> = {}) {
  const clock = new SimClock();
  const lines: string[] = [];
  const logger = new Logger({
    clock,
    format: "json",
    sink: (line) => lines.push(line),
    ...options,
  });
  logger.limitRepeats({ clock, ...WINDOW });
  const told = () => lines.splice(0).map((line) => JSON.parse(line));
  return { clock, logger, told };
}

Deno.test("a line that repeats is told as often as is allowed, then summed up with the last fields", async () => {
  const { clock, logger, told } = limited();
  for (let at = 1; at <= 60; at++) logger.info("refused", { client: at });
  assert.deepEqual(told().map(({ client }) => client), [1, 2, 3]);
  await clock.advance(9_999);
  assert.deepEqual(told(), []);
  await clock.advance(1);
  const [summary, ...rest] = told();
  assert.equal(summary.message, "refused (and 57 more in 10 s)");
  assert.deepEqual([summary.client, summary.repeated, rest], [60, 57, []]);
  logger.info("refused", { client: 61 });
  assert.deepEqual(told().map(({ client }) => client), [61], "a new window begins");
  await clock.advance(10_000);
  assert.deepEqual(told(), [], "what was told whole is not summed up");
});

Deno.test("components, levels and messages are counted apart, and children with their parent", () => {
  const { logger, told } = limited();
  const nsq = logger.component("nsq");
  for (let at = 0; at < 5; at++) {
    logger.info("m");
    logger.warn("m");
    nsq.info("m");
    nsq.child({ a: at }).info("m");
    nsq.info("other");
  }
  const lines = told();
  assert.equal(lines.length, 12);
  assert.equal(lines.filter(({ component }) => component === "nsq").length, 6);
});

Deno.test("debug lines, last words and what is to be told each are never summed up", () => {
  const { logger, told } = limited({ level: "debug" });
  const each = logger.tellingEach();
  for (let at = 0; at < 10; at++) {
    logger.debug("d");
    logger.fatal("f");
    each.info("who did what");
  }
  assert.equal(told().length, 30);
});

Deno.test("last words come after what was counted until then, and so does the end", () => {
  const { logger, told } = limited();
  for (let at = 0; at < 5; at++) logger.info("m");
  logger.fatal("over");
  const messages = () => told().map(({ message }) => message);
  assert.deepEqual(messages(), ["m", "m", "m", "m (and 2 more in 10 s)", "over"]);
  for (let at = 0; at < 4; at++) logger.info("m");
  logger.tellRepeats();
  assert.deepEqual(messages(), ["m", "m", "m", "m (and 1 more in 10 s)"]);
});

Deno.test("messages without end are bounded in memory and in lines", async () => {
  const clock = new SimClock();
  const repeats = new LogRepeats<number>({ clock, ...WINDOW });
  let written = 0;
  const summaries: number[] = [];
  for (let at = 0; at < 10_000; at++) {
    if (repeats.admit(`m${at}`, at, (count, _seconds, last) => summaries.push(count, last))) {
      written++;
    }
  }
  assert.equal(written, KINDS_MAX + WINDOW.linesMax);
  await clock.advance(WINDOW.windowMs);
  assert.deepEqual(summaries, [10_000 - written, 9_999]);
});
