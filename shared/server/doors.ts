/**
 * Where a service listens: HTTP, HTTPS when there is a certificate, and NSQ. All of them say which
 * flag is to be changed when an address cannot be had.
 */
import { type Address, listenTarget } from "../config/mod.ts";
import {
  AddressInUseError,
  type Clock,
  hostAndPort,
  type HttpsServer,
  InvariantError,
  type Listener,
  type Network,
  type ServeHttp,
  type ServeHttps,
} from "../runtime/mod.ts";
import type { Logger } from "../telemetry/mod.ts";
import { type HttpHandler, HttpListener } from "./http_listener.ts";
import { TlsFiles, TlsFilesError } from "./tls_files.ts";
import { tlsRequiredHttp } from "./tls_http.ts";
import { effectiveTlsRequired, type TlsValues } from "./tls_settings.ts";

/** An address that cannot be listened on. The message names the flag. */
export class ListenError extends Error {
  override name = "ListenError";
}

/** What {@linkcode HttpDoors} are opened with. */
export interface DoorSettings extends TlsValues {
  readonly httpAddress: Address;
}

/** The world they stand in. */
export interface DoorSeams {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly serveHttp: ServeHttp;
  readonly serveHttps: ServeHttps;
  readonly readTextFile: (path: string) => Promise<string>;
  /** Told of what a handler throws. */
  readonly onBroken: (error: unknown) => void;
}

/** HTTP, and HTTPS when there is a certificate. */
export class HttpDoors {
  readonly tls: TlsFiles | null;
  readonly http: HttpListener;
  readonly https: HttpListener | null;
  readonly #clock: Clock;
  readonly #onlyTls: boolean;

  private constructor(
    tls: TlsFiles | null,
    http: HttpListener,
    https: HttpListener | null,
    clock: Clock,
    onlyTls: boolean,
  ) {
    this.tls = tls;
    this.http = http;
    this.https = https;
    this.#clock = clock;
    this.#onlyTls = onlyTls;
  }

  /**
   * Reads the certificate and listens. Until {@linkcode HttpDoors.serve}, `early` answers; what `isPatient`
   * says so waits a moment first. Rejects with {@linkcode ListenError} or {@linkcode TlsFilesError}.
   */
  static async open(
    settings: DoorSettings,
    seams: DoorSeams,
    early: HttpHandler,
    isPatient: (request: Request) => boolean,
  ): Promise<HttpDoors> {
    const { clock, logger } = seams;
    const tls = await TlsFiles.open(settings, { ...seams, logger: logger.component("tls") });
    let https: HttpListener | null = null;
    try {
      if (tls !== null) {
        https = await listenHttps(settings, seams, tls, early, isPatient);
        logger.info(`HTTPS: listening on ${https.hostname}:${https.port}`);
      }
      const isOpen = https === null || effectiveTlsRequired(settings) !== "true";
      const http = await listening("--http-address", () =>
        HttpListener.start(
          { ...seams, serve: seams.serveHttp },
          listenTarget(settings.httpAddress),
          isOpen || https === null ? early : tlsRequiredHttp(https.port),
          isOpen ? isPatient : () => false,
        ));
      logger.info(`HTTP: listening on ${hostAndPort(http.hostname, http.port)}`);
      return new HttpDoors(tls, http, https, clock, !isOpen);
    } catch (error) {
      tls?.close();
      await https?.abort();
      throw error;
    }
  }

  /** How often a connection could not be accepted in clear. */
  get acceptFailureCount(): number {
    return this.http.acceptFailureCount;
  }

  /** All requests are the handler's from now on. */
  serve(handler: HttpHandler): void {
    const { http, https } = this;
    https?.serve(handler);
    http.serve(this.#onlyTls && https !== null ? tlsRequiredHttp(https.port) : handler);
  }

  /** Stops accepting; requests under way have `graceMs` to be answered. */
  async shutdown(graceMs: number): Promise<void> {
    this.tls?.close();
    await Promise.all(
      [this.http, this.https].map((door) => door?.shutdown(this.#clock, graceMs)),
    );
  }

  /** Stops at once. */
  async abort(): Promise<void> {
    this.tls?.close();
    await Promise.all([this.http.abort(), this.https?.abort()]);
  }
}

/** Listens for NSQ. What may change to TLS costs some throughput: only where there is TLS. */
export function listenNsq(
  flag: string,
  address: Address,
  network: Network,
  isUpgradable: boolean,
): Promise<Listener> {
  const { host, port } = listenTarget(address);
  return listening(
    flag,
    () => isUpgradable ? network.listenUpgradable(host, port) : network.listen(host, port),
  );
}

/** The host and port of an address that must have them. */
export function tcpTarget(
  flag: string,
  address: Address,
): { readonly host: string; readonly port: number } {
  if (address.transport === "tcp") return address;
  throw new ListenError(`Cannot use ${flag}=${address.path}: it is no host and port`);
}

function listenHttps(
  settings: DoorSettings,
  seams: DoorSeams,
  tls: TlsFiles,
  early: HttpHandler,
  isPatient: (request: Request) => boolean,
): Promise<HttpListener> {
  const serve = async (options: Parameters<ServeHttps>[0]): Promise<HttpsServer> => {
    const server = await serveHttps(seams, options, tls.settings);
    tls.onRenewed = (renewed) => server.renew(renewed);
    return server;
  };
  const address = tcpTarget("--https-address", settings.httpsAddress);
  return listening(
    "--https-address",
    () => HttpListener.start({ ...seams, serve }, address, early, isPatient),
  );
}

/** Files may fit together and be too weak for the runtime: it says so only here. */
async function serveHttps(
  seams: DoorSeams,
  ...[options, tls]: Parameters<ServeHttps>
): Promise<HttpsServer> {
  try {
    return await seams.serveHttps(options, tls);
  } catch (error) {
    if (error instanceof AddressInUseError) throw error;
    const detail = error instanceof Error ? error.message : String(error);
    throw new TlsFilesError(`Cannot serve TLS with --tls-cert and --tls-key: ${detail}`, {
      cause: error,
    });
  }
}

async function listening<T>(flag: string, listen: () => T | Promise<T>): Promise<T> {
  try {
    return await listen();
  } catch (error) {
    if (error instanceof InvariantError || error instanceof TlsFilesError) throw error;
    if (!(error instanceof Error)) throw error;
    if (!(error instanceof AddressInUseError)) {
      throw new ListenError(`Cannot listen at ${flag}: ${error.message}`, { cause: error });
    }
    throw new ListenError(`${error.message}. Choose another address with ${flag}`, {
      cause: error,
    });
  }
}
