/**
 * Reads a whole data folder and says what is wrong with it: the small files, names, gaps, every block
 * and record, the sidecars against their files, the checkpoints, and whether the state replays. It
 * needs memory for the places of the messages of one file, and for the state; a little for each part
 * of a large message.
 */
import {
  type BrokerState,
  decodeCheckpoint,
  isOtherFormat,
  isRewritten,
  LARGE_MESSAGE_KIND,
  type LogGap,
  MESSAGE_KIND,
  type MessageHeader,
  PART_KIND,
  type RecoveredState,
  recoverState,
} from "@sluice/broker/storage/format";
import {
  BLOCK_HEADER_BYTES,
  type Damage,
  LogError,
  type LogFileInfo,
  recordBytes,
} from "@sluice/shared/log";
import { DiskError } from "@sluice/shared/runtime";
import { bytesText, type Progress } from "../progress.ts";
import {
  type CheckpointReport,
  type Examination,
  type FileReport,
  Findings,
  type LostMessages,
  nameIn,
  nameOf,
} from "./examination.ts";
import { CannotRunError, type Folder } from "./folder.ts";
import { LargeParts } from "./large_parts.ts";
import { readMessageId, recordProblem } from "./records.ts";
import { FileMessages } from "./sidecar_check.ts";
import { checkFences, checkMeta, checkNames } from "./small_files.ts";

/** Reads everything; only the newest state of things counts if somebody writes meanwhile. */
export async function examine(
  folder: Folder,
  progress: Progress,
): Promise<Examination> {
  const examiner = new Examiner(folder, progress);
  try {
    return await examiner.run();
  } finally {
    progress.end();
  }
}

class Examiner {
  readonly #folder: Folder;
  readonly #progress: Progress;
  readonly #findings = new Findings();
  readonly #lost: LostMessages[] = [];
  /** The first offset seen, by topic. */
  readonly #firstOffsets = new Map<number, number>();
  /** The offset after the last one seen, by topic. */
  readonly #nextOffsets = new Map<number, number>();
  readonly #nodeIds = new Set<number>();
  /** The topics of which a sidecar says nothing, by the start of its file. */
  readonly #absent = new Map<number, readonly number[]>();
  readonly #parts = new LargeParts();
  #topicNames: ReadonlyMap<number, string> = new Map();
  #sequenceNext = 0;
  #epoch = 0;
  /** Some file was compacted: messages that nobody is owed are not there on purpose. */
  #isCompacted = false;

  constructor(folder: Folder, progress: Progress) {
    this.#folder = folder;
    this.#progress = progress;
  }

  async run(): Promise<Examination> {
    const { log } = this.#folder;
    checkFences(this.#folder, this.#findings);
    checkNames(this.#folder, this.#findings);
    const checkpoints = await this.#readCheckpoints();
    const checkpoint = checkpoints.find(({ problem }) => problem === null) ??
      null;
    // A checkpoint is stored when all before it is durable, so its name vouches even if it is damaged.
    const syncedTo = Math.max(0, ...checkpoints.map(({ end }) => end));
    const logBytes = log.files.reduce(
      (sum, { start, end }) => sum + end - start,
      0,
    );
    this.#progress.begin("log", logBytes);
    const files: FileReport[] = [];
    for (const info of [...log.files]) {
      files.push(
        await this.#readFile(info, syncedTo, info === log.files.at(-1)),
      );
    }
    const gaps = this.#findGaps(files, checkpoint);
    const isStateLost = checkpoint === null && (files[0]?.info.start ?? 0) > 0;
    if (isStateLost) {
      this.#findings.damage(
        "journal",
        `no checkpoint can be read and the log before position ${files[0]?.info.start} is gone`,
      );
    }
    const state = gaps.length > 0 || isStateLost ? null : await this.#replay(files, checkpoint);
    if (state !== null) {
      this.#judgeAbsentTopics(state, files);
      this.#findLostEnds(state);
      if (this.#isCompacted) this.#forgetUnowed(state);
      for (const { topic, offset, position, part } of this.#parts.missing(state.state)) {
        this.#findings.note(
          nameIn("log", fileOf(files, position)),
          `the message at offset ${offset} of topic ${topic} is owed, and its part at position ` +
            `${part} is gone or damaged; a broker passes over the message`,
          { position },
        );
      }
      this.#topicNames = namesIn(state.state);
      const orphans = state.state.orphanRecords;
      if (orphans > 0) {
        const text = `${orphans} records are of topics or channels that nothing else knows of`;
        this.#findings.note("journal", text);
      }
    }
    for (const { topic, from, to } of this.#lost) {
      this.#findings.note(
        "journal",
        `topic ${
          nameOf({ topicNames: this.#topicNames }, topic)
        } has no messages at offsets ${from} to ${to - 1}`,
      );
    }
    const facts = {
      hasLog: files.length > 0,
      epochMax: log.epochMax,
      sequenceNext: this.#sequenceNext,
      nodeIds: [...this.#nodeIds],
    };
    return {
      files,
      checkpoints,
      gaps,
      state,
      isStateLost,
      lost: this.#lost,
      topicNames: this.#topicNames,
      ...facts,
      metaIsBad: checkMeta(this.#folder, facts, this.#findings),
      findings: this.#findings.list,
    };
  }

  async #readCheckpoints(): Promise<CheckpointReport[]> {
    const { log } = this.#folder;
    const checkpoints: CheckpointReport[] = [];
    for (const position of await log.listCheckpoints()) {
      try {
        const { end, state } = await decodeCheckpoint(
          log.getCheckpoint(position),
        );
        if (this.#topicNames.size === 0) this.#topicNames = namesIn(state);
        checkpoints.push({
          position,
          end: Math.max(position, end),
          problem: null,
        });
      } catch (error) {
        const problem = damageText(error);
        this.#findings.damage(
          nameIn("ckp", position),
          `the checkpoint is damaged: ${problem}`,
        );
        checkpoints.push({ position, end: position, problem });
      }
    }
    return checkpoints;
  }

  async #readFile(
    info: LogFileInfo,
    syncedTo: number,
    last: boolean,
  ): Promise<FileReport> {
    const { log } = this.#folder;
    const name = nameIn("log", info.start);
    const header: MessageHeader = {
      topic: 0,
      offset: 0,
      dueMs: 0,
      wireStart: 0,
    };
    const messages = new FileMessages();
    const malformed: Damage[] = [];
    const counts = {
      blocks: 0,
      records: 0,
      messages: 0,
      blocksEnd: info.start,
    };
    const found = await log.walk(info, info.start, syncedTo, {
      block: (block) => {
        const { epoch, firstSequence, position, recordsBytes } = block;
        this.#isCompacted ||= isRewritten(block);
        counts.blocks++;
        counts.blocksEnd = position + BLOCK_HEADER_BYTES + recordsBytes;
        this.#epoch = epoch;
        this.#sequenceNext = Math.max(this.#sequenceNext, firstSequence);
      },
      record: (kind, bytes, start, end, position) => {
        counts.records++;
        const problem = recordProblem(
          kind,
          bytes,
          start,
          end,
          position,
          header,
        );
        if (problem !== null) {
          malformed.push({
            position,
            bytes: recordBytes(end - start),
            reason: problem,
          });
        } else if (kind === PART_KIND) {
          this.#parts.see(bytes, start, end, position);
        } else if (kind === MESSAGE_KIND || kind === LARGE_MESSAGE_KIND) {
          counts.messages++;
          if (kind === LARGE_MESSAGE_KIND) this.#parts.need(header, bytes, end, position);
          messages.add(header.topic, header.offset, position, header.dueMs);
          this.#seeMessage(header, bytes);
        }
      },
    });
    const damage = withoutOverlaps([...found.damage, ...malformed]);
    for (const { position, bytes, reason } of damage) {
      this.#findings.damage(name, reason, { position, bytes });
    }
    const tornBytes = last && !found.isTailZero ? Math.max(0, info.end - found.end) : 0;
    // Damage that reaches the end of the file is reported as that.
    const reachesEnd = damage.some((one) => one.position + one.bytes === info.end);
    if (tornBytes > 0 && !reachesEnd) {
      this.#findings.note(
        name,
        "a torn group, which nobody was told is stored; a broker cuts it off at its next start",
        { position: found.end, bytes: tornBytes },
      );
    }
    const sidecar = last ? "none" : await this.#checkSidecar(info, messages, damage);
    return {
      info,
      last,
      end: last ? found.end : info.end,
      tornBytes: reachesEnd ? 0 : tornBytes,
      ...counts,
      damage,
      sidecar,
      epoch: this.#epoch,
    };
  }

  #seeMessage(header: MessageHeader, bytes: Uint8Array): void {
    const { topic, offset } = header;
    const expected = this.#nextOffsets.get(topic);
    if (expected === undefined) this.#firstOffsets.set(topic, offset);
    else if (offset > expected) {
      this.#lost.push({ topic, from: expected, to: offset });
    }
    this.#nextOffsets.set(topic, offset + 1);
    const id = readMessageId(bytes, header.wireStart);
    if (id === null) return;
    this.#nodeIds.add(id.nodeId);
    this.#sequenceNext = Math.max(this.#sequenceNext, id.sequence + 1);
  }

  async #checkSidecar(
    info: LogFileInfo,
    messages: FileMessages,
    damage: readonly Damage[],
  ): Promise<FileReport["sidecar"]> {
    const { log } = this.#folder;
    const name = nameIn("idx", info.start);
    if (!log.names.includes(name.slice("journal/".length))) {
      this.#findings.note(
        name,
        "the sidecar is missing; a broker makes it again at its next start",
      );
      return "missing";
    }
    const content = await log.getSidecar(info);
    if (content !== null && isOtherFormat(content)) {
      this.#findings.note(
        name,
        "the sidecar is of another release; a broker makes it again at its next start",
      );
      return "missing";
    }
    const { problem, absentTopics } = content === null
      ? { problem: "its checksum is wrong", absentTopics: [] }
      : messages.compare(content, info.start, damage);
    if (problem !== null) {
      this.#findings.damage(name, `the sidecar is damaged: ${problem}`);
      return "damaged";
    }
    if (absentTopics.length > 0) this.#absent.set(info.start, absentTopics);
    return "good";
  }

  /** A sidecar may leave out only what is gone. */
  #judgeAbsentTopics({ state }: RecoveredState, files: FileReport[]): void {
    for (const [index, file] of files.entries()) {
      const topic = this.#absent.get(file.info.start)
        ?.find((number) => state.topicsByNumber.has(number));
      if (topic === undefined) continue;
      const name = state.topicsByNumber.get(topic)?.name;
      this.#findings.damage(
        nameIn("idx", file.info.start),
        `the sidecar is damaged: it knows nothing of topic ${name}`,
      );
      files[index] = { ...file, sidecar: "damaged" };
    }
  }

  /** Messages that are owed and gone from the start of a topic, or known and gone from its end. */
  #findLostEnds({ state }: RecoveredState): void {
    for (const { number, liveFrom, tail } of state.topicsByNumber.values()) {
      const first = this.#firstOffsets.get(number) ?? tail;
      const next = this.#nextOffsets.get(number) ?? tail;
      if (liveFrom < first) {
        this.#lost.push({ topic: number, from: liveFrom, to: first });
      }
      if (next < tail) this.#lost.push({ topic: number, from: next, to: tail });
    }
  }

  /** Messages that nobody is owed are not lost, wherever they are. */
  #forgetUnowed({ state }: RecoveredState): void {
    const lost = this.#lost.filter(({ topic, from, to }) =>
      (state.topicsByNumber.get(topic)?.owedCount(from, to) ?? 0) > 0
    );
    this.#lost.splice(0, this.#lost.length, ...lost);
  }

  #findGaps(
    files: readonly FileReport[],
    checkpoint: CheckpointReport | null,
  ): LogGap[] {
    const gaps = [...this.#folder.log.gaps];
    const first = files[0];
    const last = files.at(-1);
    if (checkpoint !== null && checkpoint.end > 0) {
      const { position, end } = checkpoint;
      if (last === undefined) gaps.push({ from: position, to: end });
      else if (last.end < end) gaps.push({ from: last.end, to: end });
      if (first !== undefined && position < first.info.start) {
        gaps.unshift({ from: position, to: first.info.start });
      }
    }
    for (const { from, to } of gaps) {
      const text = from >= (last?.end ?? 0)
        ? `the log ends at position ${from}, but a checkpoint says it was on disk up to ${to}`
        : `${bytesText(to - from)} of the log are missing, from position ${from} to ${to}`;
      this.#findings.damage("journal", text, { position: from, bytes: to - from });
    }
    return gaps;
  }

  async #replay(
    files: readonly FileReport[],
    checkpoint: CheckpointReport | null,
  ): Promise<RecoveredState | null> {
    const position = checkpoint?.position ?? 0;
    const from = files.findLast(({ info }) => info.start <= position)?.info.start ?? 0;
    this.#progress.begin("state", (files.at(-1)?.end ?? 0) - from);
    try {
      return await recoverState(this.#folder.log);
    } catch (error) {
      this.#findings.damage(
        "journal",
        `the state cannot be rebuilt: ${damageText(error)}`,
      );
      return null;
    }
  }
}

/** The start of the file that a position is in. */
function fileOf(files: readonly FileReport[], position: number): number {
  return files.findLast(({ info }) => info.start <= position)?.info.start ?? 0;
}

function namesIn(state: BrokerState): Map<number, string> {
  return new Map(
    [...state.topicsByNumber].map(([number, { name }]) => [number, name]),
  );
}

/** What an error says about damage; one that is about something else is thrown on. */
function damageText(error: unknown): string {
  if (error instanceof DiskError || error instanceof CannotRunError) {
    throw error;
  }
  if (error instanceof LogError && error.code === "newer_format") throw error;
  return error instanceof Error ? error.message : String(error);
}

/** Sorted by position; of two that overlap, the larger. */
function withoutOverlaps(damage: readonly Damage[]): Damage[] {
  const kept: Damage[] = [];
  const sorted = [...damage].sort((a, b) => a.position - b.position || b.bytes - a.bytes);
  for (const one of sorted) {
    const before = kept.at(-1);
    if (
      before === undefined || one.position >= before.position + before.bytes
    ) kept.push(one);
  }
  return kept;
}
