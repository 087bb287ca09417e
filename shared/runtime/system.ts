/**
 * The real clock, disk, network, HTTP server and randomness. Only a `main.ts`, a benchmark or a test
 * of these imports this module; everything else takes the seams of `mod.ts` as parameters.
 */
export * from "./system_clock.ts";
export * from "./system_datagram.ts";
export * from "./system_disk.ts";
export * from "./system_http.ts";
export * from "./system_http_client.ts";
export * from "./system_https.ts";
export * from "./system_name_resolver.ts";
export * from "./system_network.ts";
export * from "./system_process.ts";
export * from "./system_random.ts";
export * from "./system_signals.ts";
export * from "./system_tracer.ts";
export { reclaimUnixSocket } from "./system_unix.ts";
export { socketConnection } from "./system_upgradable.ts";
