/** Topics and channels: who gets which message when. */
export * from "./channel.ts";
export * from "./consumer.ts";
export * from "./latency.ts";
export * from "./message_source.ts";
export * from "./schedule.ts";
export * from "./token_bucket.ts";
export * from "./topic.ts";
export * from "./topic_order.ts";
