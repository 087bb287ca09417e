/**
 * The body of a large message on its way to one consumer: what it means to the consumer's channel.
 *
 * - The message's timeout runs from the last piece that the connection has taken: each one counts as
 *   a TOUCH, and is bounded like one.
 * - Damage ends the connection in the middle of the frame, since nothing else is left to say, and the
 *   message is passed over for good: the channel never delivers it again.
 * - When the disk cannot be read the connection ends too, a second later, and the message is
 *   delivered again.
 */
import type { BodySource } from "@sluice/shared/server";
import { type BodyReader, type Broker, DamagedBodyError } from "../broker.ts";
import type { Channel, Consumer, LargeMessage } from "../queue/mod.ts";

/** After a failed read, so that a bad disk is not asked in a tight loop. */
const RETRY_MS = 1000;

/** See the module. */
export class LargeBodySource implements BodySource {
  readonly #broker: Broker;
  readonly #to: { readonly channel: Channel; readonly consumer: Consumer };
  readonly #message: LargeMessage;
  readonly #sequence: number;
  readonly #reader: BodyReader;

  constructor(
    broker: Broker,
    to: { readonly channel: Channel; readonly consumer: Consumer },
    message: LargeMessage,
    sequence: number,
  ) {
    this.#broker = broker;
    this.#to = to;
    this.#message = message;
    this.#sequence = sequence;
    this.#reader = broker.readBody(message.body);
  }

  async next(): Promise<Uint8Array | null> {
    const { channel, consumer } = this.#to;
    channel.touch(consumer, this.#sequence, this.#broker.clock.monoMs());
    let piece: Uint8Array | null;
    try {
      piece = await this.#reader.next();
    } catch (error) {
      if (error instanceof DamagedBodyError) this.#passOver();
      else await this.#failed(error);
      throw error;
    }
    if (piece === null) this.#broker.storage.large.counters.delivered++;
    return piece;
  }

  close(): void {
    this.#reader.close();
  }

  #passOver(): void {
    const { channel, consumer } = this.#to;
    this.#broker.source.passOver(this.#message);
    if (this.#broker.failure !== null || channel.deleted) return;
    // It may have timed out meanwhile, and be nobody's or another's.
    if (channel.finish(consumer, this.#sequence) !== "done") {
      this.#broker.finish(channel.state, this.#message.offset);
    }
  }

  async #failed(error: unknown): Promise<void> {
    if (this.#reader.isClosed) return;
    this.#broker.logger.error("Cannot read the body of a message", {
      topic: this.#message.topic.name,
      offset: this.#message.offset,
      error: String(error),
    });
    await this.#broker.clock.sleep(RETRY_MS);
  }
}
