/**
 * The server's side of the byte stream from a client: bytes in, one event per `next()` out. Serves
 * V2 (brokers) and V1 (discovery), which differ in the magic and in how a line is trimmed.
 *
 *     stream  = magic *command
 *     magic   = SP SP "V2"                           ; "V1" for discovery
 *     command = line [ int32-size body ]             ; whether a body follows depends on the verb
 *
 * Promises
 * - It pulls: nothing is decoded before `next()` asks, so a session may pause between any two events
 *   (a sync to disk, an upgrade) and `takeRemaining()` gives back what it has not looked at.
 * - The events are the same however the bytes are cut into chunks. It never throws on input.
 * - No object, slice or string is made per command. A body that is whole in its chunk is not copied;
 *   any other is copied once.
 * - Memory: at most twice the longest line, and one body as large as the session accepted (rounded up
 *   to 1 KiB), taken when the first byte to keep arrives; none for a body that is streamed. Idle between commands it holds at most
 *   `retainBytesMax` for each.
 *
 * A chunk is borrowed from `feed()` until `next()` returns NEED_MORE. What events point to:
 * - `line` lasts until the next LINE, or until NEED_MORE when no body of it is awaited. While one is,
 *   NEED_MORE moves it to memory of the decoder: its bounds change, its content does not.
 * - `bodyBuffer[bodyStart, bodyEnd)` lasts until the next call of `next()`.
 * - Of a streamed body BODY_PART gives each piece as it came; `bodyBytesLeft` is what follows it.
 *
 * Protocol of calls: after LINE the session calls `expectBody()` when its verb has a body, and gets
 * BODY_SIZE; after BODY_SIZE it calls `acceptBody()`, or `streamBody()` to have it in pieces, or refuses and
 * closes. BAD_MAGIC and
 * LINE_TOO_LONG are final and come again on every call.
 *
 *     MAGIC -> LINE -> expectBody -> BODY_SIZE -> acceptBody -> BODY -> LINE ...
 *                 |                                  `-> streamBody -> BODY_PART* -> LINE ...
 *                 `--------------------------------------------------^
 */
import { invariant } from "../runtime/invariant.ts";
import { ByteStage } from "./byte_stage.ts";
import { EMPTY_BYTES, readInt32 } from "./bytes.ts";
import { CommandLine } from "./command_line.ts";
import { LINE_BYTES_MAX } from "./limits.ts";

/** What `next()` found. */
export const CommandEvent = {
  /** All of the chunk is used: feed another one. */
  NEED_MORE: 0,
  MAGIC: 1,
  /** The first four bytes are something else. */
  BAD_MAGIC: 2,
  LINE: 3,
  /** No `\n` within the cap. */
  LINE_TOO_LONG: 4,
  BODY_SIZE: 5,
  BODY: 6,
  /** A piece of a streamed body, the last one when `bodyBytesLeft` is 0. */
  BODY_PART: 7,
} as const;
export type CommandEvent = typeof CommandEvent[keyof typeof CommandEvent];

/** Where in the stream a decoder stands; asked for when the peer has closed. */
export type StreamPosition =
  | "in_magic"
  | "between_commands"
  | "in_line"
  | "in_body_size"
  | "in_body";

const State = {
  MAGIC: 0,
  LINE: 1,
  BODY_SIZE: 2,
  BODY_SIZE_GIVEN: 3,
  BODY: 4,
  FAILED: 5,
  BODY_STREAM: 6,
} as const;
type State = typeof State[keyof typeof State];

const MAGIC_BYTES = 4;
const SIZE_BYTES = 4;
const LINE_FEED = 0x0a;
const RETAIN_BYTES_MAX_DEFAULT = 4096;

export interface CommandDecoderOptions {
  /** Default V2. */
  readonly protocol?: "V1" | "V2";
  /** The longest line with its `\n`. Default {@linkcode LINE_BYTES_MAX}. */
  readonly lineBytesMax?: number;
  /** Memory for bodies, and again for lines, kept while nothing is pending. Default 4096. */
  readonly retainBytesMax?: number;
}

export class CommandDecoder {
  readonly line: CommandLine = new CommandLine();
  /** After BODY_SIZE: what the peer announced, a signed 32-bit integer; not yet judged. */
  bodySize = 0;
  /** After BODY: the body. After NEED_MORE inside a body: the part that is here. */
  bodyBuffer: Uint8Array = EMPTY_BYTES;
  bodyStart = 0;
  bodyEnd = 0;
  /** After BODY_PART: bytes of the body behind this piece. */
  bodyBytesLeft = 0;

  readonly #lookup: boolean;
  readonly #lineBytesMax: number;
  readonly #retainBytesMax: number;
  #state: State = State.MAGIC;
  #failure: CommandEvent = CommandEvent.NEED_MORE;
  #chunk: Uint8Array = EMPTY_BYTES;
  #position = 0;
  #chunkEnd = 0;
  /** The magic or a body size, as far as it is here; the bits of the word before it shift out. */
  #word = 0;
  #wordBytes = 0;
  readonly #lineStage = new ByteStage();
  readonly #bodyStage = new ByteStage();
  /** Whether a line, or a body, is partly in its stage. */
  #lineStaged = false;
  #bodyStaged = false;
  /** Whether the body of the last BODY is in the stage. */
  #bodyIsStaged = false;

  constructor(options: CommandDecoderOptions = {}) {
    this.#lookup = options.protocol === "V1";
    this.#lineBytesMax = options.lineBytesMax ?? LINE_BYTES_MAX;
    this.#retainBytesMax = options.retainBytesMax ?? RETAIN_BYTES_MAX_DEFAULT;
    invariant(this.#lineBytesMax > 0, "a line needs room");
  }

  /** Gives the next `buffer[start, end)` of the stream; only after NEED_MORE or at the start. */
  feed(buffer: Uint8Array, start = 0, end = buffer.length): void {
    invariant(this.#position === this.#chunkEnd, "a chunk is fed when the last one is used up");
    this.#chunk = buffer;
    this.#position = start;
    this.#chunkEnd = end;
  }

  /** Decodes up to the next event. */
  next(): CommandEvent {
    switch (this.#state) {
      case State.LINE:
        return this.#nextLine();
      case State.BODY_SIZE:
        return this.#nextBodySize();
      case State.BODY:
        return this.#nextBody();
      case State.MAGIC:
        return this.#nextMagic();
      case State.BODY_STREAM:
        return this.#nextBodyPart();
      case State.BODY_SIZE_GIVEN:
        invariant(false, "a body size is judged before the next event is asked for");
        return CommandEvent.NEED_MORE;
      default:
        return this.#failure;
    }
  }

  /** The command of the line has a body: its size is next. */
  expectBody(): void {
    invariant(this.#state === State.LINE && !this.#lineStaged, "a body follows a line");
    this.#state = State.BODY_SIZE;
    this.#wordBytes = 0;
  }

  /** The size is fine: the body is next. */
  acceptBody(): void {
    invariant(this.#state === State.BODY_SIZE_GIVEN, "a body is accepted after its size");
    invariant(this.bodySize >= 0, "an accepted body has a size");
    this.#state = State.BODY;
    this.bodyStart = 0;
    this.bodyEnd = 0;
  }

  /** The size is fine, and is not 0: the body comes in pieces, as it arrives. */
  streamBody(): void {
    invariant(this.#state === State.BODY_SIZE_GIVEN, "a body is accepted after its size");
    invariant(this.bodySize > 0, "a streamed body has bytes");
    this.#state = State.BODY_STREAM;
    this.bodyBytesLeft = this.bodySize;
  }

  /**
   * The body of the BODY just seen has `bytes` more: BODY comes again when they are here. For bodies
   * whose content tells their length; what was there is copied when it has to move.
   */
  extendBody(bytes: number): void {
    invariant(
      this.#state === State.LINE && this.bodyEnd - this.bodyStart === this.bodySize,
      "a body is extended right after it was seen",
    );
    this.bodySize += bytes;
    this.#state = State.BODY;
    this.#bodyStaged = this.#bodyIsStaged;
    if (!this.#bodyIsStaged) {
      this.#position = this.bodyStart;
      this.bodyStart = 0;
      this.bodyEnd = 0;
      return;
    }
    this.#bodyStage.grow(this.bodySize);
    this.bodyBuffer = this.#bodyStage.buffer;
  }

  /**
   * Takes back the part of the chunk that no event has used, for whoever reads the stream from here
   * on. A view of the chunk, not a copy. The decoder can go on with what comes out of an upgrade.
   */
  takeRemaining(): Uint8Array {
    const remaining = this.#chunk.subarray(this.#position, this.#chunkEnd);
    this.#position = this.#chunkEnd;
    return remaining;
  }

  /** Bytes of the chunk that no event has used. */
  get remainingBytes(): number {
    return this.#chunkEnd - this.#position;
  }

  /** Memory held for lines and bodies, for a budget of the server. */
  get stagedBytes(): number {
    return this.#lineStage.capacity + this.#bodyStage.capacity;
  }

  /** Where the stream stands after what was asked for. Of no use after a final event. */
  get position(): StreamPosition {
    const state = this.#state;
    if (state === State.MAGIC) return "in_magic";
    if (state === State.BODY_SIZE) return "in_body_size";
    const inBody = state === State.BODY_SIZE_GIVEN || state === State.BODY ||
      state === State.BODY_STREAM;
    if (inBody) return "in_body";
    return this.#lineStaged ? "in_line" : "between_commands";
  }

  #nextMagic(): CommandEvent {
    if (!this.#readWord(MAGIC_BYTES)) return this.#needMore();
    const expected = this.#lookup ? 0x20205631 : 0x20205632;
    if (this.#word !== expected) return this.#fail(CommandEvent.BAD_MAGIC);
    this.#state = State.LINE;
    return CommandEvent.MAGIC;
  }

  #nextLine(): CommandEvent {
    if (this.#lineStaged) return this.#nextStagedLine();
    const start = this.#position;
    const available = this.#chunkEnd - start;
    const limit = available < this.#lineBytesMax ? this.#chunkEnd : start + this.#lineBytesMax;
    const lineFeed = this.line.read(this.#chunk, start, limit);
    if (lineFeed >= 0) {
      this.#position = lineFeed + 1;
      if (this.#lookup) this.line.readAsLookup();
      return CommandEvent.LINE;
    }
    if (available >= this.#lineBytesMax) return this.#fail(CommandEvent.LINE_TOO_LONG);
    if (available > 0) {
      this.#lineStage.length = 0;
      this.#lineStage.appendGrowing(this.#chunk, start, this.#chunkEnd);
      this.#lineStaged = true;
      this.#position = this.#chunkEnd;
    }
    return this.#needMore();
  }

  #nextStagedLine(): CommandEvent {
    const stage = this.#lineStage;
    const room = this.#lineBytesMax - stage.length;
    const limit = Math.min(this.#chunkEnd, this.#position + room);
    let end = this.#position;
    while (end < limit && this.#chunk[end] !== LINE_FEED) end++;
    const complete = end < limit;
    if (complete) end++;
    stage.appendGrowing(this.#chunk, this.#position, end);
    this.#position = end;
    if (complete) {
      this.#lineStaged = false;
      this.line.read(stage.buffer, 0, stage.length);
      if (this.#lookup) this.line.readAsLookup();
      return CommandEvent.LINE;
    }
    if (stage.length >= this.#lineBytesMax) return this.#fail(CommandEvent.LINE_TOO_LONG);
    return this.#needMore();
  }

  #nextBodySize(): CommandEvent {
    if (this.#wordBytes === 0 && this.#chunkEnd - this.#position >= SIZE_BYTES) {
      this.bodySize = readInt32(this.#chunk, this.#position);
      this.#position += SIZE_BYTES;
    } else if (this.#readWord(SIZE_BYTES)) {
      this.bodySize = this.#word;
    } else {
      return this.#needMore();
    }
    this.#state = State.BODY_SIZE_GIVEN;
    return CommandEvent.BODY_SIZE;
  }

  #nextBody(): CommandEvent {
    const available = this.#chunkEnd - this.#position;
    if (!this.#bodyStaged && available >= this.bodySize) {
      this.bodyBuffer = this.#chunk;
      this.bodyStart = this.#position;
      this.#position += this.bodySize;
      this.bodyEnd = this.#position;
      this.#bodyIsStaged = false;
      this.#state = State.LINE;
      return CommandEvent.BODY;
    }
    if (available === 0) return this.#needMore();
    const stage = this.#bodyStage;
    if (!this.#bodyStaged) {
      stage.begin(this.bodySize);
      this.#bodyStaged = true;
      this.bodyBuffer = stage.buffer;
    }
    const bytes = Math.min(available, this.bodySize - stage.length);
    stage.append(this.#chunk, this.#position, this.#position + bytes);
    this.#position += bytes;
    this.bodyEnd = stage.length;
    if (stage.length < this.bodySize) return this.#needMore();
    this.#bodyStaged = false;
    this.#bodyIsStaged = true;
    this.#state = State.LINE;
    return CommandEvent.BODY;
  }

  #nextBodyPart(): CommandEvent {
    const bytes = Math.min(this.#chunkEnd - this.#position, this.bodyBytesLeft);
    if (bytes === 0) return this.#needMore();
    this.bodyBuffer = this.#chunk;
    this.bodyStart = this.#position;
    this.#position += bytes;
    this.bodyEnd = this.#position;
    this.bodyBytesLeft -= bytes;
    if (this.bodyBytesLeft === 0) this.#state = State.LINE;
    return CommandEvent.BODY_PART;
  }

  /** Collects `bytes` bytes that may come one by one; true once `#word` has them all. */
  #readWord(bytes: number): boolean {
    while (this.#wordBytes < bytes && this.#position < this.#chunkEnd) {
      this.#word = (this.#word << 8) | this.#chunk[this.#position]!;
      this.#position++;
      this.#wordBytes++;
    }
    return this.#wordBytes === bytes;
  }

  /** Lets go of the chunk, keeps the line of a pending body, and gives back idle memory. */
  #needMore(): CommandEvent {
    const line = this.line;
    const state = this.#state;
    if (state === State.BODY_SIZE || state === State.BODY || state === State.BODY_STREAM) {
      if (line.buffer !== this.#lineStage.buffer) {
        const start = line.start;
        const end = line.end;
        this.#lineStage.length = 0;
        this.#lineStage.appendGrowing(line.buffer, start, end);
        line.movedTo(this.#lineStage.buffer, 0);
      }
    } else {
      line.clear();
      if (!this.#lineStaged) this.#lineStage.release(this.#retainBytesMax);
    }
    if (!this.#bodyStaged) {
      if (state !== State.BODY) this.#bodyStage.release(this.#retainBytesMax);
      this.bodyBuffer = EMPTY_BYTES;
      this.bodyStart = 0;
      this.bodyEnd = 0;
    }
    this.#chunk = EMPTY_BYTES;
    this.#position = 0;
    this.#chunkEnd = 0;
    return CommandEvent.NEED_MORE;
  }

  /** Ends decoding: nothing after this point can be understood. */
  #fail(event: CommandEvent): CommandEvent {
    this.#state = State.FAILED;
    this.#failure = event;
    this.#lineStaged = false;
    this.#lineStage.release(0);
    this.#bodyStage.release(0);
    this.line.clear();
    this.#position = this.#chunkEnd;
    return event;
  }
}
