/**
 * Where brokers may be found that did not register: the interface that every source has, and
 * {@linkcode SourceView}, what is known from one.
 *
 * A source says where to look, never what is there: what a broker says of itself when it is asked
 * decides. So a source that fails, or lists too much, changes nothing: what it said last is kept, is
 * called stale, and the brokers of it that answer are as fresh as before.
 *
 *     starting -> current <-> stale, and from starting to failed (nothing was ever listed) and back
 */
import { type Clock, hostAndPort } from "@sluice/shared/runtime";

/** The HTTP door of something that may be a broker. */
export interface Endpoint {
  readonly host: string;
  readonly port: number;
}

/** Endpoints that came and went since the version before. None of either says "nothing new". */
export interface SourceChange {
  readonly added: readonly Endpoint[];
  readonly removed: readonly Endpoint[];
  readonly version: string;
}

/** Whom a source tells. A source that lists and then watches uses both of the first two. */
export interface SourceSink {
  /** These are all. `version` is the source's own, opaque, for people to compare. */
  listed(endpoints: readonly Endpoint[], version: string): void;
  changed(change: SourceChange): void;
  /** The source cannot say how things are; it goes on trying. */
  failed(reason: string): void;
}

/** See the module. */
export interface Source {
  /** Unique among the sources of a service. */
  readonly name: string;
  readonly kind: "static" | "dns" | "kubernetes";
  /** How old what it said may be before it is stale; `Infinity` for what never changes. */
  readonly staleAfterMs: number;
  start(sink: SourceSink): void;
  stop(): Promise<void>;
}

export type SourceState = "starting" | "current" | "stale" | "failed";

/** What is known from a source, and how well. */
export interface SourceStatus {
  readonly name: string;
  readonly kind: Source["kind"];
  readonly state: SourceState;
  /** Why it is not current; `null` when it is. */
  readonly reason: string | null;
  /** `null` before it said anything. */
  readonly version: string | null;
  /** Since it last said how things are; `null` before. */
  readonly ageMs: number | null;
  readonly endpoints: number;
  /** Times that it could not say, or said too much. */
  readonly failures: number;
}

/** What one source lists at most. */
export const ENDPOINTS_MAX = 4_096;

/** Keeps what a source said. Calls `changed` after the endpoints have changed. */
export class SourceView implements SourceSink {
  readonly source: Source;
  readonly #clock: Clock;
  readonly #changed: () => void;
  readonly #failed: (reason: string) => void;
  readonly #endpoints = new Map<string, Endpoint>();
  #version: string | null = null;
  #saidMs: number | null = null;
  #failure: string | null = null;
  #failures = 0;

  constructor(
    source: Source,
    clock: Clock,
    changed: () => void,
    failed: (reason: string) => void = () => {},
  ) {
    this.source = source;
    this.#clock = clock;
    this.#changed = changed;
    this.#failed = failed;
  }

  get endpoints(): ReadonlyMap<string, Endpoint> {
    return this.#endpoints;
  }

  listed(endpoints: readonly Endpoint[], version: string): void {
    const wanted = new Map(endpoints.map((endpoint) => [endpointKey(endpoint), endpoint]));
    if (wanted.size > ENDPOINTS_MAX) return this.failed(tooMany(wanted.size));
    this.#said(version);
    const isSame = wanted.size === this.#endpoints.size &&
      [...wanted.keys()].every((key) => this.#endpoints.has(key));
    if (isSame) return;
    this.#endpoints.clear();
    for (const [key, endpoint] of wanted) this.#endpoints.set(key, endpoint);
    this.#changed();
  }

  changed({ added, removed, version }: SourceChange): void {
    const next = new Map(this.#endpoints);
    for (const endpoint of removed) next.delete(endpointKey(endpoint));
    for (const endpoint of added) next.set(endpointKey(endpoint), endpoint);
    this.listed([...next.values()], version);
  }

  failed(reason: string): void {
    const isNews = this.#failure !== reason;
    this.#failure = reason;
    this.#failures += 1;
    if (isNews) this.#failed(reason);
  }

  status(): SourceStatus {
    const { name, kind, staleAfterMs } = this.source;
    const ageMs = this.#saidMs === null ? null : this.#clock.monoMs() - this.#saidMs;
    const isOld = ageMs !== null && ageMs > staleAfterMs;
    const state = ageMs === null
      ? this.#failure === null ? "starting" : "failed"
      : isOld || this.#failure !== null
      ? "stale"
      : "current";
    const old = isOld ? `nothing was heard for ${Math.floor(ageMs)} ms` : null;
    return {
      name,
      kind,
      state,
      reason: state === "starting" ? "nothing was heard yet" : this.#failure ?? old,
      version: this.#version,
      ageMs,
      endpoints: this.#endpoints.size,
      failures: this.#failures,
    };
  }

  #said(version: string): void {
    this.#version = version;
    this.#saidMs = this.#clock.monoMs();
    this.#failure = null;
  }
}

/** Names an endpoint among all. */
export function endpointKey({ host, port }: Endpoint): string {
  return hostAndPort(host, port);
}

function tooMany(count: number): string {
  return `it lists ${count} brokers, more than ${ENDPOINTS_MAX}`;
}
