/**
 * For tests: plays a session that only listens, and writes down what the decoder told it. A trace is
 * the same for the same bytes however they are cut; each chunk is overwritten once it is given back,
 * so that a view kept too long shows.
 */
import { utf8Bytes, utf8Text } from "./bytes.ts";
import { CommandDecoder, CommandEvent } from "./command_decoder.ts";
import type { CommandLine } from "./command_line.ts";
import { endOfStreamError } from "./end_of_stream.ts";
import { type MpubLimits, MpubScanner } from "./mpub.ts";
import { MAGIC_V2 } from "./session_commands.ts";
import { Verb, verbName } from "./verb.ts";

const MPUB_LIMITS: MpubLimits = { messageBytesMax: 64, bodyBytesMax: 1024 };
const LINE_BYTES_MAX = 128;
/** Bodies of PUB and DPUB above are taken in pieces; the trace shows them whole all the same. */
const STREAM_BYTES_MIN = 32;

/** Everything told about `bytes`, cut at `cuts` (ascending offsets), and at the end of the stream. */
export function traceOf(bytes: Uint8Array, cuts: readonly number[]): string[] {
  const decoder = new CommandDecoder({ lineBytesMax: LINE_BYTES_MAX, retainBytesMax: 0 });
  const mpub = new MpubScanner(MPUB_LIMITS);
  const trace: string[] = [];
  const pieces: Pieces = [];
  let start = 0;
  for (const end of [...cuts, bytes.length]) {
    // The chunk stands in a larger buffer: a decoder that trusts offset 0 or the length would show.
    const chunk = new Uint8Array(end - start + 6).fill(0x0a);
    chunk.set(bytes.subarray(start, end), 3);
    decoder.feed(chunk, 3, chunk.length - 3);
    if (!drain(decoder, mpub, trace, pieces)) return trace;
    chunk.fill(0xee);
    start = end;
  }
  const verb = decoder.line.verb;
  const ending = endOfStreamError(verb, decoder.position, mpub);
  trace.push(`END ${decoder.position}${ending === undefined ? "" : ` ${ending.text}`}`);
  return trace;
}

/** The pieces of a streamed body, kept over the chunks. */
type Pieces = number[];

/** Notes events until NEED_MORE; false once the session would close. */
function drain(
  decoder: CommandDecoder,
  mpub: MpubScanner,
  trace: string[],
  pieces: Pieces,
): boolean {
  for (;;) {
    const event = decoder.next();
    switch (event) {
      case CommandEvent.NEED_MORE:
        return decoder.position !== "in_body" || isMpubFine(decoder, mpub, trace);
      case CommandEvent.MAGIC:
        trace.push("MAGIC");
        break;
      case CommandEvent.BAD_MAGIC:
      case CommandEvent.LINE_TOO_LONG:
        trace.push(event === CommandEvent.BAD_MAGIC ? "BAD_MAGIC" : "LINE_TOO_LONG");
        return false;
      case CommandEvent.LINE:
        trace.push(`LINE ${describe(decoder.line)}`);
        if (hasBody(decoder.line.verb)) decoder.expectBody();
        break;
      case CommandEvent.BODY_SIZE:
        trace.push(`BODY_SIZE ${decoder.bodySize}`);
        if (decoder.bodySize < 0 || decoder.bodySize > MPUB_LIMITS.bodyBytesMax) return false;
        mpub.begin(decoder.bodySize);
        if (isStreamed(decoder)) decoder.streamBody();
        else decoder.acceptBody();
        break;
      case CommandEvent.BODY_PART: {
        const { bodyBuffer, bodyStart, bodyEnd } = decoder;
        pieces.push(...bodyBuffer.subarray(bodyStart, bodyEnd));
        if (decoder.bodyBytesLeft > 0) break;
        trace.push(`BODY ${pieces.join(",")} of ${describe(decoder.line)}`);
        pieces.length = 0;
        break;
      }
      case CommandEvent.BODY: {
        if (!isMpubFine(decoder, mpub, trace)) return false;
        const { bodyBuffer, bodyStart, bodyEnd } = decoder;
        trace.push(
          `BODY ${bodyBuffer.subarray(bodyStart, bodyEnd).join(",")} of ${describe(decoder.line)}`,
        );
        break;
      }
    }
  }
}

function isMpubFine(decoder: CommandDecoder, mpub: MpubScanner, trace: string[]): boolean {
  const { verb } = decoder.line;
  if (verb !== Verb.MPUB && verb !== Verb.SMPUB) return true;
  const { bodyBuffer, bodyStart, bodyEnd } = decoder;
  const refusal = mpub.check(bodyBuffer, bodyStart, bodyEnd);
  if (refusal !== undefined) trace.push(refusal.text);
  return refusal === undefined;
}

function isStreamed({ line: { verb }, bodySize }: CommandDecoder): boolean {
  return (verb === Verb.PUB || verb === Verb.DPUB || verb === Verb.SPUB) &&
    bodySize > STREAM_BYTES_MIN;
}

function hasBody(verb: Verb): boolean {
  return verb === Verb.IDENTIFY || verb === Verb.AUTH || verb === Verb.PUB ||
    verb === Verb.MPUB || verb === Verb.DPUB || verb === Verb.SPUB || verb === Verb.SMPUB;
}

function describe(line: CommandLine): string {
  const params: string[] = [];
  for (let index = 0; index < Math.min(line.paramCount, 4); index++) {
    params.push(`[${line.paramText(index)}]`);
  }
  return `${verbName(line.verb)} ${line.paramCount}:${params.join("")} "${line.text()}"`;
}

/** The view of one line, as a session gets it. */
export function lineOf(text: string | Uint8Array, protocol: "V1" | "V2" = "V2"): CommandLine {
  const line = typeof text === "string" ? utf8Bytes(text) : text;
  const magic = protocol === "V2" ? MAGIC_V2 : utf8Bytes("  V1");
  const decoder = new CommandDecoder({ protocol });
  const stream = new Uint8Array(magic.length + line.length + 1);
  stream.set(magic);
  stream.set(line, magic.length);
  stream[stream.length - 1] = 0x0a;
  decoder.feed(stream);
  if (decoder.next() !== CommandEvent.MAGIC || decoder.next() !== CommandEvent.LINE) {
    throw new Error(`Cannot make a line of "${utf8Text(line)}"`);
  }
  return decoder.line;
}

/** The error a check gave; throws when it gave none. */
export function refusalOf<T>(result: T): string {
  if (typeof result === "object" && result !== null && "text" in result) return String(result.text);
  throw new Error(`Expected a refusal, got ${String(result)}`);
}

/** Bytes of a hex dump. */
export function hexBytes(hex: string): Uint8Array {
  return Uint8Array.fromHex(hex.replaceAll(/\s/g, ""));
}
