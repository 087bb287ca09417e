/**
 * One command line as bounds into a buffer: a view that a decoder fills again for every command, so
 * that reading a command makes no object, slice or string.
 *
 *     line      = verb *( SP parameter ) [ CR ] LF
 *     verb      = *OCTET    ; neither SP nor LF
 *     parameter = *OCTET    ; neither SP nor LF; two spaces in a row make an empty one
 *
 * The bounds of the first four parameters are kept; no command has more than three. The rest are only
 * counted. All bounds index `buffer`, which changes when the decoder moves the line: read bounds
 * through this object, do not store them.
 */
import { invariant } from "../runtime/invariant.ts";
import { EMPTY_BYTES, utf8Text } from "./bytes.ts";
import { recognizeLookupVerb, recognizeVerb, Verb } from "./verb.ts";

const PARAMETERS_KEPT = 4;
const SPACE = 0x20;
const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;

/** Written by its decoder only. */
export class CommandLine {
  buffer: Uint8Array = EMPTY_BYTES;
  verb: Verb = Verb.UNKNOWN;
  /** Parameters after the verb. */
  paramCount = 0;
  #start = 0;
  /** Without the line end. */
  #end = 0;
  /** Where the spaces before the first parameters and after the last kept one are. */
  readonly #spaces = new Int32Array(PARAMETERS_KEPT + 1);

  paramStart(index: number): number {
    invariant(index < this.paramCount && index < PARAMETERS_KEPT, "the parameter is there");
    return this.#spaces[index]! + 1;
  }

  paramEnd(index: number): number {
    invariant(index < this.paramCount && index < PARAMETERS_KEPT, "the parameter is there");
    return index + 1 < this.paramCount ? this.#spaces[index + 1]! : this.#end;
  }

  /** A parameter as text. Makes a string: for errors and rare commands. */
  paramText(index: number): string {
    return utf8Text(this.buffer, this.paramStart(index), this.paramEnd(index));
  }

  /** The first word as the peer wrote it. */
  verbText(): string {
    return utf8Text(this.buffer, this.#start, this.#verbEnd());
  }

  /** The whole line without its end. */
  text(): string {
    return utf8Text(this.buffer, this.#start, this.#end);
  }

  /**
   * Takes the line that starts at `start` and ends before `limit`. Returns where its `\n` is, or -1
   * when there is none; then the view holds nothing of use.
   */
  read(buffer: Uint8Array, start: number, limit: number): number {
    const spaces = this.#spaces;
    let count = 0;
    for (let index = start; index < limit; index++) {
      const byte = buffer[index]!;
      if (byte === SPACE) {
        if (count <= PARAMETERS_KEPT) spaces[count] = index;
        count++;
      } else if (byte === LINE_FEED) {
        this.buffer = buffer;
        this.#start = start;
        this.#end = index > start && buffer[index - 1] === CARRIAGE_RETURN ? index - 1 : index;
        this.paramCount = count;
        this.verb = recognizeVerb(buffer, start, this.#verbEnd());
        return index;
      }
    }
    return -1;
  }

  /** Splits the line that was read again by the rules of V1: white space around it is dropped. */
  readAsLookup(): void {
    const buffer = this.buffer;
    let start = this.#start;
    let end = this.#end;
    while (start < end && isWhiteSpace(buffer[start]!)) start++;
    while (end > start && isWhiteSpace(buffer[end - 1]!)) end--;
    let count = 0;
    for (let index = start; index < end; index++) {
      if (buffer[index] !== SPACE) continue;
      if (count <= PARAMETERS_KEPT) this.#spaces[count] = index;
      count++;
    }
    this.#start = start;
    this.#end = end;
    this.paramCount = count;
    this.verb = recognizeLookupVerb(buffer, start, this.#verbEnd());
  }

  /** The bounds of the line without its end, for a decoder that copies it elsewhere. */
  get start(): number {
    return this.#start;
  }

  get end(): number {
    return this.#end;
  }

  /** Points the view at a copy of the line that starts at `start` of `buffer`. */
  movedTo(buffer: Uint8Array, start: number): void {
    const shift = start - this.#start;
    this.buffer = buffer;
    this.#start += shift;
    this.#end += shift;
    for (let index = 0; index <= PARAMETERS_KEPT; index++) this.#spaces[index]! += shift;
  }

  /** Lets go of the buffer. */
  clear(): void {
    this.buffer = EMPTY_BYTES;
    this.verb = Verb.UNKNOWN;
    this.paramCount = 0;
    this.#start = 0;
    this.#end = 0;
  }

  #verbEnd(): number {
    return this.paramCount > 0 ? this.#spaces[0]! : this.#end;
  }
}

function isWhiteSpace(byte: number): boolean {
  return byte === SPACE || (byte >= 0x09 && byte <= 0x0d);
}
