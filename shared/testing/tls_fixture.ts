/**
 * Certificates for tests, and a client that changes to TLS on the way as NSQ clients do. How the
 * certificates were made is in testdata/tls/make.sh.
 */
import { connect as connectTcp, type Socket } from "node:net";
import { connect as connectTls, type ConnectionOptions } from "node:tls";
import type { Connection, TlsSettings } from "../runtime/mod.ts";
import { socketConnection, SystemClock } from "../runtime/system.ts";

/** Who a certificate of the tests is for. */
export type TlsIdentity = "server" | "renewed" | "client" | "expired" | "unsigned";

/** The path of a file of the fixture. */
export function tlsPath(file: `${TlsIdentity | "ca"}.${"pem" | "key"}`): string {
  return decodeURIComponent(new URL(`./testdata/tls/${file}`, import.meta.url).pathname);
}

/** A certificate with its key, as PEM. */
export function tlsPair(identity: TlsIdentity): { readonly cert: string; readonly key: string } {
  return {
    cert: Deno.readTextFileSync(tlsPath(`${identity}.pem`)),
    key: Deno.readTextFileSync(tlsPath(`${identity}.key`)),
  };
}

/** The authority's certificate, as PEM. */
export function tlsAuthority(): string {
  return Deno.readTextFileSync(tlsPath("ca.pem"));
}

/** A server of the fixture, and what a test changes about it. */
export function tlsSettings(changes: Partial<TlsSettings> = {}): TlsSettings {
  const { cert, key } = tlsPair("server");
  return {
    certificate: cert,
    key,
    authorities: tlsAuthority(),
    clientPolicy: "none",
    versionMin: "TLSv1.2",
    ...changes,
  };
}

/** A connection in clear that sends `first`, reads an answer, and then starts TLS as a client. */
export class TlsClient {
  readonly #socket: Socket;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("error", () => {});
  }

  static async connect(port: number): Promise<TlsClient> {
    const socket = connectTcp({ port, host: "127.0.0.1" });
    const client = new TlsClient(socket);
    await new Promise<void>((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("error", reject);
    });
    return client;
  }

  send(bytes: Uint8Array): void {
    this.#socket.write(bytes);
  }

  /** Ends the stream to the server, in clear. */
  end(): void {
    this.#socket.end();
  }

  /** The next bytes in clear; nothing at the end. */
  receive(): Promise<Uint8Array> {
    return new Promise((resolve) => {
      const done = (bytes: Uint8Array) => {
        this.#socket.pause();
        this.#socket.removeListener("data", done);
        this.#socket.removeListener("close", onClose);
        resolve(bytes);
      };
      const onClose = () => done(new Uint8Array(0));
      this.#socket.once("data", done);
      this.#socket.once("close", onClose);
      this.#socket.resume();
    });
  }

  /** Changes to TLS, with the certificate of `identity` if one is named. Rejects when it fails. */
  startTls(identity?: TlsIdentity, options: ConnectionOptions = {}): Promise<Connection> {
    return new Promise((resolve, reject) => {
      const secure = connectTls({
        socket: this.#socket,
        servername: "localhost",
        ca: tlsAuthority(),
        ...(identity === undefined ? {} : tlsPair(identity)),
        ...options,
      });
      secure.on("error", reject);
      secure.once("secureConnect", () => resolve(socketConnection(secure, new SystemClock())));
    });
  }

  /** Closes at once; resolves when it is closed. */
  close(): Promise<void> {
    if (this.#socket.closed) return Promise.resolve();
    return new Promise((resolve) => {
      this.#socket.once("close", () => resolve());
      this.#socket.destroy();
    });
  }
}
