/**
 * Unix sockets as addresses. Everything that takes a host and a port takes a path for the host, with
 * {@linkcode UNIX_PORT} for the port; peers of a Unix socket have no address but
 * {@linkcode UNIX_PEER}. So a listener, a connection and a server are the same over both.
 */

/** The port of a path. nsqd tells it as its port, too. */
export const UNIX_PORT = -1;

/** The address of a peer that has none, as nsqd tells it. */
export const UNIX_PEER = "@";

/** A host and port as people write them; a path as it is. */
export function hostAndPort(host: string, port: number): string {
  if (port === UNIX_PORT) return host;
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
