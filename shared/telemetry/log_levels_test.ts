import assert from "node:assert/strict";
import { parseLogLevels, showLogLevels } from "./log_levels.ts";
import { Logger } from "./logger.ts";

Deno.test("parseLogLevels() reads a word as nsqd's flag, and levels of parts behind it", () => {
  const cases: [text: string, shown: string][] = [
    ["info", "info"],
    ["WARN", "warn"],
    ["info,storage=debug,http=warn", "info,http=warn,storage=debug"],
    ["error, nsq=DEBUG", "error,nsq=debug"],
    ["http=warn", "info,http=warn"],
  ];
  for (const [text, shown] of cases) {
    const choice = parseLogLevels(text);
    assert.ok(choice !== undefined, text);
    assert.equal(showLogLevels(choice), shown);
    assert.deepEqual(parseLogLevels(shown), choice);
  }
  const wrong = [
    "",
    "loud",
    "info,warn",
    "storage",
    "nope=info",
    "http=loud",
    "http=info,http=warn",
  ];
  for (const text of [...wrong, "info,", "http=info=warn", "__proto__=info"]) {
    assert.equal(parseLogLevels(text), undefined, text);
  }
});

Deno.test("a component writes from its own level, or from the level for all, and both change at once", () => {
  const lines: string[] = [];
  const logger = new Logger({
    sink: (line) => lines.push(line),
    clock: { wallMs: () => 0 },
    level: parseLogLevels("warn,storage=debug,nsq=error")!,
  });
  const storage = logger.component("storage");
  const nsq = logger.component("nsq").child({ client: "c" });
  const http = logger.component("http");
  const levels = () => [logger, storage, nsq, http].map((one) => one.isWritten("info"));
  assert.deepEqual(levels(), [false, true, false, false]);
  storage.debug("seen");
  nsq.warn("unseen");
  nsq.error("seen");
  assert.deepEqual(lines, [
    "1970-01-01T00:00:00.000Z DEBUG seen component=storage",
    "1970-01-01T00:00:00.000Z ERROR seen component=nsq client=c",
  ]);
  logger.levels = parseLogLevels("info,http=fatal")!;
  assert.deepEqual(levels(), [true, true, true, false]);
  http.level = "debug";
  assert.deepEqual([...levels(), showLogLevels(logger.levels)], [true, true, true, true, "debug"]);
});
