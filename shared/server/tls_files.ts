/**
 * A service's certificate, key and authorities: read and checked at the start, and read again every
 * minute, so that whoever renews a certificate only replaces the files. Files that do not fit
 * together, as in the middle of a renewal, change nothing and are told of once.
 */
import { createPrivateKey, X509Certificate } from "node:crypto";
import type { Clock, Timer, TlsSettings } from "../runtime/mod.ts";
import type { FileOutcome } from "../config/mod.ts";
import type { Logger } from "../telemetry/mod.ts";
import { hasTls, type TlsValues, tlsVersionMin } from "./tls_settings.ts";

/** The time between readings. */
export const RELOAD_INTERVAL_MS = 60_000;

/** What a {@linkcode TlsFiles} stands on. */
export interface TlsFilesSeams {
  readonly clock: Clock;
  readonly logger: Logger;
  /** The text of a file. */
  readonly readTextFile: (path: string) => Promise<string>;
}

/** Files that TLS cannot be started with. The message names the flag. */
export class TlsFilesError extends Error {
  override name = "TlsFilesError";
}

/** See the module. */
export class TlsFiles {
  /** Called with what is to be used from now on; what it throws keeps the ones before in use. */
  onRenewed: (settings: TlsSettings) => void = () => {};
  #settings: TlsSettings;
  #expiresWallMs: number;
  readonly #values: TlsValues;
  readonly #seams: TlsFilesSeams;
  #timer: Timer | null = null;
  #lastProblem = "";
  #isClosed = false;

  private constructor(
    { settings, expiresWallMs }: Loaded,
    values: TlsValues,
    seams: TlsFilesSeams,
  ) {
    this.#settings = settings;
    this.#expiresWallMs = expiresWallMs;
    this.#values = values;
    this.#seams = seams;
    this.#tell();
    this.#later();
  }

  /** Reads the files; `null` when there is no TLS. Rejects with {@linkcode TlsFilesError}. */
  static async open(values: TlsValues, seams: TlsFilesSeams): Promise<TlsFiles | null> {
    if (!hasTls(values)) return null;
    return new TlsFiles(await load(values, seams), values, seams);
  }

  get settings(): TlsSettings {
    return this.#settings;
  }

  /** When the certificate stops being good. */
  get expiresWallMs(): number {
    return this.#expiresWallMs;
  }

  /** Stops reading the files again. */
  close(): void {
    this.#isClosed = true;
    this.#timer?.cancel();
    this.#timer = null;
  }

  #later(): void {
    this.#timer = this.#seams.clock.setTimer(RELOAD_INTERVAL_MS, () => {
      void this.reload().then(() => {
        if (!this.#isClosed) this.#later();
      });
    });
  }

  /** Reads the files now. Says what came of it, of all of them together. */
  async reload(): Promise<FileOutcome> {
    const { logger } = this.#seams;
    const about = { setting: "tls-cert", path: this.#values.tlsCert };
    try {
      const { settings, expiresWallMs } = await load(this.#values, this.#seams);
      const isOther = !this.#isClosed && !isSame(settings, this.#settings);
      if (isOther) {
        this.#use(settings);
        this.#settings = settings;
        this.#expiresWallMs = expiresWallMs;
        this.#tell();
      }
      this.#lastProblem = "";
      return { ...about, outcome: isOther ? "changed" : "unchanged" };
    } catch (error) {
      if (!(error instanceof TlsFilesError)) throw error;
      if (this.#lastProblem !== error.message) {
        logger.error("The certificate files do not fit; the ones before stay in use", { error });
      }
      this.#lastProblem = error.message;
      return { ...about, outcome: "refused", reason: error.message };
    }
  }

  #use(settings: TlsSettings): void {
    try {
      this.onRenewed(settings);
    } catch (error) {
      throw new TlsFilesError(`Cannot use the changed files: ${messageOf(error)}`, {
        cause: error,
      });
    }
  }

  #tell(): void {
    const { clock, logger } = this.#seams;
    const expires = new Date(this.#expiresWallMs).toISOString();
    if (this.#expiresWallMs <= clock.wallMs()) {
      logger.warn("The TLS certificate is not valid any more", { expired: expires });
    } else {
      const versions = this.#settings.versionMin === "TLSv1.3" ? "1.3" : "1.2 and 1.3";
      logger.info(`TLS: versions ${versions}`, { certificate_expires: expires });
    }
  }
}

interface Loaded {
  readonly settings: TlsSettings;
  readonly expiresWallMs: number;
}

async function load(values: TlsValues, { readTextFile }: TlsFilesSeams): Promise<Loaded> {
  const read = async (flag: string, path: string) => {
    try {
      return await readTextFile(path);
    } catch (error) {
      throw new TlsFilesError(`Cannot read --${flag}=${path}: ${messageOf(error)}`);
    }
  };
  const certificate = await read("tls-cert", values.tlsCert);
  const key = await read("tls-key", values.tlsKey);
  const { tlsRootCaFile: caPath } = values;
  const authorities = caPath === "" ? null : await read("tls-root-ca-file", caPath);
  const parse = <T>(flag: string, path: string, wanted: string, make: () => T) => {
    try {
      return make();
    } catch (cause) {
      throw new TlsFilesError(`Cannot use --${flag}=${path}: it holds no ${wanted}`, { cause });
    }
  };
  const certificateText = "certificate in PEM";
  const parsed = parse(
    "tls-cert",
    values.tlsCert,
    certificateText,
    () => new X509Certificate(certificate),
  );
  const privateKey = parse(
    "tls-key",
    values.tlsKey,
    "private key in PEM without a password",
    () => createPrivateKey(key),
  );
  if (!parsed.checkPrivateKey(privateKey)) {
    throw new TlsFilesError(
      `Cannot use --tls-key=${values.tlsKey}: it is not the key of --tls-cert=${values.tlsCert}`,
    );
  }
  if (authorities !== null) {
    parse("tls-root-ca-file", caPath, certificateText, () => new X509Certificate(authorities));
  }
  return {
    settings: {
      certificate,
      key,
      authorities,
      clientPolicy: values.tlsClientAuthPolicy || "none",
      versionMin: tlsVersionMin(values),
    },
    expiresWallMs: Date.parse(parsed.validTo),
  };
}

function isSame(a: TlsSettings, b: TlsSettings): boolean {
  return a.certificate === b.certificate && a.key === b.key && a.authorities === b.authorities;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
