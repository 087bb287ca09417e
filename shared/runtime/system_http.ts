/**
 * The real HTTP server. What is not HTTP on its port is answered with `HTTP/1.1 400 Bad Request` and
 * closed by the runtime's parser, before any handler.
 */
import { AddressInUseError } from "./connection.ts";
import type { HttpServer, ServeHttpOptions } from "./http_server.ts";
import { addressText } from "./system_network.ts";
import { UNIX_PEER, UNIX_PORT } from "./unix_socket.ts";

/** Serves HTTP/1.1 and HTTP/2 without TLS until shut down; over a Unix socket too. */
export function serveHttp(options: ServeHttpOptions): HttpServer {
  const { hostname, port, handler, onError, signal } = options;
  const drop = new AbortController();
  const cutOff = Promise.withResolvers<void>();
  let isStopping = false;
  try {
    const common = { onError, onListen: () => {}, signal: drop.signal };
    const answer = (request: Request, information: { readonly remoteAddr: Deno.Addr }) =>
      handler(request, port === UNIX_PORT ? UNIX_PEER : addressText(information.remoteAddr));
    const server = port === UNIX_PORT
      ? Deno.serve({ ...common, path: hostname }, answer)
      : Deno.serve({ ...common, hostname, port }, answer);
    const onAbort = () => {
      // Deno ends the process with BadResource when a server that shuts down is aborted too.
      if (isStopping) cutOff.resolve();
      else drop.abort();
    };
    if (signal?.aborted) onAbort();
    else signal?.addEventListener("abort", onAbort, { once: true });
    return {
      hostname: "hostname" in server.addr ? server.addr.hostname : hostname,
      port: "port" in server.addr ? server.addr.port : port,
      shutdown: () => {
        isStopping = true;
        return Promise.race([server.shutdown(), cutOff.promise]);
      },
    };
  } catch (error) {
    if (error instanceof Deno.errors.AddrInUse) {
      throw new AddressInUseError(hostname, port, { cause: error });
    }
    throw error;
  }
}
