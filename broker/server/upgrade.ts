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
} from "@sluice/shared/protocol";
import type { ConnectionSettings } from "@sluice/shared/protocol";
import type { TlsSettings } from "@sluice/shared/runtime";
import type { LayeredConnection } from "./connection_layers.ts";

/** How long a handshake may take, as in nsqd. */
export const HANDSHAKE_MS_MAX = 5_000;
/** Handshakes under way; more wait for their turn, with the time an upgrade may take. */
export const HANDSHAKES_MAX = 256;

/** How a broker speaks TLS on its NSQ connections. */
export interface TlsDoor {
  /** Asked at each handshake, so that a renewed certificate counts at once. */
  readonly settings: () => TlsSettings;
  /** Every command but IDENTIFY needs TLS. */
  readonly required: boolean;
  readonly handshakes: Handshakes;
}

/** The handshakes of a door, so many at a time, in the order they came. */
export class Handshakes {
  failedCount = 0;
  readonly #limit: number;
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  constructor(limit: number = HANDSHAKES_MAX) {
    this.#limit = limit;
  }

  /** Runs `handshake` when it is its turn. */
  async run(handshake: () => Promise<void>): Promise<void> {
    if (this.#running < this.#limit) this.#running++;
    // The turn of the one that ends is handed over.
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      await handshake();
    } catch (error) {
      this.failedCount++;
      throw error;
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#running--;
      else next();
    }
  }
}

/** Whether anything follows the reply. */
export function needsUpgrade({ tls, snappy, deflate }: ConnectionSettings): boolean {
  return tls || snappy || deflate;
}

/** Puts the layers in place that were settled. Rejects with `ConnectionError`. */
export async function upgrade(
  connection: LayeredConnection,
  settings: ConnectionSettings,
  door: TlsDoor | null,
): Promise<void> {
  if (settings.tls && door !== null) {
    await door.handshakes.run(() => connection.answerTls(door.settings(), HANDSHAKE_MS_MAX));
    await connection.writeAll(OK_FRAME);
  }
  if (settings.snappy) {
    connection.compress("snappy", new SnappyEncoder(), new SnappyDecoder());
  } else if (settings.deflate) {
    const encoder = new DeflateEncoder(settings.deflateLevel);
    connection.compress("deflate", encoder, new DeflateDecoder());
  } else return;
  await connection.writeAll(OK_FRAME);
}
