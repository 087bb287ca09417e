/**
 * Entries that were put aside: they wait for people, hold up nobody, and are counted. What is decided
 * about them is on disk when it is answered.
 */
import type { Logger } from "@sluice/shared/telemetry";
import type { Publish } from "../publish.ts";
import type { EntryReader } from "./entry_reader.ts";
import type { HandingOut } from "./handing_out.ts";
import {
  encodeQuarantine,
  encodeRetry,
  QUARANTINE_KIND,
  RETRY_KIND,
  TEXT_BYTES_MAX,
} from "./records.ts";
import type { Settlements } from "./settlements.ts";
import { type QuarantinedEntry, type SpoolEntry, SpoolRefusal } from "./spool_entry.ts";
import type { SpoolLog } from "./spool_log.ts";
import type { SpoolState } from "./spool_state.ts";

/** What a quarantine works on. */
export interface QuarantineParts {
  readonly state: SpoolState;
  readonly log: SpoolLog;
  readonly reader: EntryReader;
  readonly settlements: Settlements;
  readonly handingOut: HandingOut;
  readonly logger: Logger;
}

/** What a decision about one entry takes at most, with its texts. */
const DECISION_BYTES_MAX = 4 * TEXT_BYTES_MAX;

/** See the module. */
export class Quarantine {
  readonly #parts: QuarantineParts;
  readonly #countMax: number;

  constructor(parts: QuarantineParts, countMax: number) {
    this.#parts = parts;
    this.#countMax = countMax;
  }

  /** Puts an entry in hand aside; rejects when there are too many: then it stays in hand. */
  async add(entry: SpoolEntry, reason: string): Promise<void> {
    const { state, log, handingOut } = this.#parts;
    await log.decisionRoom(DECISION_BYTES_MAX);
    const tracked = handingOut.held(entry);
    if (tracked === null) return;
    const quarantineMax = this.#countMax;
    if (state.quarantinedCount >= quarantineMax) {
      throw new SpoolRefusal(
        "full",
        `The quarantine of the spool is full: ${quarantineMax} entries`,
      );
    }
    handingOut.release(tracked);
    state.quarantine(tracked, reason);
    log.put(QUARANTINE_KIND, encodeQuarantine({ ...tracked, reason }));
    await log.durable();
  }

  /** Those with an id of `from` or above, the lowest first. */
  list(from: number, countMax: number): QuarantinedEntry[] {
    return this.#parts.state.quarantined(from, countMax).map((entry) => ({
      id: entry.id,
      topic: entry.topic,
      bodyBytes: entry.bodyBytes,
      messageCount: entry.messageCount,
      reason: entry.reason ?? "",
      spooledWallMs: entry.spooledWallMs,
      broker: entry.broker,
      isDamaged: entry.isDamaged,
    }));
  }

  /**
   * Takes an entry out of quarantine, on disk when it resolves: it is its broker's again, or anybody's.
   * False when there is none of that id that can be read.
   */
  async retry(id: number): Promise<boolean> {
    const { state, log, logger } = this.#parts;
    await log.decisionRoom(DECISION_BYTES_MAX);
    const entry = state.quarantinedById(id);
    if (entry === null || entry.isDamaged) return false;
    state.retry(entry);
    log.put(RETRY_KIND, encodeRetry(entry));
    logger.info("A publish leaves the quarantine of the spool", {
      id,
      topic: entry.topic,
      broker: entry.broker,
    });
    await log.durable();
    return true;
  }

  /** Gives an entry in quarantine up, on disk when it resolves. False when there is none of that id. */
  async drop(id: number): Promise<boolean> {
    const { state, log, logger, settlements, handingOut } = this.#parts;
    await log.decisionRoom(DECISION_BYTES_MAX);
    const entry = state.quarantinedById(id);
    if (entry === null) return false;
    const { topic, messageCount, bodyBytes, broker, reason } = entry;
    handingOut.settle(entry);
    settlements.write();
    await log.durable();
    logger.warn("A publish in the quarantine of the spool has been dropped", {
      id,
      topic,
      messageCount,
      bodyBytes,
      broker,
      reason,
    });
    return true;
  }

  /** What is in quarantine under an id; null when there is none, or it cannot be read. */
  async publish(id: number): Promise<Publish | null> {
    const { state, reader, handingOut } = this.#parts;
    while (true) {
      const entry = state.quarantinedById(id);
      if (entry === null || entry.isDamaged) return null;
      let problem = reader.read(entry);
      if (problem !== null && typeof problem !== "string") return reader.copy(problem);
      problem ??= await reader.load(entry);
      if (problem === null) continue;
      if (!entry.isDamaged && !entry.isSettled) handingOut.damaged(entry, problem);
      return null;
    }
  }
}
