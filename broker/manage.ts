/**
 * Management: topics and channels made, configured, paused, emptied, deleted and kept away, by requests
 * that can be repeated.
 *
 * - An operation with an id is carried out once: a repeat gets the first one's answer, over restarts
 *   too, for the last {@linkcode OPERATIONS_MAX} ids. The same id with another request is refused.
 * - What is refused leaves nothing behind, and its id is free.
 * - An operation may say which revision of the registry it is based on; it is refused when that has
 *   changed. Comparing and acting are one turn of the event loop.
 * - The act is durable before its answer is recorded, and that before it is given. A crash between act and
 *   record has a repeat act again: see ADR 18 for why that does no harm.
 * - When the answer cannot be recorded (the disk is full) it is given all the same, and remembered until
 *   the process ends. A tombstone that cannot be is a failure.
 */
import { createHash } from "node:crypto";
import { type Clock, type Disk, DiskError } from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import type { Administration } from "./administration.ts";
import {
  type DoneOperation,
  type ManagementEntry,
  ManagementJournal,
  type OperationAnswer,
} from "./manage_journal.ts";
import type { Channel, Topic } from "./queue/mod.ts";
import type { TopicPolicy } from "./storage/mod.ts";
import { Tombstones } from "./tombstones.ts";

/** Answers that are remembered; the oldest goes first. */
export const OPERATIONS_MAX = 8192;
/** Operations under way at a time; more are refused. */
export const OPERATIONS_UNDER_WAY_MAX = 256;
/** What an operation takes in the log, at most. */
const EVENTS_BYTES = 8192;

export const TOPIC_ACTIONS = [
  "create",
  "configure",
  "pause",
  "unpause",
  "empty",
  "delete",
  "tombstone",
] as const;
export const CHANNEL_ACTIONS = [
  "create",
  "pause",
  "unpause",
  "empty",
  "delete",
  "tombstone",
] as const;

/** What is asked for. */
export interface ManageRequest {
  readonly action: typeof TOPIC_ACTIONS[number];
  readonly topic: string;
  /** Null for an operation on the topic. */
  readonly channel: string | null;
  readonly operationId: string | null;
  readonly expectedRevision: number | null;
  /** The start of the broker that the revision is of. */
  readonly expectedInstance: string | null;
  /** For `create` and `configure`. */
  readonly policy: TopicPolicy | null;
  /** For `delete` and `tombstone`: how long the name is kept away; 0 for no longer. */
  readonly tombstoneMs: number | null;
}

/** What came of it. */
export interface ManageAnswer extends OperationAnswer {
  /** Whether it is the answer of an earlier request with the same id. */
  readonly repeated: boolean;
}

/** Which start of the broker this is, and which of its registries. */
export type RegistryPlace = Pick<OperationAnswer, "instance" | "revision">;

/** Why an operation was refused, besides what the broker refuses. */
export type ManageRefusal =
  | "operation_conflict"
  | "revision_conflict"
  | "topic_not_found"
  | "channel_not_found"
  | "too_many_operations"
  | "too_many_tombstones"
  | "storage_fault";

/** A refused operation. */
export class ManageError extends Error {
  override name = "ManageError";
  constructor(readonly code: ManageRefusal, message: string) {
    super(message);
  }
}

/** What a {@linkcode Management} works on. */
export interface ManageBroker {
  readonly administration: Administration;
  readonly topics: ReadonlyMap<string, Topic>;
  readonly position: number;
  readonly storage: { allowPolicies(): Promise<void> };
  readonly logger: Logger;
  hasRoom(bytes: number, messages: number): boolean;
  room(): Promise<void>;
  durableTo(position: number): Promise<void>;
  /** Throws `RefusedError` when nothing can be decided any more. */
  checkDeciding(): void;
}

interface UnderWay {
  readonly request: string;
  readonly answer: Promise<ManageAnswer>;
}

/** See the module. */
export class Management {
  /** Operations refused because too many were under way. */
  refusedCount = 0;
  readonly #broker: ManageBroker;
  readonly #clock: Clock;
  readonly #tombstones: Tombstones;
  readonly #done = new Map<string, DoneOperation>();
  readonly #underWay = new Map<string, UnderWay>();
  #count = 0;
  #isClosed = false;
  #journal: ManagementJournal | null = null;

  constructor(broker: ManageBroker, clock: Clock) {
    this.#broker = broker;
    this.#clock = clock;
    this.#tombstones = broker.administration.tombstones;
  }

  /** Takes up what the data folder has. Rejects with `DiskError`. */
  async open(disk: Disk, dataPath: string): Promise<void> {
    const { journal, entries } = await ManagementJournal.open(
      disk,
      dataPath,
      () => this.#current(),
    );
    this.#journal = journal;
    for (const entry of entries) {
      if ("operation" in entry) this.#remember(entry.operation);
      else this.#tombstones.set(entry.tombstone);
    }
  }

  /** Answers that are remembered. */
  get rememberedCount(): number {
    return this.#done.size;
  }

  /** Operations under way. */
  get underWayCount(): number {
    return this.#count;
  }

  /**
   * Writes nothing any more once this has resolved. An operation under way is as one that a crash ends: its
   * answer is not remembered.
   */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#journal?.settled();
  }

  /**
   * Carries an operation out, or repeats its answer; resolves when that would survive a crash. `place`
   * tells where the registry is. Rejects with {@linkcode ManageError} or `RefusedError`, or
   * because the log has failed.
   */
  async run(asked: ManageRequest, place: () => RegistryPlace): Promise<ManageAnswer> {
    const { operationId } = asked;
    if (operationId === null) return await this.#counted(asked, "", place);
    const request = digestOf(asked);
    const done = this.#done.get(operationId);
    if (done !== undefined) {
      checkSame(done.request, request);
      return { ...done.answer, repeated: true };
    }
    const other = this.#underWay.get(operationId);
    if (other !== undefined) {
      checkSame(other.request, request);
      return { ...await other.answer, repeated: true };
    }
    const answer = this.#counted(asked, request, place);
    this.#underWay.set(operationId, { request, answer });
    try {
      return await answer;
    } finally {
      this.#underWay.delete(operationId);
    }
  }

  async #counted(
    asked: ManageRequest,
    request: string,
    place: () => RegistryPlace,
  ): Promise<ManageAnswer> {
    if (this.#count >= OPERATIONS_UNDER_WAY_MAX) {
      this.refusedCount++;
      throw new ManageError("too_many_operations", "too many operations are under way");
    }
    this.#count++;
    try {
      return await this.#carryOut(asked, request, place);
    } finally {
      this.#count--;
    }
  }

  async #carryOut(
    asked: ManageRequest,
    request: string,
    place: () => RegistryPlace,
  ): Promise<ManageAnswer> {
    const broker = this.#broker;
    broker.checkDeciding();
    if (asked.policy !== null) await this.#allowPolicies();
    while (!broker.hasRoom(EVENTS_BYTES, 4)) await broker.room();
    // From here to the act nobody else has a turn.
    broker.checkDeciding();
    checkPlace(asked, place());
    const tombstone = this.#tombstoneOf(asked);
    const changed = this.#act(asked);
    if (tombstone !== null) this.#tombstones.set(tombstone);
    const answer = { ...place(), changed };
    await broker.durableTo(broker.position);
    const entries: ManagementEntry[] = [];
    if (tombstone !== null) entries.push({ tombstone });
    if (asked.operationId !== null) {
      const operation = { id: asked.operationId, request, answer };
      this.#remember(operation);
      entries.push({ operation });
    }
    await this.#record(entries, tombstone !== null, asked.operationId);
    broker.logger.info("Carried out a management operation", {
      action: asked.action,
      topic: asked.topic,
      channel: asked.channel,
      operation_id: asked.operationId,
      changed,
      tombstone_ms: asked.tombstoneMs,
    });
    return { ...answer, repeated: false };
  }

  /** Puts on disk what has to survive; only a tombstone has to be there. */
  async #record(
    entries: readonly ManagementEntry[],
    isNeeded: boolean,
    operationId: string | null,
  ): Promise<void> {
    if (entries.length === 0) return;
    try {
      if (this.#isClosed) throw new DiskError("closed", "The broker has stopped");
      await this.#journal?.append(entries);
    } catch (error) {
      if (!(error instanceof DiskError)) throw error;
      this.#broker.logger.warn("Cannot record a management operation", {
        operation_id: operationId,
        error: String(error),
      });
      if (!isNeeded) return;
      // A repeat is to try it again.
      if (operationId !== null) this.#done.delete(operationId);
      throw new ManageError("storage_fault", "the tombstone cannot be kept");
    }
  }

  #tombstoneOf({ topic, channel, tombstoneMs }: ManageRequest) {
    if (tombstoneMs === null) return null;
    if (tombstoneMs > 0 && !this.#tombstones.hasRoom(topic, channel)) {
      throw new ManageError("too_many_tombstones", "too many names are kept away");
    }
    return { topic, channel, untilMs: this.#clock.wallMs() + tombstoneMs };
  }

  /** Returns whether anything has changed. */
  #act(asked: ManageRequest): boolean {
    return asked.channel === null
      ? this.#actOnTopic(asked)
      : this.#actOnChannel(asked, asked.channel);
  }

  #actOnTopic(asked: ManageRequest): boolean {
    const { administration, topics } = this.#broker;
    const topic = topics.get(asked.topic);
    switch (asked.action) {
      case "create": {
        const made = administration.ensureTopic(asked.topic);
        const isConfigured = asked.policy !== null &&
          administration.configureTopic(made, asked.policy);
        return topic === undefined || isConfigured;
      }
      case "configure":
        return administration.configureTopic(known(topic), asked.policy ?? {});
      case "pause":
      case "unpause": {
        const isPaused = asked.action === "pause";
        const changed = known(topic).state.paused !== isPaused;
        administration.pauseTopic(known(topic), isPaused);
        return changed;
      }
      case "empty": {
        const changed = known(topic).depth > 0;
        administration.emptyTopic(known(topic));
        return changed;
      }
      case "delete":
      case "tombstone":
        // Who wants it gone has that.
        if (topic !== undefined) administration.deleteTopic(topic);
        return topic !== undefined || asked.action === "tombstone";
    }
  }

  #actOnChannel(asked: ManageRequest, name: string): boolean {
    const { administration, topics } = this.#broker;
    const topic = topics.get(asked.topic);
    const channel = topic?.channels.get(name);
    switch (asked.action) {
      case "create":
        administration.ensureChannel(known(topic), name);
        return channel === undefined;
      case "pause":
      case "unpause": {
        const found = knownChannel(topic, channel);
        const isPaused = asked.action === "pause";
        const changed = found.state.paused !== isPaused;
        administration.pauseChannel(found, isPaused);
        return changed;
      }
      case "empty": {
        const found = knownChannel(topic, channel);
        const changed = found.depth + found.inFlightCount + found.deferredCount > 0;
        found.empty();
        return changed;
      }
      case "delete":
      case "tombstone":
        if (topic !== undefined && channel !== undefined) {
          administration.deleteChannel(topic, channel);
        }
        return channel !== undefined || asked.action === "tombstone";
      case "configure":
        return false;
    }
  }

  async #allowPolicies(): Promise<void> {
    try {
      await this.#broker.storage.allowPolicies();
    } catch (error) {
      if (!(error instanceof DiskError)) throw error;
      throw new ManageError("storage_fault", "the levels of the data folder cannot be raised");
    }
  }

  #remember(operation: DoneOperation): void {
    this.#done.delete(operation.id);
    this.#done.set(operation.id, operation);
    if (this.#done.size <= OPERATIONS_MAX) return;
    for (const oldest of this.#done.keys()) {
      this.#done.delete(oldest);
      return;
    }
  }

  *#current(): Generator<ManagementEntry> {
    for (const tombstone of this.#tombstones.all()) yield { tombstone };
    for (const operation of this.#done.values()) yield { operation };
  }
}

/** What is compared between a request and its repeat. */
function digestOf(asked: ManageRequest): string {
  const { operationId: _, ...rest } = asked;
  return createHash("sha256").update(JSON.stringify(rest)).digest("hex").slice(0, 32);
}

function checkSame(first: string, request: string): void {
  if (first === request) return;
  throw new ManageError("operation_conflict", "the operation id belongs to another request");
}

function checkPlace(
  { expectedRevision, expectedInstance }: ManageRequest,
  { revision, instance }: RegistryPlace,
): void {
  const isSame = (expectedRevision === null || expectedRevision === revision) &&
    (expectedInstance === null || expectedInstance === instance);
  if (!isSame) throw new ManageError("revision_conflict", "the registry has changed");
}

function known(topic: Topic | undefined): Topic {
  if (topic === undefined) throw new ManageError("topic_not_found", "there is no such topic");
  return topic;
}

function knownChannel(topic: Topic | undefined, channel: Channel | undefined): Channel {
  known(topic);
  if (channel === undefined) throw new ManageError("channel_not_found", "there is no such channel");
  return channel;
}
