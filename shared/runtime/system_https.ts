/**
 * The real HTTPS server: HTTP/1.1 over TLS 1.2 and 1.3, by the runtime's node:https, since its own
 * server asks no client for a certificate. A handshake has {@linkcode HANDSHAKE_MS_MAX}, and costs
 * nobody else anything when it fails.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import type { Socket } from "node:net";
import { TLSSocket } from "node:tls";
import { AddressInUseError } from "./connection.ts";
import { LISTEN_BACKLOG } from "./system_backlog.ts";
import type { HttpsServer, ServeHttpOptions } from "./http_server.ts";
import { invariant } from "./invariant.ts";
import { addressText } from "./system_address.ts";
import { tlsOptions, tlsState } from "./system_tls.ts";
import type { TlsSettings } from "./tls.ts";

/** How long a handshake may take. */
export const HANDSHAKE_MS_MAX = 5_000;

/** Methods that no `Request` can have. */
const FORBIDDEN_METHODS: readonly string[] = ["CONNECT", "TRACE", "TRACK"];

/** Connections at a time, handshakes included, when no other number is asked for. */
export const HTTPS_CONNECTIONS_MAX = 4_096;

/** Serves over TLS until shut down. */
export function serveHttps(options: ServeHttpOptions, tls: TlsSettings): Promise<HttpsServer> {
  const { hostname, port, signal } = options;
  const server = createServer(
    { ...tlsOptions(tls), handshakeTimeout: HANDSHAKE_MS_MAX },
    (request, response) => {
      answer(options, tls, request, response).catch(() => response.destroy());
    },
  );
  server.maxConnections = options.connectionsMax ?? HTTPS_CONNECTIONS_MAX;
  server.on("tlsClientError", () => {});
  server.on("clientError", (_error, socket) => socket.destroy());
  server.prependListener("secureConnection", (socket) => {
    socket.on("error", () => {});
    if (tlsState(socket, tls) === null) socket.destroy();
  });
  return new Promise((resolve, reject) => {
    server.once("error", (error: Error & { code?: string }) => {
      reject(
        error.code === "EADDRINUSE"
          ? new AddressInUseError(hostname, port, { cause: error })
          : error,
      );
    });
    server.listen({ host: hostname, port, backlog: LISTEN_BACKLOG }, () => {
      server.on("error", () => {});
      if (signal?.aborted) server.closeAllConnections();
      else signal?.addEventListener("abort", () => server.closeAllConnections(), { once: true });
      resolve(running(server, tls));
    });
  });
}

function running(server: Server, tls: TlsSettings): HttpsServer {
  const address = server.address();
  invariant(address !== null && typeof address === "object", "the server listens on TCP");
  return {
    hostname: address.address,
    port: address.port,
    renew: ({ certificate, key, authorities }) => {
      server.setSecureContext(tlsOptions({ ...tls, certificate, key, authorities }));
    },
    shutdown: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeIdleConnections();
      }),
  };
}

async function answer(
  { handler, onError }: ServeHttpOptions,
  tls: TlsSettings,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { remoteAddress, remotePort } = request.socket;
  if (FORBIDDEN_METHODS.includes(request.method ?? "")) return refuse(response);
  const peer = addressText({ hostname: remoteAddress ?? "", port: remotePort ?? 0 });
  let reply: Response;
  try {
    reply = await handler(webRequest(request), peer, certificateName(request.socket, tls));
  } catch (error) {
    reply = await onError(error);
  }
  for (const [name, value] of reply.headers) response.setHeader(name, value);
  response.writeHead(reply.status);
  if (reply.body === null || request.method === "HEAD") {
    response.end();
    return;
  }
  for await (const chunk of reply.body) {
    if (!response.write(chunk)) {
      await new Promise<void>((resolve, reject) => {
        const onClose = () => reject(new Error("the client is gone"));
        response.once("close", onClose);
        response.once("drain", () => {
          response.removeListener("close", onClose);
          resolve();
        });
      });
    }
  }
  response.end();
}

/** The name that a client has proven to be its own; empty when none has to be. */
function certificateName(socket: Socket, tls: TlsSettings): string {
  if (tls.clientPolicy !== "require-verify" || !(socket instanceof TLSSocket)) return "";
  return tlsState(socket, tls)?.commonName ?? "";
}

/** Answers a request that cannot be put before a handler. */
function refuse(response: ServerResponse): void {
  response.writeHead(405, {
    "Content-Type": "application/json; charset=utf-8",
    "X-NSQ-Content-Type": "nsq; version=1.0",
    "Connection": "close",
  });
  response.end(JSON.stringify({ message: "METHOD_NOT_ALLOWED" }));
}

/** The host is ours: what a peer puts into its `Host` header need not fit into a URL. */
function webRequest(request: IncomingMessage): Request {
  const { method = "GET", url = "/" } = request;
  const isBodyless = method === "GET" || method === "HEAD";
  const fields = new Headers();
  for (let index = 0; index + 1 < request.rawHeaders.length; index += 2) {
    fields.append(request.rawHeaders[index]!, request.rawHeaders[index + 1]!);
  }
  const path = url.startsWith("/") ? url : "/";
  return new Request(`https://localhost${path}`, {
    method,
    headers: fields,
    ...(isBodyless ? {} : { body: webBody(request) }),
  });
}

/** The body, read no faster than it is asked for. */
function webBody(request: IncomingMessage): ReadableStream<Uint8Array<ArrayBuffer>> {
  const parts = request[Symbol.asyncIterator]();
  return new ReadableStream({
    async pull(controller) {
      const part = await parts.next();
      if (part.done) controller.close();
      else controller.enqueue(new Uint8Array(part.value));
    },
    async cancel() {
      await parts.return?.();
    },
  }, { highWaterMark: 0 });
}
