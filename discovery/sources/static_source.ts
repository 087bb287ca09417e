/** Brokers named in the settings. */
import type { Endpoint, Source, SourceSink } from "./source.ts";

/** See the module. What it lists never changes and is never stale. */
export class StaticSource implements Source {
  readonly name = "static";
  readonly kind = "static";
  readonly staleAfterMs = Infinity;
  readonly #endpoints: readonly Endpoint[];

  constructor(endpoints: readonly Endpoint[]) {
    this.#endpoints = endpoints;
  }

  start(sink: SourceSink): void {
    sink.listed(this.#endpoints, "settings");
  }

  stop(): Promise<void> {
    return Promise.resolve();
  }
}
