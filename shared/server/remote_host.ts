/** What the address of a peer, `host:port` or that of a Unix socket, says about it. */
import { UNIX_PEER } from "../runtime/mod.ts";

/** The host, without the brackets of an IPv6 address; empty over a Unix socket. */
export function remoteHost(remoteAddress: string): string {
  return remoteAddress.slice(0, remoteAddress.lastIndexOf(":")).replace(/^\[(.*)\]$/, "$1");
}

/** Whether the peer is on this machine: by IPv4, IPv6 or a Unix socket. */
export function isLoopback(remoteAddress: string): boolean {
  if (remoteAddress === UNIX_PEER) return true;
  const host = remoteHost(remoteAddress);
  return /^(::ffff:)?127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/i.test(host) || host === "::1";
}
