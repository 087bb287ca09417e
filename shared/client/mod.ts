/**
 * The client's side of NSQ V2: publishing with a known outcome, and consuming, over one connection.
 */
export * from "./client_link.ts";
export * from "./consumer_connection.ts";
export * from "./producer_connection.ts";
