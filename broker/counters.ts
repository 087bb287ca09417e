/**
 * What a broker counts beside its parts, since the start: plain numbers that metrics read when they are
 * scraped. What channels count goes with them; what they had counted by then is kept here, so that
 * the totals never go back.
 */
import type { CloseReason } from "@sluice/shared/server";
import { Histogram } from "@sluice/shared/telemetry";
import type { Channel } from "./queue/mod.ts";

/** From a millisecond to a day, in seconds. */
export const AGE_BOUNDS_SECONDS: readonly number[] = [
  0.001,
  0.0025,
  0.005,
  0.01,
  0.025,
  0.05,
  0.1,
  0.25,
  0.5,
  1,
  2.5,
  5,
  10,
  30,
  60,
  300,
  1800,
  3600,
  21_600,
  86_400,
];

/** What a channel counts. */
export interface ChannelCounts {
  delivered: number;
  requeued: number;
  timedOut: number;
}

/** See the module. */
export class BrokerCounters {
  /** NSQ connections that have ended, by why. */
  readonly closes = new Map<CloseReason, number>();
  /** Errors that clients were told over NSQ, by code. */
  readonly errors = new Map<string, number>();
  /** From publish to finish, of one message in {@linkcode SAMPLED_OF}. */
  readonly endToEnd = new Histogram(AGE_BOUNDS_SECONDS);
  /** Of channels that are gone. */
  readonly gone: ChannelCounts = { delivered: 0, requeued: 0, timedOut: 0 };

  /** A channel goes. */
  retire(channel: Channel): void {
    this.gone.delivered += channel.deliveredCount;
    this.gone.requeued += channel.requeueCount;
    this.gone.timedOut += channel.timeoutCount;
  }

  /** A client was told an error. */
  countError(code: string): void {
    this.errors.set(code, (this.errors.get(code) ?? 0) + 1);
  }
}
