/** Addresses of the runtime, as hosts and ports and as text. */
import { hostAndPort, UNIX_PEER, UNIX_PORT } from "./unix_socket.ts";

/** A host with a port; a path stands for the host, and is empty where a Unix socket has no name. */
export interface HostAndPort {
  readonly hostname: string;
  readonly port: number;
}

/** An address of the runtime as host and port. */
export function hostOf(address: Deno.Addr | HostAndPort): HostAndPort {
  if ("hostname" in address) return address;
  return { hostname: "path" in address ? address.path ?? "" : "", port: UNIX_PORT };
}

/** An address as `host:port`, an IPv6 host in brackets; that of the peer of a Unix socket as `@`. */
export function addressText(address: Deno.Addr | HostAndPort): string {
  const { hostname, port } = hostOf(address);
  return hostname === "" ? UNIX_PEER : hostAndPort(hostname, port);
}
