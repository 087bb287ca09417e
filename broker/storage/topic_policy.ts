/**
 * What is decided for one topic and differs from the broker's settings. A policy is a JSON object with
 * the names that the HTTP API uses; a name that is absent means the broker's setting. Names that this
 * release does not know are a newer one's: they mean nothing here and are kept.
 */

/** When a publish is confirmed, and what consumers see: see docs/OPERATIONS.md. */
export const ACK_MODES = ["durable", "write_ack", "nsq_relaxed"] as const;
export type AckMode = (typeof ACK_MODES)[number];

/** What happens at the bound of a topic's bytes: see docs/OPERATIONS.md. */
export const QUOTA_ACTIONS = ["refuse", "drop_oldest"] as const;
export type QuotaAction = (typeof QUOTA_ACTIONS)[number];

/** The bound of a topic's bytes. */
export interface Quota {
  /** 0: none. */
  readonly bytesMax: number;
  readonly action: QuotaAction;
}

/** The highest rate: 1 TB a second. */
export const RATE_MAX = 1_000_000_000_000;

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

/** Whether it is the name of an action. */
export function isQuotaAction(value: unknown): value is QuotaAction {
  return QUOTA_ACTIONS.some((action) => action === value);
}

/** Whether it is a bound in bytes; 0 for none. */
export function isQuotaBytes(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** The bound that a policy says, above the broker's. An action that is not known is the safest. */
export function quotaOf({ quota_bytes, quota_action }: TopicPolicy, broker: Quota): Quota {
  const bytesMax = isQuotaBytes(quota_bytes) ? quota_bytes : broker.bytesMax;
  if (quota_action === undefined) return { bytesMax, action: broker.action };
  return { bytesMax, action: isQuotaAction(quota_action) ? quota_action : "refuse" };
}

/** Whether it is a rate, of messages or bytes a second; 0 for any. */
export function isRate(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) <= RATE_MAX;
}

/** The rates that a policy says, above the broker's. */
export function ratesOf(
  { publish_rate, publish_bytes_rate }: TopicPolicy,
  broker: { readonly messages: number; readonly bytes: number },
): { readonly messages: number; readonly bytes: number } {
  return {
    messages: isRate(publish_rate) ? publish_rate : broker.messages,
    bytes: isRate(publish_bytes_rate) ? publish_bytes_rate : broker.bytes,
  };
}

/** A policy with changes; null takes a name out. */
export function changedPolicy(policy: TopicPolicy, changes: TopicPolicy): TopicPolicy {
  const names = Object.entries({ ...policy, ...changes });
  return Object.fromEntries(names.filter(([, value]) => value !== null));
}
