/**
 * `deno task up`: the first minute. Starts a broker, a discovery service and a gateway as real processes on
 * 127.0.0.1, the first two with nsqd's ports, sends a message through and shows it, prints what to try next, and
 * drains all on Ctrl-C. Exit code 1 when it cannot start or the message does not come through.
 */
import { ROOT_PATH } from "./workspace.ts";
import { HOST, parseUpOptions, type Plan, planUp, portsOf, type UpOptions } from "./up/plan.ts";
import { Service } from "./up/service.ts";
import * as say from "./up/text.ts";
import { sendWelcome } from "./up/welcome.ts";

const READY_TIMEOUT_MS = 30_000;
const READY_RETRY_MS = 20;
const DIED_GRACE_MS = 100;
const PING_TIMEOUT_MS = 1_000;
const WELCOME_TIMEOUT_MS = 10_000;
const STOP_SIGNALS: readonly Deno.Signal[] = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"];

/** A problem that is told to the user as it is, without a stack. */
class UpError extends Error {
  override name = "UpError";
}

/** Ports of the plan on which something listens already. */
function findBusyPorts(plan: Plan): number[] {
  return portsOf(plan).filter((port) => {
    try {
      Deno.listen({ hostname: HOST, port }).close();
      return false;
    } catch (error) {
      if (error instanceof Deno.errors.AddrInUse) return true;
      throw error;
    }
  });
}

/** Resolves when the service serves: a broker answers /ping before it does, but not /info. */
async function waitUntilReady({ plan }: Service, deadline: AbortSignal): Promise<void> {
  for (;;) {
    if (deadline.aborted) {
      throw new UpError(`The ${plan.name} did not answer on http://${HOST}:${plan.httpPort}/info`);
    }
    try {
      const response = await fetch(`http://${HOST}:${plan.httpPort}/info`, {
        signal: AbortSignal.any([deadline, AbortSignal.timeout(PING_TIMEOUT_MS)]),
      });
      await response.body?.cancel();
      if (response.ok) return;
    } catch {
      // Not listening yet.
    }
    await pause(READY_RETRY_MS);
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Runs until the signal, or until the demonstration is over with --once. */
async function run(
  options: UpOptions,
  plan: Plan,
  services: Service[],
  style: say.Style,
  stop: Promise<"stop">,
): Promise<void> {
  const started = performance.now();
  console.log(style.dim(say.startingText(plan)));
  for (const service of [plan.discovery, plan.broker, plan.gateway]) {
    const prefix = style.dim(`${service.name.padEnd(9)} | `);
    const show = options.verbose ? (line: string) => console.log(prefix + style.dim(line)) : null;
    services.push(new Service(service, { cwd: ROOT_PATH, show }));
  }
  const died = Promise.race(services.map(async (service): Promise<"stop"> => {
    const exit = await service.ended;
    // The machine that goes down signals everyone, and the service may be faster than we are.
    if (await Promise.race([stop, pause(DIED_GRACE_MS)]) === "stop") return "stop";
    throw new UpError(say.diedText(service.plan, exit.text, service.lastLines, options.verbose));
  }));
  const deadline = AbortSignal.timeout(READY_TIMEOUT_MS);
  const ready = Promise.all(services.map((service) => waitUntilReady(service, deadline)));
  if (await Promise.race([ready, died, stop]) === "stop") return;
  console.log(`\n${say.readyText(plan, performance.now() - started, style)}\n`);

  const welcome = sendWelcome(
    {
      gatewayUrl: `http://${HOST}:${plan.gateway.httpPort}`,
      discoveryUrl: `http://${HOST}:${plan.discovery.httpPort}`,
    },
    `Hello from Sluice, ${new Date().toISOString()}`,
    AbortSignal.timeout(WELCOME_TIMEOUT_MS),
  ).catch((error: Error) => {
    const reason = error.name === "TimeoutError"
      ? `it took more than ${say.duration(WELCOME_TIMEOUT_MS)}`
      : error.message;
    throw new UpError(say.lateText(reason, plan, options.verbose));
  });
  const report = await Promise.race([welcome, died, stop]);
  if (report === "stop") return;
  console.log(`${say.welcomeText(report, style)}\n`);
  if (options.once) return;
  console.log(`${say.examplesText(plan, style)}\n`);
  console.log(say.runningText(plan, options.verbose, style));
  await Promise.race([stop, died]);
}

/** Stops what runs, in the reverse order of the start. Whether all of it ended as it should. */
async function drainAll(services: readonly Service[]): Promise<boolean> {
  let clean = true;
  for (const service of services.toReversed()) {
    if (!service.isRunning) continue;
    const { code, text } = await service.drain();
    if (code === 0) continue;
    clean = false;
    console.error(`The ${service.plan.name} did not stop cleanly: ${text}`);
  }
  return clean;
}

async function main(): Promise<number> {
  const cwd = Deno.env.get("INIT_CWD") ?? Deno.cwd();
  const options = parseUpOptions(Deno.args, cwd, `${ROOT_PATH}.sluice`);
  if (typeof options === "string") {
    console.error(`${options}\n\n${say.helpText()}`);
    return 2;
  }
  if (options.help) {
    console.log(say.helpText());
    return 0;
  }
  // Nothing on this machine is behind a proxy. The services get this setting, too.
  Deno.env.set("NO_PROXY", HOST);
  const plan = planUp(options);
  const busy = findBusyPorts(plan);
  if (busy.length > 0) {
    console.error(say.busyText(plan, busy));
    return 1;
  }
  await Deno.mkdir(`${plan.dataPath}/broker`, { recursive: true });
  const style = Deno.stdout.isTerminal() && !Deno.noColor ? say.ANSI : say.PLAIN;
  const { promise: stop, resolve } = Promise.withResolvers<"stop">();
  const onSignal = () => resolve("stop");
  for (const signal of STOP_SIGNALS) Deno.addSignalListener(signal, onSignal);
  const services: Service[] = [];
  let code = 0;
  try {
    await run(options, plan, services, style, stop);
  } catch (error) {
    if (!(error instanceof UpError)) throw error;
    console.error(`\n${error.message}`);
    code = 1;
  } finally {
    console.log(style.dim("\nStopping ..."));
    const clean = await drainAll(services);
    if (!clean) code = 1;
    else if (code === 0) console.log(style.dim(`Stopped. Messages are kept in ${plan.dataPath}`));
  }
  return code;
}

if (import.meta.main) Deno.exit(await main());
