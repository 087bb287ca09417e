/**
 * The seams between our code and the world: time, disk, network, HTTP, randomness. Interfaces and a
 * few pure helpers; the real ones are in `system.ts`, which only a `main.ts`, a benchmark or a test of it imports.
 */
export * from "./clock.ts";
export * from "./connection.ts";
export * from "./datagram.ts";
export * from "./disk.ts";
export * from "./http_client.ts";
export * from "./http_server.ts";
export * from "./invariant.ts";
export * from "./name_resolver.ts";
export * from "./process_figures.ts";
export * from "./random.ts";
export * from "./serial.ts";
export * from "./sleep.ts";
export * from "./slices.ts";
export * from "./tls.ts";
export * from "./tracer.ts";
export * from "./unix_socket.ts";
export * from "./version.ts";
