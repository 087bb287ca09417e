/** Everything `deno task up` says. Colours are the caller's decision. */
import { HOST, type Plan, PORT_OFFSET_MAX, portsOf, type ServicePlan } from "./plan.ts";
import type { WelcomeReport } from "./welcome.ts";

/** Turns a text dim or bold, or leaves it as it is. */
export interface Style {
  dim(text: string): string;
  bold(text: string): string;
}

/** For terminals that show escape codes. */
export const ANSI: Style = {
  dim: (text) => `\x1b[2m${text}\x1b[22m`,
  bold: (text) => `\x1b[1m${text}\x1b[22m`,
};
/** For files, pipes and NO_COLOR. */
export const PLAIN: Style = { dim: (text) => text, bold: (text) => text };

/** The answer to --help. */
export function helpText(): string {
  return `Starts a broker, a discovery service and a gateway on this machine, sends a message through, and
keeps running until Ctrl-C.

Usage: deno task up [OPTION]...

  --data DIR        where messages and logs are kept (default: .sluice in the project)
  --port-offset N   adds N (0 to ${PORT_OFFSET_MAX}) to every port: 4150, 4151, 4160, 4161, 4170, 4171
  --once            stops after the message came through; exit code 1 when it did not
  --verbose         shows the logs of the services here instead of writing files
  --help            shows this`;
}

/** Some ports are taken; says which, and how to go on. */
export function busyText(plan: Plan, busy: readonly number[]): string {
  const what = busy.length === 1 ? `Port ${busy[0]} is` : `Ports ${listed(busy)} are`;
  const advice = suggestOffset(plan);
  return `${what} in use on ${HOST}: is another broker, nsqd or "deno task up" running?
Stop it, or start on other ports: deno task up --port-offset ${advice}`;
}

function suggestOffset({ portOffset }: Plan): number {
  const next = portOffset + 100;
  return next <= PORT_OFFSET_MAX ? next : 0;
}

function listed(numbers: readonly number[]): string {
  return `${numbers.slice(0, -1).join(", ")} and ${numbers.at(-1)}`;
}

/** All services answer. */
export function readyText(plan: Plan, startedMs: number, style: Style): string {
  const row = ({ name, tcpPort, httpPort }: ServicePlan) =>
    `  ${style.bold(name.padEnd(10))} tcp ${HOST}:${tcpPort}   http http://${HOST}:${httpPort}`;
  return [
    `Sluice is up after ${style.bold(duration(startedMs))}`,
    "",
    row(plan.broker),
    row(plan.discovery),
    row(plan.gateway),
    `  ${style.bold("data".padEnd(10))} ${plan.dataPath}`,
  ].join("\n");
}

/** The message came through: its way, step by step. */
export function welcomeText(report: WelcomeReport, style: Style): string {
  const step = (what: string, ms: number, how: string) =>
    `  ${what.padEnd(10)} ${duration(ms).padStart(8)}  ${style.dim(how)}`;
  return [
    "A message went through:",
    "",
    step("published", report.publishedMs, "through the gateway; HTTP 200 means it is on disk"),
    step("found", report.foundMs, `discovery says the topic is at ${report.address}`),
    step("received", report.receivedMs, `id ${report.id}, attempt ${report.attempts}`),
    step("finished", report.finishedMs, "it will not come again"),
    "",
    `  ${style.bold(JSON.stringify(report.body))}`,
  ].join("\n");
}

/** What to try next, to be copied as it is. */
export function examplesText(plan: Plan, style: Style): string {
  const { broker, discovery, gateway } = plan;
  const examples: [what: string, command: string][] = [
    [
      "publish a message",
      `curl -d 'hello' 'http://${HOST}:${broker.httpPort}/pub?topic=orders'`,
    ],
    [
      "publish through the gateway, which takes it with no broker up as well",
      `curl -d 'hello' 'http://${HOST}:${gateway.httpPort}/pub?topic=orders'`,
    ],
    ["see what is queued", `curl 'http://${HOST}:${broker.httpPort}/stats'`],
    ["ask who has the topic", `curl 'http://${HOST}:${discovery.httpPort}/lookup?topic=orders'`],
    [
      "receive with any NSQ client, for example",
      `nsq_tail --topic=orders --lookupd-http-address=${HOST}:${discovery.httpPort}`,
    ],
  ];
  return [
    "Try it:",
    ...examples.map(([what, command]) => `\n  ${style.dim(`# ${what}`)}\n  ${command}`),
  ].join("\n");
}

/** Where the logs are, and how to end. */
export function runningText(plan: Plan, verbose: boolean, style: Style): string {
  const logs = verbose ? "" : style.dim(`${logsText(plan)}\n`);
  return `${logs}Running. Ctrl-C stops it and keeps the messages.`;
}

/** A service ended by itself: its last words. */
export function diedText(
  { name, logPath }: ServicePlan,
  exit: string,
  lastLines: readonly string[],
  verbose: boolean,
): string {
  const lines = lastLines.length === 0 ? ["(it printed nothing)"] : lastLines;
  const more = verbose ? "" : `\nThe whole log: ${logPath}`;
  return `The ${name} ended by itself (${exit}). The last it said:\n\n${
    lines.map((line) => `  ${line}`).join("\n")
  }\n${more}`;
}

/** The message did not come through in time. */
export function lateText(reason: string, plan: Plan, verbose: boolean): string {
  const logs = verbose ? "" : `\n${logsText(plan)}`;
  return `The message did not come through: ${reason}${logs}`;
}

function logsText({ broker, discovery, gateway }: Plan): string {
  return `Logs: ${[broker, discovery, gateway].map(({ logPath }) => logPath).join("\n      ")}`;
}

/** `0.4 ms`, `12 ms`, `1.3 s`. */
export function duration(ms: number): string {
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  return ms < 1_000 ? `${ms.toFixed(0)} ms` : `${(ms / 1_000).toFixed(1)} s`;
}

/** All ports in one line, for the start. */
export function startingText(plan: Plan): string {
  return `Starting broker, discovery and gateway on ports ${listed(portsOf(plan))} of ${HOST} ...`;
}
