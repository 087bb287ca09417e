/**
 * The real HTTP server. What is not HTTP on its port is answered with `HTTP/1.1 400 Bad Request` and
 * closed by the runtime's parser, before any handler.
 */
import { AddressInUseError } from "./connection.ts";
import type { HttpServer, ServeHttpOptions } from "./http_server.ts";
import { addressText } from "./system_network.ts";

/** Serves HTTP/1.1 and HTTP/2 without TLS until shut down. */
export function serveHttp(options: ServeHttpOptions): HttpServer {
  const { hostname, port, handler, onError, signal } = options;
  const drop = new AbortController();
  const cutOff = Promise.withResolvers<void>();
  let isStopping = false;
  try {
    const server = Deno.serve(
      { hostname, port, onError, onListen: () => {}, signal: drop.signal },
      (request, information) => handler(request, addressText(information.remoteAddr)),
    );
    const onAbort = () => {
      // Deno ends the process with BadResource when a server that shuts down is aborted too.
      if (isStopping) cutOff.resolve();
      else drop.abort();
    };
    if (signal?.aborted) onAbort();
    else signal?.addEventListener("abort", onAbort, { once: true });
    return {
      hostname: server.addr.hostname,
      port: server.addr.port,
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
