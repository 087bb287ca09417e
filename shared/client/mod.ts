/**
 * The client's side of NSQ V2: publishing with a known outcome, and consuming, over one connection; and
 * of discovery: which brokers there are.
 */
export {
  BrokerDirectory,
  type BrokerDirectoryOptions,
  BROKERS_MAX,
  type BrokerSet,
  type DirectoryListener,
  type KnownBroker,
} from "./broker_directory.ts";
export { type DiscoverySeams, NODES_INTERVAL_MS } from "./broker_watch.ts";
export * from "./client_link.ts";
export * from "./consumer_connection.ts";
export * from "./producer_connection.ts";
export type { MessageHandler, MessageOrigin } from "./counted_connection.ts";
export { type ConsumerSeams, TopicConsumer, type TopicConsumerOptions } from "./topic_consumer.ts";
export type { SourceState, SourceStatus } from "./source_view.ts";
