import { deepStrictEqual as equal, match } from "node:assert/strict";
import { Logger } from "@sluice/shared/telemetry";
import { LOOKUP_CHANNELS_MAX, lookupChannels } from "./lookup_channels.ts";

type Answer = string | number | Error;

/** Looks up with one service for each answer: a body, a status, or a failure. */
async function lookedUp(...answers: Answer[]): Promise<{ channels: string[]; lines: string[] }> {
  const lines: string[] = [];
  const logger = new Logger({ sink: (line) => lines.push(line), clock: { wallMs: () => 0 } });
  const channels = await lookupChannels("t", answers.map((_, index) => `host:${index}`), {
    logger,
    httpGet: (url) => {
      const answer = answers[Number(/host:(\d+)/.exec(url)?.[1])] ?? "";
      if (answer instanceof Error) return Promise.reject(answer);
      const status = typeof answer === "number" ? answer : 200;
      return Promise.resolve({ status, body: new TextEncoder().encode(String(answer)) });
    },
  });
  return { channels, lines };
}

Deno.test("lookupChannels() merges, sorts and leaves out ephemeral and invalid names", async () => {
  const { channels, lines } = await lookedUp(
    '{"channels":["b","a","x#ephemeral","bad$"]}',
    '{"channels":["c","b",7,null]}',
    '{"channels":[]}',
  );
  equal(channels, ["a", "b", "c"]);
  equal(lines, []);
});

Deno.test("lookupChannels() goes on without services that fail and logs each", async () => {
  const answers = [
    new Error("timed out"),
    404,
    "not JSON",
    "null",
    "[]",
    "{}",
    '{"channels":null}',
  ];
  for (const answer of answers) {
    const { channels, lines } = await lookedUp(answer, '{"channels":["a"]}');
    equal(channels, ["a"], String(answer));
    equal(lines.length, 1, String(answer));
    match(lines[0] ?? "", /channels could not be looked up topic=t/);
  }
});

Deno.test("lookupChannels() takes over a bounded number of channels and says so", async () => {
  const names = Array.from({ length: LOOKUP_CHANNELS_MAX + 1 }, (_, index) => `c${index}`);
  const { channels, lines } = await lookedUp(JSON.stringify({ channels: names }));
  equal(channels.length, LOOKUP_CHANNELS_MAX);
  match(lines[0] ?? "", /too many channels/);
});

Deno.test("lookupChannels() asks nobody when no service is known", async () => {
  equal(await lookedUp(), { channels: [], lines: [] });
});
