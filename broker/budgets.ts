/**
 * Everything of a broker that is bounded, in one list: what is in use, the limit, and how often the
 * limit was met. `/v1/stats` and the metrics `sluice_budget_*` tell the same of it, in the same words.
 *
 * | At the limit | What becomes of who asks for more        | `refused` counts      |
 * |--------------|------------------------------------------|-----------------------|
 * | `refuse`     | it is told so, or its connection closed  | refusals              |
 * | `wait`       | it goes on when there is room            | those that had to wait |
 * | `evict`      | the oldest that is held makes room       | nothing: null         |
 *
 * Names are for ever: dashboards and alerts name them. Reading a budget changes nothing and does not
 * grow with the messages there are, only `channels_per_topic` looks at each topic.
 */
import { type Authorizer, GRANTS_BYTES_MAX } from "@sluice/shared/authorization";
import { invariant } from "@sluice/shared/runtime";
import type { Handshakes } from "@sluice/shared/server";
import type { Administration } from "./administration.ts";
import type { DiskGuard, DiskGuardOptions } from "./disk_guard.ts";
import type { DeliveryMemory } from "./large_delivery.ts";
import type { Topic } from "./queue/mod.ts";
import type { Storage, StorageOptions } from "./storage/mod.ts";

/** What a budget counts in. */
export type BudgetUnit = "bytes" | "count";

/** What becomes of who asks for more than there is; see the module. */
export type AtLimit = "refuse" | "wait" | "evict";

/** One thing that is bounded. */
export interface Budget {
  /** Lower case words joined by `_`, without the unit. */
  readonly name: string;
  readonly unit: BudgetUnit;
  readonly atLimit: AtLimit;
  /** One sentence. */
  readonly doc: string;
  readonly used: () => number;
  /** Null where there is no limit by the settings. */
  readonly limit: () => number | null;
  /** Since the start; null where nothing is refused and nobody waits. */
  readonly refused: () => number | null;
}

/** A budget at one moment. */
export interface BudgetReport {
  readonly name: string;
  readonly unit: BudgetUnit;
  readonly atLimit: AtLimit;
  readonly used: number;
  readonly limit: number | null;
  readonly refused: number | null;
}

/** The budgets of a process; see the module. */
export class Budgets {
  readonly #budgets = new Map<string, Budget>();

  constructor(budgets: Iterable<Budget> = []) {
    for (const budget of budgets) this.add(budget);
  }

  /** A door adds what only it knows of. */
  add(budget: Budget): void {
    invariant(/^[a-z]+(_[a-z]+)*$/.test(budget.name), `the budget ${budget.name} is words`);
    invariant(!this.#budgets.has(budget.name), `the budget ${budget.name} is added once`);
    this.#budgets.set(budget.name, budget);
  }

  /** All of them, by name. */
  all(): readonly Budget[] {
    return [...this.#budgets.values()].sort((a, b) => a.name < b.name ? -1 : 1);
  }

  /** What each is now, by name. */
  report(): readonly BudgetReport[] {
    return this.all().map(({ name, unit, atLimit, used, limit, refused }) => ({
      name,
      unit,
      atLimit,
      used: used(),
      limit: limit(),
      refused: refused(),
    }));
  }
}

/** What the budgets of a broker are read from. */
export interface BudgetedBroker {
  readonly topics: ReadonlyMap<string, Topic>;
  readonly administration: Pick<Administration, "topicsRefused" | "channelsRefused">;
  readonly storage: Storage;
  readonly deliveryMemory: DeliveryMemory;
  readonly guard: DiskGuard;
  readonly stagedBytes: number;
  readonly stageRefusedCount: number;
  readonly roomWaitCount: number;
  readonly repeats: { readonly throttled: number };
}

/** The limits that are in the settings. */
export interface BudgetLimits {
  readonly topicsMax: number;
  readonly channelsPerTopicMax: number;
  readonly publishBytesMax: number;
  readonly guard?: DiskGuardOptions;
  readonly storage: Pick<StorageOptions, "pageCacheBytes" | "indexCacheBytes">;
}

/** Those of a broker. Its doors add `connections`, `tls_handshakes` and `auth_grants`. */
export function brokerBudgets(broker: BudgetedBroker, options: BudgetLimits): Budget[] {
  return [...registryBudgets(broker, options), ...memoryBudgets(broker, options)];
}

/** Adds what the doors of a broker bound. */
export function addDoorBudgets(
  budgets: Budgets,
  tcp: { readonly sessions: { readonly size: number }; readonly refusedCount: number },
  handshakes: Pick<Handshakes, "count" | "limit" | "waitCount">,
  authorizer: Pick<Authorizer, "heldBytes" | "holdRefusedCount">,
  connectionsMax: number,
): void {
  budgets.add({
    name: "connections",
    unit: "count",
    atLimit: "refuse",
    doc: "Open NSQ connections.",
    used: () => tcp.sessions.size,
    limit: () => connectionsMax,
    refused: () => tcp.refusedCount,
  });
  budgets.add({
    name: "tls_handshakes",
    unit: "count",
    atLimit: "wait",
    doc: "TLS handshakes of NSQ connections under way.",
    used: () => handshakes.count,
    limit: () => handshakes.limit,
    refused: () => handshakes.waitCount,
  });
  budgets.add({
    name: "auth_grants",
    unit: "bytes",
    atLimit: "refuse",
    doc: "Grants in use.",
    used: () => authorizer.heldBytes,
    limit: () => GRANTS_BYTES_MAX,
    refused: () => authorizer.holdRefusedCount,
  });
}

function registryBudgets(broker: BudgetedBroker, options: BudgetLimits): Budget[] {
  const { administration, storage } = broker;
  return [
    {
      name: "topics",
      unit: "count",
      atLimit: "refuse",
      doc: "Topics.",
      used: () => broker.topics.size,
      limit: () => options.topicsMax,
      refused: () => administration.topicsRefused,
    },
    {
      name: "channels_per_topic",
      unit: "count",
      atLimit: "refuse",
      doc: "Channels of the topic that has the most.",
      used: () => mostChannels(broker),
      limit: () => options.channelsPerTopicMax,
      refused: () => administration.channelsRefused,
    },
    {
      name: "log",
      unit: "bytes",
      atLimit: "refuse",
      doc: "Bytes of the log on disk; publishes refused for want of disk space count as well.",
      used: () => storage.storedBytes,
      limit: () => options.guard?.logBytesMax || null,
      refused: () => broker.guard.throttledCount,
    },
  ];
}

function memoryBudgets(broker: BudgetedBroker, options: BudgetLimits): Budget[] {
  const { storage, deliveryMemory } = broker;
  const { dedup } = storage.state;
  return [
    {
      name: "publish",
      unit: "bytes",
      atLimit: "refuse",
      doc: "Bodies of publishes that have not arrived whole.",
      used: () => broker.stagedBytes,
      limit: () => options.publishBytesMax,
      refused: () => broker.stageRefusedCount,
    },
    {
      name: "log_undurable",
      unit: "bytes",
      atLimit: "wait",
      doc: "Bytes put in the log and not on disk yet.",
      used: () => storage.log.end - storage.log.durableEnd,
      limit: () => storage.log.ring.length / 2,
      refused: () => broker.roomWaitCount,
    },
    {
      name: "large_delivery",
      unit: "bytes",
      atLimit: "wait",
      doc: "Parts of large bodies on their way to consumers.",
      used: () => deliveryMemory.usedBytes,
      limit: () => deliveryMemory.bytesMax,
      refused: () => deliveryMemory.waitCount,
    },
    {
      name: "dedup",
      unit: "bytes",
      atLimit: "refuse",
      doc: "What is remembered of producers with sequences.",
      used: () => dedup.bytes,
      limit: () => dedup.limits.bytes,
      refused: () => broker.repeats.throttled,
    },
    {
      name: "page_cache",
      unit: "bytes",
      atLimit: "evict",
      doc: "Pages of the log read back.",
      used: () => storage.reader.cachedBytes,
      limit: () => options.storage.pageCacheBytes,
      refused: () => null,
    },
    {
      name: "index_cache",
      unit: "bytes",
      atLimit: "evict",
      doc: "Places of messages read back.",
      used: () => storage.indexCachedBytes,
      limit: () => options.storage.indexCacheBytes,
      refused: () => null,
    },
  ];
}

function mostChannels(broker: BudgetedBroker): number {
  let most = 0;
  for (const topic of broker.topics.values()) most = Math.max(most, topic.channels.size);
  return most;
}
