/**
 * The rule for topic and channel names, on text and on bytes in place, and the quoting in which
 * error texts repeat a bad name.
 *
 *     name = 1*( "." / "_" / "-" / DIGIT / ALPHA ) [ "#ephemeral" ]    ; 1 to 64 bytes in all
 *
 * Topics and channels follow the same rule. A valid name is ASCII.
 */
import { equalBytes, utf8Bytes } from "./bytes.ts";
import { NAME_BYTES_MAX } from "./limits.ts";

const NAME_REGEXP = /^[.a-zA-Z0-9_-]+(#ephemeral)?$/;
const EPHEMERAL = utf8Bytes("#ephemeral");
/** 1 for each byte that may stand in a name before the suffix. */
const NAME_BYTE = nameByteTable();

/** Whether `name` may name a topic or channel. */
export function isValidName(name: string): boolean {
  return name.length <= NAME_BYTES_MAX && NAME_REGEXP.test(name);
}

/** {@linkcode isValidName} for `buffer[start, end)`. */
export function isValidNameBytes(buffer: Uint8Array, start: number, end: number): boolean {
  const bytes = end - start;
  if (bytes < 1 || bytes > NAME_BYTES_MAX) return false;
  for (let index = start; index < end; index++) {
    if (NAME_BYTE[buffer[index]!] === 1) continue;
    return index > start && equalBytes(buffer, index, end, EPHEMERAL);
  }
  return true;
}

/** Whether a valid name has the suffix that lets the topic or channel vanish with its last user. */
export function isEphemeral(name: string): boolean {
  return name.endsWith("#ephemeral");
}

/** {@linkcode isEphemeral} for `buffer[start, end)`. */
export function isEphemeralBytes(buffer: Uint8Array, start: number, end: number): boolean {
  const suffix = end - EPHEMERAL.length;
  return suffix >= start && equalBytes(buffer, suffix, end, EPHEMERAL);
}

/** A valid name as text; quicker than a decoder because names are short and ASCII. */
export function nameText(buffer: Uint8Array, start: number, end: number): string {
  let text = "";
  for (let index = start; index < end; index++) text += String.fromCharCode(buffer[index]!);
  return text;
}

/**
 * Quotes as Go's `%q` does: double quotes, backslash escapes for quotes, backslashes and what
 * cannot be printed, `\x..` for bytes that are not UTF-8. Printable is what Unicode calls a letter,
 * mark, number, punctuation or symbol, and the space; our Unicode tables may be newer than Go's.
 */
export function goQuote(text: string): string {
  return goQuoteBytes(utf8Bytes(text));
}

/** {@linkcode goQuote} for `buffer[start, end)`. */
export function goQuoteBytes(buffer: Uint8Array, start = 0, end = buffer.length): string {
  let quoted = '"';
  let index = start;
  while (index < end) {
    const bytes = utf8SequenceBytes(buffer, index, end);
    if (bytes === 0) {
      quoted += `\\x${hex(buffer[index]!, 2)}`;
      index++;
      continue;
    }
    quoted += quoteCodePoint(codePointAt(buffer, index, bytes));
    index += bytes;
  }
  return quoted + '"';
}

const PRINTABLE_REGEXP = /^[\p{L}\p{M}\p{N}\p{P}\p{S} ]$/u;
const SHORT_ESCAPES: ReadonlyMap<number, string> = new Map([
  [0x07, "\\a"],
  [0x08, "\\b"],
  [0x09, "\\t"],
  [0x0a, "\\n"],
  [0x0b, "\\v"],
  [0x0c, "\\f"],
  [0x0d, "\\r"],
  [0x22, '\\"'],
  [0x5c, "\\\\"],
]);

function quoteCodePoint(codePoint: number): string {
  const escape = SHORT_ESCAPES.get(codePoint);
  if (escape !== undefined) return escape;
  const text = String.fromCodePoint(codePoint);
  if (PRINTABLE_REGEXP.test(text)) return text;
  if (codePoint < 0x20 || codePoint === 0x7f) return `\\x${hex(codePoint, 2)}`;
  return codePoint < 0x10000 ? `\\u${hex(codePoint, 4)}` : `\\U${hex(codePoint, 8)}`;
}

/** The length of the UTF-8 sequence at `index`, or 0 when there is no valid one. */
function utf8SequenceBytes(buffer: Uint8Array, index: number, end: number): number {
  const first = buffer[index]!;
  if (first < 0x80) return 1;
  const bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || index + bytes > end) return 0;
  for (let at = index + 1; at < index + bytes; at++) {
    if ((buffer[at]! & 0xc0) !== 0x80) return 0;
  }
  const second = buffer[index + 1]!;
  if (first === 0xe0 && second < 0xa0) return 0; // written longer than needed
  if (first === 0xed && second >= 0xa0) return 0; // half of a surrogate pair
  if (first === 0xf0 && second < 0x90) return 0; // written longer than needed
  if (first === 0xf4 && second >= 0x90) return 0; // past the last code point
  return bytes;
}

function codePointAt(buffer: Uint8Array, index: number, bytes: number): number {
  const first = buffer[index]!;
  let codePoint = bytes === 1 ? first : first & (0xff >> (bytes + 1));
  for (let at = index + 1; at < index + bytes; at++) {
    codePoint = (codePoint << 6) | (buffer[at]! & 0x3f);
  }
  return codePoint;
}

function hex(value: number, digits: number): string {
  return value.toString(16).padStart(digits, "0");
}

function nameByteTable(): Uint8Array {
  const table = new Uint8Array(256);
  for (let byte = 0; byte < 128; byte++) {
    if (/[.a-zA-Z0-9_-]/.test(String.fromCharCode(byte))) table[byte] = 1;
  }
  return table;
}
