/**
 * The end of a run: waiting until everything has come to rest, and gathering what gateways have put
 * aside. What does not come to rest in time is told, and not waited for any longer.
 */
import { SystemClock } from "@sluice/shared/runtime/system";
import type { ChannelFigures } from "../integration/process.ts";
import { type Fleet, gatewayFigures, type Member } from "./fleet.ts";
import type { History } from "./history.ts";

const LOOK_MS = 250;
/** Nothing comes for so long before it is over. */
const QUIET_MS = 1_500;
const PAGE = 1_000;

interface BrokerDocument {
  readonly topics:
    | readonly {
      readonly topic_name: string;
      readonly depth: number;
      readonly channels: readonly ChannelFigures[];
    }[]
    | null;
}

interface QuarantinePage {
  readonly entries: readonly { readonly id: number; readonly reason: string }[];
  readonly next: number | null;
}

/** Waits for rest, for so long at most; what is not at rest then, in words. */
export async function rest(
  fleet: Fleet,
  history: History,
  timeoutMs: number,
): Promise<string[]> {
  const clock = new SystemClock();
  const startMs = Date.now();
  const endMs = clock.monoMs() + timeoutMs;
  for (;;) {
    const restless = await restlessOf(fleet);
    const quietMs = Date.now() - Math.max(startMs, history.lastDeliveryMs);
    if (restless.length === 0 && quietMs >= QUIET_MS) return [];
    if (clock.monoMs() >= endMs) {
      return restless.length > 0 ? restless : [`messages still came ${quietMs} ms ago`];
    }
    await clock.sleep(LOOK_MS);
  }
}

async function restlessOf(fleet: Fleet): Promise<string[]> {
  const restless: string[] = [];
  for (const gateway of fleet.gateways) {
    const { spool, held_publishes: held } = await gatewayFigures(gateway);
    if (spool.depth > 0) restless.push(`${gateway.name} has ${spool.depth} publishes in its spool`);
    if (held > 0) restless.push(`${gateway.name} has ${held} publishes on their way`);
  }
  for (const broker of fleet.brokers) {
    const { topics } = await broker.document<BrokerDocument>("/stats?format=json");
    for (const { topic_name: topic, depth, channels } of topics ?? []) {
      if (depth > 0) restless.push(`${broker.name} has ${depth} messages of ${topic}`);
      for (const channel of channels) {
        const { depth, in_flight_count: inFlight, deferred_count: deferred } = channel;
        if (depth + inFlight + deferred === 0) continue;
        restless.push(
          `${broker.name} has ${depth} messages of ${topic} to deliver, ${inFlight} in flight, ` +
            `${deferred} deferred`,
        );
      }
    }
  }
  return restless;
}

/** Notes what is in the quarantine of each gateway. */
export async function gatherQuarantine(fleet: Fleet, history: History): Promise<void> {
  for (const gateway of fleet.gateways) {
    for (let from: number | null = 0; from !== null;) {
      const path: string = `/v1/quarantine?limit=${PAGE}&from=${from}`;
      const page: QuarantinePage = await gateway.document(path);
      for (const { id, reason } of page.entries) await gather(gateway, history, id, reason);
      from = page.next;
    }
  }
}

async function gather(
  gateway: Member,
  history: History,
  id: number,
  reason: string,
): Promise<void> {
  const body = await gateway.tryGet(`/v1/quarantine/${id}/body`);
  history.aside(gateway.name, reason, body ?? "");
}
