/**
 * What is decided for one topic and differs from the broker's settings. A policy is a JSON object with
 * the names that the HTTP API uses; a name that is absent means the broker's setting. Names that this
 * release does not know are a newer one's: they mean nothing here and are kept.
 */

/** When a publish is confirmed, and what consumers see: see docs/OPERATIONS.md. */
export const ACK_MODES = ["durable", "write_ack", "nsq_relaxed"] as const;
export type AckMode = (typeof ACK_MODES)[number];

/** A policy. As JSON it has at most 4 KiB, which checkpoints rely on. */
export type TopicPolicy = Readonly<Record<string, unknown>>;

/** What differs from the broker's settings for a topic that nothing was decided for. */
export const NO_POLICY: TopicPolicy = {};

/** Whether it is the name of a mode. */
export function isAckMode(value: unknown): value is AckMode {
  return ACK_MODES.some((mode) => mode === value);
}

/** The mode that a policy says, null for the broker's. One that is not known is the safest. */
export function ackModeOf({ ack_mode }: TopicPolicy): AckMode | null {
  if (ack_mode === undefined) return null;
  return isAckMode(ack_mode) ? ack_mode : "durable";
}

/** A policy with changes; null takes a name out. */
export function changedPolicy(policy: TopicPolicy, changes: TopicPolicy): TopicPolicy {
  const names = Object.entries({ ...policy, ...changes });
  return Object.fromEntries(names.filter(([, value]) => value !== null));
}
