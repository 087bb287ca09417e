/**
 * Where to listen or connect: `host:port`, `[ipv6]:port`, or a path with a slash in it, which names a
 * Unix socket. Names are not resolved here; a caller that has no Unix sockets refuses them itself.
 */
import { UNIX_PORT, unreachable } from "../runtime/mod.ts";
import type { Kind } from "./kind.ts";

/** A parsed address. */
export type Address =
  | { readonly transport: "tcp"; readonly host: string; readonly port: number }
  | { readonly transport: "unix"; readonly path: string };

/** What an address is for. */
export interface AddressOptions {
  /**
   * `listen` (default): port 0 picks a free one, and no host (`:4150`) means every interface.
   * `connect`: host and port are needed.
   */
  readonly use?: "listen" | "connect";
}

const HOST_CHARACTERS_MAX = 253;
const PATH_CHARACTERS_MAX = 4096;

/** An address to listen on or to connect to. */
export function address(options: AddressOptions = {}): Kind<Address> {
  const listens = options.use !== "connect";
  const parse = (given: string) => parseAddress(given, listens);
  return {
    placeholder: "HOST:PORT",
    wanted: listens
      ? "an address such as 0.0.0.0:4150 or [::1]:4150 (port 0 picks a free one), or a path"
      : "an address such as discovery-0:4160 or [::1]:4160",
    repeats: false,
    parse,
    fromDocument: (value) => typeof value === "string" ? parse(value) : undefined,
    show: showAddress,
    toOption: (value) => ({ body: showAddress(value), json: false }),
  };
}

function parseAddress(given: string, listens: boolean): Address | undefined {
  if (given.includes("/")) {
    // A URL is a common slip for a host and port; it is no path.
    if (given.includes("://") || /\p{Cc}/u.test(given)) return undefined;
    return given.length <= PATH_CHARACTERS_MAX ? { transport: "unix", path: given } : undefined;
  }
  const match = /^(?:\[([0-9a-f:.]+(?:%[\w.-]+)?)\]|([\w.-]*)):(\d{1,5})$/i.exec(given);
  if (match === null) return undefined;
  const [, ipv6, name = "", digits] = match;
  const host = ipv6 ?? name;
  const port = Number(digits);
  if (host.length > HOST_CHARACTERS_MAX || port > 65_535) return undefined;
  if (!listens && (host === "" || port === 0)) return undefined;
  return { transport: "tcp", host: host === "" ? "0.0.0.0" : host, port };
}

/** The text an address is written as. */
export function showAddress(value: Address): string {
  switch (value.transport) {
    case "unix":
      return value.path;
    case "tcp":
      return value.host.includes(":")
        ? `[${value.host}]:${value.port}`
        : `${value.host}:${value.port}`;
    default:
      return unreachable(value);
  }
}

/** The host and port to listen on; a path stands for the host. */
export function listenTarget(
  value: Address,
): { readonly host: string; readonly port: number } {
  return value.transport === "tcp" ? value : { host: value.path, port: UNIX_PORT };
}
