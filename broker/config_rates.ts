/** The broker's settings of how fast may be published. All of them are off by default. */
import { bytes, integer, setting } from "@sluice/shared/config";
import { RATE_MAX } from "./storage/mod.ts";

/** Rates of topics and clients, and what one connection may have under way. */
export function rateSettings() {
  const group = "Rate limits";
  return {
    topicPublishRate: setting({
      name: "topic-publish-rate",
      kind: integer({ min: 0, max: RATE_MAX }),
      default: 0,
      doc: "Messages a second that may be published to one topic, without a policy of its own; 0 " +
        "for any number. More are refused with E_THROTTLED, or 429 with Retry-After.",
      reload: true,
      group,
    }),
    topicPublishBytesRate: setting({
      name: "topic-publish-bytes-rate",
      kind: bytes({ max: RATE_MAX }),
      default: 0,
      doc: "Bytes of messages a second that may be published to one topic; 0 for any number.",
      reload: true,
      group,
    }),
    clientPublishRate: setting({
      name: "client-publish-rate",
      kind: integer({ min: 0, max: RATE_MAX }),
      default: 0,
      doc: "Messages a second that one client may publish, over all its connections; 0 for any " +
        "number. A client is an identity where there is authorization, else an address.",
      reload: true,
      group,
    }),
    connectionPublishBytesMax: setting({
      name: "connection-publish-bytes-max",
      kind: bytes({ max: 65_536 * 2 ** 20 }),
      default: 0,
      defaultDoc: "a quarter of publish-bytes-max, at least max-body-size",
      doc: "Bytes of publish-bytes-max that one connection may have; 0 for the default. An NSQ " +
        "connection never has more than one body.",
      reload: true,
      group,
    }),
  };
}

/** What one connection may have, in bytes. */
export function connectionPublishBytesMax(values: {
  readonly connectionPublishBytesMax: number;
  readonly publishBytesMax: number;
  readonly maxBodySizeBytes: number;
}): number {
  const { connectionPublishBytesMax: given, publishBytesMax, maxBodySizeBytes } = values;
  return given || Math.max(Math.floor(publishBytesMax / 4), maxBodySizeBytes);
}
