/**
 * A file whose content is read again every few seconds, so that it can change without a restart. The
 * bytes are compared rather than the time of change: what mounts a secret as a link sets that as it
 * likes.
 *
 * What cannot be read or understood at the start is an error. Later the last good content stays in
 * use, since the grants of everybody else are in the same file, and each new fault is logged.
 */
import { type Disk, DiskError, readWhole } from "../runtime/mod.ts";
import type { Logger } from "../telemetry/mod.ts";

/** A file that cannot be used at the start. The message holds nothing of its content. */
export class AuthorizationFileError extends Error {
  override name = "AuthorizationFileError";
}

/** Where a file is and what it may be. */
export interface WatchedFileOptions<T> {
  /** The setting that names it, for messages. */
  readonly setting: string;
  readonly path: string;
  readonly bytesMax: number;
  /** Throws an error whose message holds nothing of the content. */
  readonly parse: (bytes: Uint8Array) => T | Promise<T>;
}

/** What a look at a file has come to. */
export interface WatchedOutcome {
  readonly setting: string;
  readonly path: string;
  readonly outcome: "changed" | "unchanged" | "refused";
  readonly reason?: string;
}

/** See the module. */
export class WatchedFile<T> {
  readonly #options: WatchedFileOptions<T>;
  readonly #disk: Disk;
  readonly #logger: Logger;
  #bytes: Uint8Array;
  #value: T;
  #fault: string | null = null;

  private constructor(
    options: WatchedFileOptions<T>,
    seams: { readonly disk: Disk; readonly logger: Logger },
    bytes: Uint8Array,
    value: T,
  ) {
    this.#options = options;
    this.#disk = seams.disk;
    this.#logger = seams.logger;
    this.#bytes = bytes;
    this.#value = value;
  }

  /** Rejects with {@linkcode AuthorizationFileError}. */
  static async open<T>(
    options: WatchedFileOptions<T>,
    seams: { readonly disk: Disk; readonly logger: Logger },
  ): Promise<WatchedFile<T>> {
    const { setting, path, bytesMax, parse } = options;
    try {
      const bytes = await readWhole(seams.disk, path, bytesMax);
      return new WatchedFile(options, seams, bytes, await parse(bytes));
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw new AuthorizationFileError(`Cannot use --${setting}=${path}: ${reason}`, {
        cause: error,
      });
    }
  }

  /** What the file said when it was last good. */
  get value(): T {
    return this.#value;
  }

  /** Whether the file is not what is in use. */
  get isStale(): boolean {
    return this.#fault !== null;
  }

  /** Looks whether the file has changed. Never rejects. */
  async poll(): Promise<WatchedOutcome> {
    const { setting, path, bytesMax, parse } = this.#options;
    try {
      const bytes = await readWhole(this.#disk, path, bytesMax);
      if (this.#fault === null && isSame(bytes, this.#bytes)) {
        return { setting, path, outcome: "unchanged" };
      }
      this.#value = await parse(bytes);
      this.#logger.info("Read a file of authorization again", { setting, path });
      this.#bytes = bytes;
      this.#fault = null;
      return { setting, path, outcome: "changed" };
    } catch (error) {
      const fault = error instanceof DiskError ? error.kind : String(error);
      const reason = error instanceof Error ? error.message : String(error);
      const refused: WatchedOutcome = { setting, path, outcome: "refused", reason };
      if (fault === this.#fault) return refused;
      this.#fault = fault;
      this.#logger.error("Cannot use a changed file of authorization: what it said before holds", {
        setting,
        path,
        reason,
      });
      return refused;
    }
  }
}

function isSame(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, index) => byte === b[index]);
}
