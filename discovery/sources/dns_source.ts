/**
 * Brokers behind a name in DNS: the A and AAAA records of a name with the HTTP port that is given, or
 * the SRV records of a name that begins with `_`, which have the port. The name is looked up every
 * `intervalMs`.
 *
 * The resolver cannot tell that a name has no records from a name server in trouble. So an empty answer
 * is taken for trouble: what was listed before stays for {@linkcode EMPTY_HOLD_MS}, called stale, and
 * only then there is nobody. Brokers that are gone do not answer, so they are not listed meanwhile.
 */
import {
  type Clock,
  NameResolutionError,
  type NameResolver,
  type Timer,
} from "@sluice/shared/runtime";
import type { Endpoint, Source, SourceSink } from "./source.ts";

export const EMPTY_HOLD_MS = 60_000;
export const LOOKUP_TIMEOUT_MS = 3_000;
export const HTTP_PORT_DEFAULT = 4151;
const NAME_CHARACTERS_MAX = 253;
const LABEL_REGEXP = /^[a-z0-9_][a-z0-9_-]{0,62}$/i;

/** What to look up. */
export type DnsName =
  | { readonly kind: "address"; readonly name: string; readonly port: number }
  | { readonly kind: "service"; readonly name: string };

export interface DnsSourceOptions {
  readonly name: DnsName;
  readonly resolver: NameResolver;
  readonly clock: Clock;
  readonly intervalMs: number;
  /** Called for an error that is a mistake of ours; the service must stop. */
  readonly onBroken: (error: unknown) => void;
}

/** Reads `name`, `name:port` or `_service._proto.name`; `undefined` when it is none of these. */
export function parseDnsName(text: string): DnsName | undefined {
  const [name = "", digits, ...rest] = text.split(":");
  const labels = name.replace(/\.$/, "").split(".");
  const isName = name.length <= NAME_CHARACTERS_MAX &&
    labels.every((one) => LABEL_REGEXP.test(one));
  if (!isName || rest.length > 0 || !(digits === undefined || /^\d{1,5}$/.test(digits))) {
    return undefined;
  }
  if (name.startsWith("_")) return digits === undefined ? { kind: "service", name } : undefined;
  const port = digits === undefined ? HTTP_PORT_DEFAULT : Number(digits);
  return port >= 1 && port <= 65_535 ? { kind: "address", name, port } : undefined;
}

/** The text that {@linkcode parseDnsName} reads. */
export function showDnsName(name: DnsName): string {
  return name.kind === "service" ? name.name : `${name.name}:${name.port}`;
}

/** See the module. */
export class DnsSource implements Source {
  readonly name: string;
  readonly kind = "dns";
  readonly staleAfterMs: number;
  readonly #options: DnsSourceOptions;
  #timer: Timer | null = null;
  #asking: Promise<void> = Promise.resolve();
  #emptySinceMs: number | null = null;
  #stopped = false;

  constructor(options: DnsSourceOptions) {
    this.#options = options;
    this.name = `dns:${showDnsName(options.name)}`;
    this.staleAfterMs = 2 * options.intervalMs + LOOKUP_TIMEOUT_MS;
  }

  start(sink: SourceSink): void {
    this.#asking = this.#ask(sink).catch(this.#options.onBroken);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#timer?.cancel();
    await this.#asking;
  }

  async #ask(sink: SourceSink): Promise<void> {
    const { clock, intervalMs } = this.#options;
    try {
      const found = await this.#lookUp();
      if (!this.#stopped) this.#tell(found, sink);
    } catch (error) {
      if (!(error instanceof NameResolutionError)) throw error;
      if (!this.#stopped) sink.failed(error.message);
    }
    if (this.#stopped) return;
    this.#timer = clock.setTimer(intervalMs, () => this.start(sink));
  }

  #tell(found: readonly Endpoint[], sink: SourceSink): void {
    const nowMs = this.#options.clock.monoMs();
    const texts = found.map(({ host, port }) => `${host}:${port}`).sort();
    if (found.length > 0) {
      this.#emptySinceMs = null;
      return sink.listed(found, texts.length === 1 ? texts[0] ?? "" : digest(texts));
    }
    this.#emptySinceMs ??= nowMs;
    if (nowMs - this.#emptySinceMs < EMPTY_HOLD_MS) {
      return sink.failed("the name has no records, or its server is in trouble");
    }
    sink.listed([], "none");
  }

  async #lookUp(): Promise<Endpoint[]> {
    const { name, resolver } = this.#options;
    if (name.kind === "service") return await resolver.services(name.name, LOOKUP_TIMEOUT_MS);
    const addresses = await resolver.addresses(name.name, LOOKUP_TIMEOUT_MS);
    return addresses.map((host) => ({ host, port: name.port }));
  }
}

/** A short text that differs for different lists: FNV-1a. */
function digest(texts: readonly string[]): string {
  let hash = 0x811c9dc5;
  for (const text of texts) {
    for (let index = 0; index < text.length; index++) {
      hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
    }
    hash = Math.imul(hash ^ 10, 0x01000193);
  }
  return `${texts.length}-${(hash >>> 0).toString(16)}`;
}
