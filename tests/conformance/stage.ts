/** What a script is played on: a server, a way to it, and its time. */
import type { Network } from "@sluice/shared/runtime";

/** An answer over HTTP. */
export interface Answer {
  readonly status: number;
  readonly text: string;
}

/** What a script talks to. */
export type ScriptServer = "broker" | "lookup";

/** Where a script is played. */
export interface Stage {
  readonly network: Network;
  readonly host: string;
  readonly port: number;
  /** Resolves with `promise`; a simulated clock moves meanwhile. */
  readonly until: <T>(promise: Promise<T>) => Promise<T>;
  readonly wait: (ms: number) => Promise<void>;
  readonly nowMs: () => number;
  readonly http: (method: string, path: string, body: string) => Promise<Answer>;
  /** Makes topics of one run differ from those of others on the same server. */
  readonly prefix: string;
}
