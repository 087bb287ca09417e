/**
 * The steps of a script that go over HTTP: orders, answers, and figures of `/stats`. What only looks
 * is asked again until it is so, since a server may count a moment later; see wire_script.ts.
 */
import { deepStrictEqual as equal, match } from "node:assert/strict";
import type { Stage } from "./stage.ts";

const PATIENCE_MS = 12_000;
const POLL_MS = 20;

/** `[STATUS] METHOD PATH [| BODY] [~ PATTERN]`; the status is 200 unless given. */
export async function playHttp(text: string, stage: Stage): Promise<void> {
  const found = /^(?:(\d{3}) )?([A-Z]+) (\S+)(?: \| (.*?))?(?: ~ ?(.*))?$/.exec(text);
  if (found === null) throw new Error(`Unknown HTTP step "${text}"`);
  const [, status = "200", method = "", path = "", body = "", pattern] = found;
  const judge = async () => {
    const answer = await stage.http(method, path, body.replaceAll("\\n", "\n"));
    equal(answer.status, Number(status), `${method} ${path}: ${answer.text}`);
    if (pattern !== undefined) match(answer.text.trimEnd(), patternExpression(pattern));
  };
  if (method === "GET") await soon(judge, stage);
  else await judge();
}

/** `TOPIC CHANNEL KEY=VALUE...`: figures of a channel, or of the topic when the channel is `-`. */
export async function playFigures(text: string, stage: Stage): Promise<void> {
  const [topic = "", channel = "", ...pairs] = text.split(" ");
  const expected: Record<string, string> = Object.fromEntries(
    pairs.map((pair) => pair.split("=", 2)),
  );
  await soon(async () => {
    const answer = await stage.http("GET", `/stats?format=json&topic=${topic}`, "");
    const { topics }: { topics: (Figures & { topic_name: string; channels: Figures[] })[] | null } =
      JSON.parse(answer.text);
    const found = topics?.find(({ topic_name }) => topic_name === topic);
    const figures = channel === "-"
      ? found
      : found?.channels.find(({ channel_name }) => channel_name === channel);
    const shown = Object.fromEntries(
      Object.entries(expected).map(([key, wanted]) => [key, within(figures?.[key], wanted)]),
    );
    equal(shown, expected);
  }, stage);
}

/** A figure as it is wanted, when it is in the range that is wanted; else as it is. */
function within(figure: unknown, wanted: string): string {
  const [, low, high] = /^(\d+)\.\.(\d+)$/.exec(wanted) ?? [];
  if (low === undefined || high === undefined) return String(figure);
  return Number(figure) >= Number(low) && Number(figure) <= Number(high) ? wanted : String(figure);
}

type Figures = Readonly<Record<string, unknown>>;

async function soon(judge: () => Promise<void>, stage: Stage): Promise<void> {
  const endMs = stage.nowMs() + PATIENCE_MS;
  for (;;) {
    try {
      return await judge();
    } catch (error) {
      if (stage.nowMs() >= endMs) throw error;
      await stage.wait(POLL_MS);
    }
  }
}

/** A pattern of a script: `*` is anything without a quote, `**` anything. */
export function patternExpression(pattern: string): RegExp {
  const expression = pattern.split("**").map((part) => {
    return part.replaceAll(/[.+?^${}()|[\]\\]/g, "\\$&").replaceAll("*", '[^"]*');
  }).join(".*");
  return new RegExp(`^${expression}$`);
}
