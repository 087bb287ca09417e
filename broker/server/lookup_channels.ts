/**
 * Which channels a topic has elsewhere. A broker that gets a topic makes these channels before the
 * first message, so that consumers that have not found it yet miss nothing.
 */
import { isEphemeral, isValidName } from "@sluice/shared/protocol";
import type { Logger } from "@sluice/shared/telemetry";

export const LOOKUP_TIMEOUT_MS = 2_000;
export const LOOKUP_BODY_BYTES_MAX = 1_048_576;
/** The most channels taken over; the rest is left out, with a warning. */
export const LOOKUP_CHANNELS_MAX = 10_000;

/** An HTTP GET. Rejects when there is no whole answer in time or the body is larger than allowed. */
export type HttpGet = (
  url: string,
  bounds: { readonly timeoutMs: number; readonly bodyBytesMax: number },
) => Promise<{ readonly status: number; readonly body: Uint8Array }>;

/**
 * The channels of `topic` that the discovery services at `addresses` (`host:port` of their HTTP
 * side) know together, sorted. Asks all at once. One that fails or answers nonsense is logged and
 * counts for nothing. Ephemeral channels are left out: nobody wants their messages before a
 * consumer is there. Never rejects.
 */
export async function lookupChannels(
  topic: string,
  addresses: readonly string[],
  seams: { readonly httpGet: HttpGet; readonly logger: Logger },
): Promise<string[]> {
  const { httpGet, logger } = seams;
  const answers = await Promise.all(addresses.map(async (address) => {
    const url = `http://${address}/channels?topic=${encodeURIComponent(topic)}`;
    try {
      const { status, body } = await httpGet(url, {
        timeoutMs: LOOKUP_TIMEOUT_MS,
        bodyBytesMax: LOOKUP_BODY_BYTES_MAX,
      });
      if (status !== 200) throw new Error(`Cannot look up channels: status ${status}`);
      return channelsIn(body);
    } catch (error) {
      const cause = error instanceof Error ? error : String(error);
      logger.warn("channels could not be looked up", { topic, url, cause });
      return [];
    }
  }));
  const channels = [...new Set(answers.flat())].sort();
  if (channels.length > LOOKUP_CHANNELS_MAX) {
    logger.warn("discovery knows too many channels", { topic, channels: channels.length });
  }
  return channels.slice(0, LOOKUP_CHANNELS_MAX);
}

/** The durable channels in the answer. Throws when it is not of the expected shape. */
function channelsIn(body: Uint8Array): string[] {
  const document: unknown = JSON.parse(new TextDecoder().decode(body));
  if (typeof document !== "object" || document === null || !("channels" in document)) {
    throw new TypeError("Cannot look up channels: the answer has none");
  }
  const { channels } = document;
  if (!Array.isArray(channels)) {
    throw new TypeError("Cannot look up channels: the answer has no list of them");
  }
  return channels.filter((channel) => {
    return typeof channel === "string" && isValidName(channel) && !isEphemeral(channel);
  });
}
