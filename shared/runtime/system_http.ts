/**
 * The real HTTP server. What is not HTTP on its port is answered with `HTTP/1.1 400 Bad Request` and
 * closed by the runtime's parser, before any handler.
 *
 * The runtime has no bound on how long a peer may take for the head of a request, nor on how many
 * connections there are, and it ends a server for good when it cannot accept because there are no
 * descriptors left. This one then drops all its connections, which gives the descriptors back, and
 * listens again at the same address until it can. So slow or idle peers cost descriptors up to the
 * limit of the process and little memory; nobody waits for them, not even a shutdown that is cut off.
 * How long a body may take is up to the handler that reads it.
 */
import { AddressInUseError } from "./connection.ts";
import { LISTEN_BACKLOG } from "./system_backlog.ts";
import type { HttpServer, ServeHttpOptions } from "./http_server.ts";
import { addressText } from "./system_address.ts";
import { UNIX_PEER, UNIX_PORT } from "./unix_socket.ts";

/** How long a server that failed waits until it listens again. */
export const LISTEN_RETRY_MS = 50;

type Server = Deno.HttpServer<Deno.Addr>;

/** Serves HTTP/1.1 and HTTP/2 without TLS until shut down; over a Unix socket too. */
export function serveHttp(options: ServeHttpOptions): HttpServer {
  return new SystemHttpServer(options);
}

class SystemHttpServer implements HttpServer {
  readonly hostname: string;
  readonly port: number;
  acceptFailureCount = 0;
  readonly #options: ServeHttpOptions;
  readonly #cutOff = Promise.withResolvers<void>();
  /** Drops the listener and connections of the server that is or was there last. */
  #drop = new AbortController();
  /** Null while it waits to listen again. */
  #server: Server | null;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #isStopping = false;

  constructor(options: ServeHttpOptions) {
    this.#options = options;
    const server = this.#listen(options.port);
    const { addr } = server;
    this.hostname = "hostname" in addr ? addr.hostname : options.hostname;
    this.port = "port" in addr ? addr.port : options.port;
    this.#server = server;
    this.#watch(server);
    const { signal } = options;
    if (signal?.aborted) this.#abort();
    else signal?.addEventListener("abort", () => this.#abort(), { once: true });
  }

  shutdown(): Promise<void> {
    this.#isStopping = true;
    clearTimeout(this.#retry);
    const stopped = this.#server?.shutdown() ?? Promise.resolve();
    return Promise.race([stopped, this.#cutOff.promise]);
  }

  #abort(): void {
    clearTimeout(this.#retry);
    // Deno ends the process with BadResource when a server that shuts down is aborted too.
    if (this.#isStopping) this.#cutOff.resolve();
    else this.#drop.abort();
  }

  #listen(port: number): Server {
    const { hostname, handler, onError } = this.#options;
    const common = { onError, onListen: () => {}, signal: this.#drop.signal };
    const isUnix = port === UNIX_PORT;
    const answer = (request: Request, information: { readonly remoteAddr: Deno.Addr }) =>
      handler(request, isUnix ? UNIX_PEER : addressText(information.remoteAddr));
    try {
      return isUnix
        ? Deno.serve({ ...common, path: hostname }, answer)
        : Deno.serve({ ...common, hostname, port, tcpBacklog: LISTEN_BACKLOG }, answer);
    } catch (error) {
      if (!(error instanceof Deno.errors.AddrInUse)) throw error;
      throw new AddressInUseError(hostname, port, { cause: error });
    }
  }

  #watch(server: Server): void {
    server.finished.catch(() => {
      if (this.#isStopping || this.#drop.signal.aborted) return;
      this.#server = null;
      this.#drop.abort();
      this.#failed();
    });
  }

  #failed(): void {
    this.acceptFailureCount++;
    this.#retry = setTimeout(() => {
      this.#drop = new AbortController();
      try {
        this.#server = this.#listen(this.port);
        this.#watch(this.#server);
      } catch {
        // What it was that kept it from accepting goes on.
        this.#failed();
      }
    }, LISTEN_RETRY_MS);
  }
}
