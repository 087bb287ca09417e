/** What the tests of this folder share: a spool on a simulated disk, and publishes made up. */
import { SimClock, SimDisk } from "@sluice/shared/testing";
import { Logger } from "@sluice/shared/telemetry";
import type { Publish } from "../publish.ts";
import { MortalDisk } from "./mortal_disk_test.ts";
import { Spool, type SpoolEntry, type SpoolOptions } from "./mod.ts";

/** Where the tests have their spool. */
export const SPOOL_PATH = "/spool";

/** Small sizes, so that files end and bounds are met. */
export const SPOOL_OPTIONS: SpoolOptions = {
  path: SPOOL_PATH,
  bytesMax: 4 * 2 ** 20,
  ageMsMax: 3_600_000,
  fileBytes: 4096,
  recordBytesMax: 256 * 1024,
  heldMax: 64,
  quarantineMax: 16,
  reserveBytes: 8192,
};

/** A spool with what it stands on. */
export class OpenedSpool {
  readonly lines: string[] = [];
  readonly failures: Error[] = [];
  spool!: Spool;
  readonly #process: MortalDisk;

  private constructor(readonly disk: SimDisk, readonly clock: SimClock) {
    this.#process = new MortalDisk(disk);
  }

  static async open(
    disk: SimDisk = new SimDisk(),
    options: Partial<SpoolOptions> = {},
    clock: SimClock = new SimClock(),
  ): Promise<OpenedSpool> {
    const opened = new OpenedSpool(disk, clock);
    const logger = new Logger({ sink: (line) => opened.lines.push(line), clock });
    try {
      opened.spool = await Spool.open(
        {
          disk: opened.#process.disk,
          clock,
          logger,
          onFailed: (error) => opened.failures.push(error),
        },
        { ...SPOOL_OPTIONS, ...options },
      );
    } catch (error) {
      opened.kill();
      throw error;
    }
    return opened;
  }

  /** Closes it and opens it again. */
  async again(options: Partial<SpoolOptions> = {}): Promise<OpenedSpool> {
    await this.spool.close();
    return await OpenedSpool.open(this.disk, options, this.clock);
  }

  /** Ends it as a process is killed: what was written stays, what was not is never. */
  kill(): void {
    this.#process.kill();
  }

  /** Lets what is settled get to the disk. */
  async flush(): Promise<void> {
    await this.clock.run(20);
  }
}

const PRODUCER = Uint8Array.from({ length: 16 }, (_, index) => index);

/** A publish of one message whose body is `text`. */
export function publishOf(topic: string, text: string, sequence = 1): Publish {
  return {
    topic,
    isBatch: false,
    messageCount: 1,
    body: new TextEncoder().encode(text),
    dueWallMs: 0,
    producer: PRODUCER,
    sequence,
  };
}

/** The bodies of entries. */
export function textsOf(entries: readonly SpoolEntry[]): string[] {
  return entries.map(({ publish }) => new TextDecoder().decode(publish.body));
}
