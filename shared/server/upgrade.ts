/**
 * What follows the reply to an IDENTIFY that asks for more than plain text (contract section 1.6):
 *
 * ```
 * reply in clear -> TLS handshake -> OK -> snappy or deflate -> OK -> commands
 * ```
 *
 * Each OK goes through all layers there are so far. Nothing else is sent in between, no heartbeat
 * either, and nothing is read: who sends more than IDENTIFY before the last OK is refused, since in
 * front of TLS anybody may have put it there.
 */
import {
  DeflateDecoder,
  DeflateEncoder,
  OK_FRAME,
  SnappyDecoder,
  SnappyEncoder,
} from "../protocol/mod.ts";
import type { ConnectionSettings } from "../protocol/mod.ts";
import type { Clock, Timer, TlsSettings } from "../runtime/mod.ts";
import type { LayeredConnection } from "./connection_layers.ts";

/** How long a handshake may take, as in nsqd. */
export const HANDSHAKE_MS_MAX = 5_000;
/** What a handshake has for certain while others wait for their turn; peers that mean it need less. */
export const HANDSHAKE_FAIR_MS = 1_500;
/** Handshakes under way; more wait for their turn, with the time an upgrade may take. */
export const HANDSHAKES_MAX = 256;

/** How a service speaks TLS on its NSQ connections. */
export interface TlsDoor {
  /** Asked at each handshake, so that a renewed certificate counts at once. */
  readonly settings: () => TlsSettings;
  /** Every command but IDENTIFY needs TLS. */
  readonly required: boolean;
  readonly handshakes: Handshakes;
}

/**
 * The handshakes of a door, so many at a time, in the order they came. While others wait, the oldest
 * one that has had its fair time is dropped, so that silent peers cannot keep all turns.
 */
export class Handshakes {
  failedCount = 0;
  /** Those that had to wait for their turn. */
  waitCount = 0;
  readonly #clock: Clock;
  readonly limit: number;
  readonly #waiting: (() => void)[] = [];
  /** Those under way that nobody has dropped, in the order they started. */
  readonly #running = new Set<Turn>();
  #taken = 0;
  #timer: Timer | null = null;

  constructor(clock: Clock, limit: number = HANDSHAKES_MAX) {
    this.#clock = clock;
    this.limit = limit;
  }

  /** Those under way. */
  get count(): number {
    return this.#taken;
  }

  /** Runs `handshake` when it is its turn; `drop` makes it fail soon. */
  async run(handshake: () => Promise<void>, drop: () => void): Promise<void> {
    if (this.#taken < this.limit) this.#taken++;
    else {
      this.waitCount++;
      // The turn of the one that ends is handed over.
      await new Promise<void>((resolve) => {
        this.#waiting.push(resolve);
        this.#watch();
      });
    }
    const turn = { sinceMs: this.#clock.monoMs(), drop };
    this.#running.add(turn);
    try {
      await handshake();
    } catch (error) {
      this.failedCount++;
      throw error;
    } finally {
      this.#running.delete(turn);
      const next = this.#waiting.shift();
      if (next === undefined) this.#taken--;
      else next();
      if (this.#waiting.length === 0) {
        this.#timer?.cancel();
        this.#timer = null;
      }
    }
  }

  /** Has the oldest turns end, one for each that waits, when they have had their time. */
  #watch(): void {
    const [oldest] = this.#running;
    if (this.#timer !== null || this.#waiting.length === 0 || oldest === undefined) return;
    const delayMs = Math.max(0, oldest.sinceMs + HANDSHAKE_FAIR_MS - this.#clock.monoMs());
    this.#timer = this.#clock.setTimer(delayMs, () => {
      this.#timer = null;
      const overMs = this.#clock.monoMs() - HANDSHAKE_FAIR_MS;
      const late = [...this.#running].filter(({ sinceMs }) => sinceMs <= overMs);
      for (const turn of late.slice(0, this.#waiting.length)) {
        this.#running.delete(turn);
        turn.drop();
      }
      this.#watch();
    });
  }
}

interface Turn {
  readonly sinceMs: number;
  readonly drop: () => void;
}

/** Whether anything follows the reply. */
export function needsUpgrade({ tls, snappy, deflate }: ConnectionSettings): boolean {
  return tls || snappy || deflate;
}

/**
 * Sends `reply` and puts the layers in place that were settled. Rejects with `ConnectionError`. The reply
 * is what a client waits for before its handshake, so it is sent when the turn for that has come: bytes
 * that were here before would not be taken for TLS.
 */
export async function upgrade(
  connection: LayeredConnection,
  settings: ConnectionSettings,
  door: TlsDoor | null,
  reply: Uint8Array,
): Promise<void> {
  if (settings.tls && door !== null) {
    await door.handshakes.run(
      async () => {
        await connection.writeAll(reply);
        await connection.answerTls(door.settings(), HANDSHAKE_MS_MAX);
      },
      () => connection.close(),
    );
    await connection.writeAll(OK_FRAME);
  } else await connection.writeAll(reply);
  if (settings.snappy) {
    connection.compress("snappy", new SnappyEncoder(), new SnappyDecoder());
  } else if (settings.deflate) {
    const encoder = new DeflateEncoder(settings.deflateLevel);
    connection.compress("deflate", encoder, new DeflateDecoder());
  } else return;
  await connection.writeAll(OK_FRAME);
}
