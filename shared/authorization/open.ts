/**
 * The authorization of a service put together from its settings: files are read, sources are asked
 * from the nearest to the farthest (grants file, tokens, services), and files are looked at again
 * every {@linkcode POLL_MS}.
 */
import type { AskHttp, Clock, Disk, Random, Timer } from "../runtime/mod.ts";
import type { Logger } from "../telemetry/mod.ts";
import { AuthServers, type AuthServersOptions } from "./auth_servers.ts";
import { Authorizer, type GrantSource } from "./authorizer.ts";
import { GRANTS_FILE_BYTES_MAX, GrantsFile, GrantsFileSource } from "./grants_file.ts";
import {
  KEY_FILE_BYTES_MAX,
  parsePublicKeys,
  parseTokenSecret,
  type TokenKey,
  type TokenRules,
  TokenSource,
} from "./token_source.ts";
import { WatchedFile, type WatchedOutcome } from "./watched_file.ts";

export const POLL_MS = 2_000;

/** Which sources there are; empty paths and no addresses mean none of that kind. */
export interface AuthorizationSettings extends TokenRules {
  readonly grantsFile: string;
  readonly tokenSecretFile: string;
  readonly tokenPublicKeyFile: string;
  readonly servers: AuthServersOptions;
}

/** The world that authorization needs. */
export interface AuthorizationSeams {
  readonly disk: Disk;
  readonly clock: Clock;
  readonly random: Random;
  readonly askHttp: AskHttp;
  readonly logger: Logger;
}

/** An {@linkcode Authorizer} and what keeps it up to date. */
export class Authorization {
  readonly authorizer: Authorizer;
  readonly servers: AuthServers | null;
  readonly #files: readonly WatchedFile<unknown>[];
  readonly #clock: Clock;
  #timer: Timer | null = null;
  #polling: Promise<void> = Promise.resolve();
  #isClosed = false;

  private constructor(
    sources: readonly GrantSource[],
    servers: AuthServers | null,
    files: readonly WatchedFile<unknown>[],
    clock: Clock,
  ) {
    this.authorizer = new Authorizer(sources);
    this.servers = servers;
    this.#files = files;
    this.#clock = clock;
    this.#arm();
  }

  /** Reads the files. Rejects with `AuthorizationFileError`. */
  static async open(
    settings: AuthorizationSettings,
    world: AuthorizationSeams,
  ): Promise<Authorization> {
    const seams = { ...world, logger: world.logger.component("auth") };
    const sources: GrantSource[] = [];
    const files: WatchedFile<unknown>[] = [];
    if (settings.grantsFile !== "") {
      const file = await WatchedFile.open({
        setting: "grants-file",
        path: settings.grantsFile,
        bytesMax: GRANTS_FILE_BYTES_MAX,
        parse: (bytes) => GrantsFile.parse(new TextDecoder().decode(bytes)),
      }, seams);
      files.push(file);
      sources.push(new GrantsFileSource(() => file.value));
    }
    const keys: WatchedFile<TokenKey>[] = [];
    const keyFiles = [
      ["jwt-secret-file", settings.tokenSecretFile, parseTokenSecret],
      ["jwt-public-key-file", settings.tokenPublicKeyFile, parsePublicKeys],
    ] as const;
    for (const [setting, path, parse] of keyFiles) {
      if (path === "") continue;
      keys.push(
        await WatchedFile.open({ setting, path, bytesMax: KEY_FILE_BYTES_MAX, parse }, seams),
      );
    }
    if (keys.length > 0) {
      files.push(...keys);
      sources.push(new TokenSource(() => keys.map(({ value }) => value), settings, seams));
    }
    const servers = settings.servers.addresses.length === 0
      ? null
      : new AuthServers(settings.servers, seams);
    if (servers !== null) sources.push(servers);
    return new Authorization(sources, servers, files, seams.clock);
  }

  /** How many files are not what is in use, because they cannot be read or understood. */
  get staleFiles(): number {
    return this.#files.filter(({ isStale }) => isStale).length;
  }

  /** Looks at all files now. */
  async reload(): Promise<readonly WatchedOutcome[]> {
    // After a look that is under way: it may have begun before a file was written.
    const looked = this.#polling.then(() => this.#look());
    this.#polling = looked.then(() => {});
    return await looked;
  }

  /** Looks at no file any more. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#timer?.cancel();
    this.#timer = null;
    await this.#polling;
  }

  #arm(): void {
    if (this.#files.length === 0 || this.#isClosed) return;
    this.#timer = this.#clock.setTimer(POLL_MS, () => {
      this.#polling = this.#polling.then(() => this.#poll());
    });
  }

  async #poll(): Promise<void> {
    await this.#look();
    this.#arm();
  }

  async #look(): Promise<WatchedOutcome[]> {
    const outcomes: WatchedOutcome[] = [];
    for (const file of this.#files) outcomes.push(await file.poll());
    return outcomes;
  }
}
