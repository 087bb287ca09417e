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
  try {
    const server = Deno.serve(
      { hostname, port, onError, onListen: () => {}, ...(signal === undefined ? {} : { signal }) },
      (request, information) => handler(request, addressText(information.remoteAddr)),
    );
    return {
      hostname: server.addr.hostname,
      port: server.addr.port,
      shutdown: () => server.shutdown(),
    };
  } catch (error) {
    if (error instanceof Deno.errors.AddrInUse) {
      throw new AddressInUseError(hostname, port, { cause: error });
    }
    throw error;
  }
}
