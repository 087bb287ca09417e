/**
 * Writing large messages: parts go to the log as they arrive, in groups with everything else.
 *
 * - Parts come to at most {@linkcode LargeMessages.groupBytesMax} in one group, and to fewer on a slow
 *   disk: so many that a group takes about {@linkcode GROUP_MS_MAX}, but always one. So nobody else
 *   waits long for a group because of them.
 * - The log from the first part of an upload on is **pinned** until the upload ends, one way or the
 *   other; so is what is being read for a consumer. What a crash leaves of an upload is nobody's.
 * - The first part that a folder ever gets raises its compatibility level first.
 */
import type { CommitLog } from "@sluice/shared/log";
import { invariant } from "@sluice/shared/runtime";
import type { BodyPart } from "./large_body.ts";
import { PART_KIND } from "./records.ts";

/** Bodies above are large, unless the ring is small. */
export const LARGE_BODY_BYTES = 1024 * 1024;
const PART_BYTES = 256 * 1024;
const GROUP_BYTES_MAX = 2 * 1024 * 1024;
/** Groups with parts that take longer get smaller; a publish waits for two of them at most. */
const GROUP_MS_MAX = 10;
/** What a part takes in the log besides its bytes, at most, with its place in the table. */
export const PART_OVERHEAD_BYTES = 32;
/** Shares of the ring: a body that is not large, one part, the parts of a group. */
const BODY_SHARE = 4;
const PART_SHARE = 16;
const GROUP_SHARE = 8;

/** Keeps the log from a position on. */
export interface LogPin {
  readonly from: number;
}

/** A body as far as it is in the log. */
export class WrittenBody {
  readonly parts: BodyPart[] = [];
  bytes = 0;
  pin: LogPin | null = null;
}

/** See the module. */
export class LargeMessages {
  /** Counted since the start. */
  readonly counters = { published: 0, delivered: 0, partBytes: 0, abandonedBytes: 0 };
  /** Bodies above are written as parts. */
  readonly bodyBytesMin: number;
  /** Bytes of every part but a body's last. */
  readonly partBytes: number;
  readonly groupBytesMax: number;

  readonly #log: CommitLog;
  readonly #raise: () => Promise<void>;
  readonly #pins = new Set<LogPin>();
  #raised: boolean;
  #raising: Promise<void> | null = null;
  #wanted = false;
  /** The group that `#groupBytes` are in. */
  #group = -1;
  #groupBytes = 0;
  /** What a group may have of parts, by what the disk has shown. */
  #limitBytes: number;
  /** Bytes of parts in the group that was closed last, and since when it is. */
  #closedBytes = 0;
  #closedMs = 0;
  /** The same of the one that was written last. */
  #writtenBytes = 0;
  #writtenMs = 0;

  /** `raise` has older releases refuse the folder; `raised` says that they do already. */
  constructor(
    log: CommitLog,
    options: { readonly ringBytes: number; readonly bodyBytesMin?: number },
    raise: () => Promise<void>,
    raised: boolean,
  ) {
    const { ringBytes, bodyBytesMin = LARGE_BODY_BYTES } = options;
    this.#log = log;
    this.#raise = raise;
    this.#raised = raised;
    this.bodyBytesMin = Math.min(bodyBytesMin, ringBytes / BODY_SHARE);
    this.partBytes = Math.min(PART_BYTES, ringBytes / PART_SHARE);
    this.groupBytesMax = Math.min(GROUP_BYTES_MAX, ringBytes / GROUP_SHARE);
    this.#limitBytes = this.groupBytesMax;
  }

  /** The group being filled is closed and goes to the disk. */
  closing(nowMs: number): void {
    this.#closedBytes = this.#group === this.#log.groupStart ? this.#groupBytes : 0;
    this.#closedMs = nowMs;
  }

  /** The group that was closed last is written. */
  written(): void {
    this.#writtenBytes = this.#closedBytes;
    this.#writtenMs = this.#closedMs;
  }

  /** The group that was written last is on disk; another one may be closed already. */
  durable(nowMs: number): void {
    // One with few parts says nothing about many.
    if (this.#writtenBytes < this.#limitBytes / 2) return;
    const tookMs = nowMs - this.#writtenMs;
    if (tookMs > GROUP_MS_MAX) {
      this.#limitBytes = Math.max(this.partBytes, this.#limitBytes / 2);
    } else if (tookMs < GROUP_MS_MAX / 2) {
      this.#limitBytes = Math.min(this.groupBytesMax, this.#limitBytes + this.partBytes);
    }
  }

  /** Whether a part may be written now as far as this goes; the log has a say too. */
  hasRoom(): boolean {
    if (!this.#raised) {
      this.#wanted = true;
      return false;
    }
    return this.#group !== this.#log.groupStart || this.#groupBytes < this.#limitBytes;
  }

  /** Whether somebody waits for the folder's level to be raised. */
  get isLocked(): boolean {
    return this.#wanted && !this.#raised;
  }

  /** Has the folder's level raised if somebody waits for that. Rejects when the disk does. */
  async unlock(): Promise<void> {
    if (!this.isLocked) return;
    this.#raising ??= this.#raise()
      .then(() => {
        this.#raised = true;
      })
      .finally(() => this.#raising = null);
    await this.#raising;
  }

  /** Adds `bytes[start, end)`, copied, to a body. There must be room. */
  write(body: WrittenBody, bytes: Uint8Array, start: number, end: number): void {
    invariant(this.#raised, "a folder is of the level of large messages before it gets a part");
    invariant(end > start && end - start <= this.partBytes, "a part has bytes, and not too many");
    const log = this.#log;
    log.ring.set(bytes.subarray(start, end), log.begin(PART_KIND, end - start));
    log.finish();
    const position = log.recordPosition;
    const crc = log.ringView.getUint32((position & log.mask) + 4, true);
    body.parts.push({ position, bytes: end - start, crc });
    body.bytes += end - start;
    body.pin ??= this.pin(position);
    if (this.#group !== log.groupStart) {
      this.#group = log.groupStart;
      this.#groupBytes = 0;
    }
    this.#groupBytes += end - start;
    this.counters.partBytes += end - start;
    log.flush();
  }

  /** Keeps the log from `from` on until `unpin`. */
  pin(from: number): LogPin {
    const pin = { from };
    this.#pins.add(pin);
    return pin;
  }

  unpin(pin: LogPin | null): void {
    if (pin !== null) this.#pins.delete(pin);
  }

  /** The lowest position that is pinned; `Infinity` when none is. */
  get pinnedFrom(): number {
    let lowest = Infinity;
    for (const { from } of this.#pins) lowest = Math.min(lowest, from);
    return lowest;
  }
}
