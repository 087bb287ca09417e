/**
 * All brokers: a link to each that a source lists, or that something still waits for. The pool says
 * which of them can take a publish, and when that changes.
 *
 * - Links are made for what is listed. A broker that nobody lists any more is used on for
 *   {@linkcode UNLISTED_MS}, and for as long as nobody lists any broker: a discovery service that starts
 *   anew knows nothing for a while, and whoever connects to a broker finds out by himself whether it is
 *   there. Then its link is left, unless publishes without an outcome are on it: those are waited for.
 * - Slow brokers are chosen only when there are no others.
 */
import type { Clock, Timer } from "@sluice/shared/runtime";
import { type Affinity, chooseBroker } from "./balance.ts";
import { BrokerLink, type BrokerLinkOptions, type ListedBroker } from "./broker_link.ts";
import type { LaneSeams } from "./lane.ts";

/** The time between two looks at the clock. */
const TICK_MS = 100;
/** How long a broker that nobody lists any more is used on. */
export const UNLISTED_MS = 30_000;
/** How long a link to a broker that nothing lists stays after it was asked for. */
const WANTED_MS = 5_000;
/** Links at a time, to listed brokers and to those that are waited for. */
export const LINKS_MAX = 4_096;

/** How a pool chooses and connects. */
export interface PoolOptions extends BrokerLinkOptions {
  readonly affinity: Affinity;
}

/** See the module. */
export class BrokerPool {
  readonly links = new Map<string, BrokerLink>();
  /** Called when there is a broker that can take publishes, after there was none or a change. */
  onUsable: () => void = () => {};
  readonly #options: PoolOptions;
  readonly #seams: LaneSeams;
  readonly #clock: Clock;
  /** Brokers that can take publishes, the slow ones left out if there are others. */
  #usable: readonly BrokerLink[] = [];
  #stale = false;
  #unusableSinceMs: number | null;
  #isAnyListed = false;
  #timer: Timer | null = null;
  #closed = false;

  constructor(options: PoolOptions, seams: LaneSeams) {
    this.#options = options;
    this.#seams = seams;
    this.#clock = seams.clock;
    this.#unusableSinceMs = seams.clock.monoMs();
    this.#tickLater();
  }

  /** For how long no broker could take a publish, ms; 0 when one can. */
  get unusableMs(): number {
    this.#refresh();
    return this.#unusableSinceMs === null ? 0 : this.#clock.monoMs() - this.#unusableSinceMs;
  }

  /** Brokers that can take publishes now. */
  get usable(): readonly BrokerLink[] {
    this.#refresh();
    return this.#usable;
  }

  /** Where a publish should go; null while no broker can take it. */
  choose(topic: string, key: string): BrokerLink | null {
    // What a broker has just refused is chosen for before its link is looked at again.
    for (let tries = 0; tries < 2; tries++) {
      const { affinity } = this.#options;
      const link = chooseBroker(this.usable, affinity, topic, key, this.#seams.random);
      if (link === null || link.isUsable) return link;
      this.#stale = true;
    }
    return null;
  }

  /** The brokers that sources list from now on. */
  list(brokers: ReadonlyMap<string, ListedBroker>): void {
    if (this.#closed) return;
    for (const [id, listed] of brokers) {
      const link = this.links.get(id);
      if (link === undefined) this.#link(id, { host: listed.host, port: listed.tcpPort }, listed);
      else {
        link.unlistedSinceMs = null;
        const wasReady = link.listed?.publishReady === true;
        link.listed = listed;
        if (!wasReady && listed.publishReady) link.hurry();
      }
    }
    this.#isAnyListed = brokers.size > 0;
    for (const [id, link] of this.links) {
      if (!brokers.has(id)) link.unlistedSinceMs ??= this.#clock.monoMs();
    }
    this.#changed();
  }

  /** The link to a broker, made if need be: what is in the spool for it waits for it. */
  linkTo(id: string): BrokerLink | null {
    let link = this.links.get(id) ?? null;
    const address = addressOf(id);
    if (link === null && address !== null) link = this.#link(id, address, null);
    if (link !== null) link.wantedUntilMs = this.#clock.monoMs() + WANTED_MS;
    return link;
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
    for (const link of this.links.values()) link.close();
    this.links.clear();
    this.#usable = [];
  }

  #link(
    id: string,
    address: { readonly host: string; readonly port: number },
    listed: ListedBroker | null,
  ): BrokerLink | null {
    if (this.links.size >= LINKS_MAX || this.#closed) return null;
    const changed = () => this.#changed();
    const link = new BrokerLink(id, address, listed, this.#options, this.#seams, changed);
    this.links.set(id, link);
    return link;
  }

  /** Forgets that a broker was listed, once that is long enough ago. */
  #unlist(link: BrokerLink, nowMs: number): void {
    const { unlistedSinceMs } = link;
    if (unlistedSinceMs === null || link.listed === null || !this.#isAnyListed) return;
    if (nowMs - unlistedSinceMs < UNLISTED_MS) return;
    link.listed = null;
    this.#changed();
  }

  #leaveIfDone(link: BrokerLink): void {
    if (link.listed !== null || link.outstandingCount > 0) return;
    if (link.wantedUntilMs > this.#clock.monoMs()) return;
    this.links.delete(link.id);
    link.close();
  }

  #tickLater(): void {
    this.#timer = this.#clock.setTimer(TICK_MS, () => {
      const nowMs = this.#clock.monoMs();
      for (const link of [...this.links.values()]) {
        link.tick(nowMs);
        this.#unlist(link, nowMs);
        this.#leaveIfDone(link);
      }
      this.#tickLater();
    });
  }

  #changed(): void {
    this.#stale = true;
    if (this.#closed) return;
    if (this.usable.length > 0) this.onUsable();
  }

  #refresh(): void {
    if (!this.#stale) return;
    this.#stale = false;
    const all = [...this.links.values()].filter((link) => link.isUsable);
    const fast = all.filter((link) => !link.isSlow);
    this.#usable = fast.length > 0 ? fast : all;
    if (this.#usable.length > 0) this.#unusableSinceMs = null;
    else this.#unusableSinceMs ??= this.#clock.monoMs();
  }
}

/** The host and port in an id, `<host>:<port>`. */
function addressOf(id: string): { readonly host: string; readonly port: number } | null {
  const colon = id.lastIndexOf(":");
  const port = Number(id.slice(colon + 1));
  const host = id.slice(0, colon).replace(/^\[(.*)\]$/, "$1");
  return host === "" || !Number.isInteger(port) || port <= 0 ? null : { host, port };
}
