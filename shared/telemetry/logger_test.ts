import assert from "node:assert/strict";
import { inspect } from "node:util";
import {
  FIELD_CHARACTERS_MAX,
  FIELDS_MAX,
  Logger,
  type LoggerOptions,
  MESSAGE_CHARACTERS_MAX,
} from "./logger.ts";
import { LOG_LEVELS } from "./log_levels.ts";
import { secret } from "./secret.ts";

const TIME = "2026-11-30T10:25:25.000Z";

function makeLogger(options: Partial<LoggerOptions> = {}) {
  const lines: string[] = [];
  const sink = (line: string) => void lines.push(line);
  return {
    lines,
    logger: new Logger({ sink, clock: { wallMs: () => Date.parse(TIME) }, ...options }),
  };
}

Deno.test("Logger keeps one line a line, whatever a peer puts into message or fields", () => {
  const { lines, logger } = makeLogger();
  logger.info("a\nb\r\u001b[2J\u2028c", { name: "x\n2026 ERROR forged", key: 'q"=\\', empty: "" });
  assert.deepEqual(lines, [
    `${TIME} INFO  a\\u000ab\\u000d\\u001b[2J\\u2028c ` +
    'name="x\\n2026 ERROR forged" key="q\\"=\\\\" empty=""',
  ]);
  const json = makeLogger({ format: "json" });
  json.logger.info("a\nb", { name: "x\u0085\u202ey" });
  assert.ok(!/[\p{Cc}\p{Cf}]/u.test(json.lines[0] ?? ""));
  assert.equal(JSON.parse(json.lines[0] ?? "").name, "x\u0085\u202ey");
});

Deno.test("Logger cuts long messages and values, and leaves out fields beyond the bound", () => {
  const { lines, logger } = makeLogger();
  const many = Object.fromEntries(Array.from({ length: FIELDS_MAX + 5 }, (_, i) => [`f${i}`, i]));
  logger.info("m".repeat(MESSAGE_CHARACTERS_MAX + 7), many);
  assert.ok(lines[0]?.includes("m...(+7) f0=0"));
  assert.ok(lines[0]?.endsWith(`f${FIELDS_MAX - 1}=${FIELDS_MAX - 1} omitted=5`));
  logger.info("m", { body: "v".repeat(10_000), list: Array(5000).fill("w".repeat(5000)) });
  assert.ok((lines[1]?.length ?? 0) < 2 * FIELD_CHARACTERS_MAX + 200);
  logger.info("m", { list: Array.from({ length: 20 }, (_, i) => i) });
  assert.ok(lines[2]?.endsWith("list=0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,+4"));
});

Deno.test("Logger never writes a secret, and neither do string conversion, JSON or inspection", () => {
  const token = secret("hunter2");
  for (const format of ["text", "json"] as const) {
    const { lines, logger } = makeLogger({ format });
    logger.child({ token }).error("refused", { list: [token], again: token });
    assert.ok(!lines[0]?.includes("hunter2") && lines[0]?.includes("***"), lines[0]);
  }
  const shown = [String(token), JSON.stringify({ token }), Deno.inspect(token), inspect(token)];
  for (const text of shown) assert.ok(!text.includes("hunter2") && text.includes("***"), text);
  assert.equal(token.reveal(), "hunter2");
});

Deno.test("Logger writes lines of its level and graver ones only", () => {
  for (const [rank, level] of LOG_LEVELS.entries()) {
    const { lines, logger } = makeLogger({ level });
    for (const one of LOG_LEVELS) logger[one]("x");
    assert.equal(lines.length, LOG_LEVELS.length - rank, level);
    assert.equal(logger.isWritten(level), true);
  }
});

Deno.test("Logger.level changes parent and children together, while running", () => {
  const { lines, logger } = makeLogger();
  const child = logger.child({ part: "child" });
  child.debug("unseen");
  logger.level = "debug";
  child.debug("seen");
  child.level = "fatal";
  logger.error("unseen");
  assert.deepEqual(lines, [`${TIME} DEBUG seen part=child`]);
  assert.equal(logger.level, "fatal");
});

Deno.test("Logger.child() adds its fields to those of its parent and lets a line override them", () => {
  const { lines, logger } = makeLogger({ prefix: "[nsqd] " });
  const child = logger.child({ a: 1, b: 2 }).child({ b: 3 });
  child.warn("m", { a: 4, c: undefined });
  logger.warn("m");
  assert.deepEqual(lines, [`${TIME} WARN  [nsqd] m a=4 b=3`, `${TIME} WARN  [nsqd] m`]);
});

Deno.test("Logger writes errors with their causes, and numbers as they are", () => {
  const { lines, logger } = makeLogger();
  const error = new TypeError("outer", { cause: new Error("inner", { cause: "EIO" }) });
  logger.error("failed", { error, n: 1.5, big: 2n ** 64n, nan: NaN, no: false, none: null });
  assert.equal(
    lines[0],
    `${TIME} ERROR failed error="TypeError: outer <- Error: inner <- EIO" n=1.5 ` +
      "big=18446744073709551616 nan=NaN no=false none=null",
  );
  const looped = new Error("looped");
  looped.cause = looped;
  logger.error("failed", { looped });
  assert.ok((lines[1]?.length ?? Infinity) < FIELD_CHARACTERS_MAX + 200);
});

Deno.test("Logger in JSON writes one object whose own names no field can take", () => {
  const { lines, logger } = makeLogger({ format: "json", prefix: "[nsqd] " });
  logger.info("m", { topic: "t", count: 2, list: ["a", 1], level: "fake", "odd name": true });
  assert.equal(
    lines[0],
    `{"time":"${TIME}","level":"info","prefix":"[nsqd]","message":"m","topic":"t","count":2,` +
      '"list":["a",1],"field_level":"fake","odd_name":true}',
  );
});
