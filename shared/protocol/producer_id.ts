/**
 * The name of a producer that numbers its publishes: 16 bytes of its own choosing, best random ones,
 * on the wire as 32 hex digits of either case.
 */
import { invariant } from "../runtime/invariant.ts";

export const PRODUCER_ID_BYTES = 16;
/** Sequences are whole numbers from 0 to this. */
export const PRODUCER_SEQUENCE_MAX: number = Number.MAX_SAFE_INTEGER - 1;

const TEXT_REGEXP = /^[0-9a-fA-F]{32}$/;

/** The bytes of an id; null when the text is none. */
export function parseProducerId(text: string): Uint8Array | null {
  if (!TEXT_REGEXP.test(text)) return null;
  return Uint8Array.from(
    { length: PRODUCER_ID_BYTES },
    (_, index) => Number.parseInt(text.slice(2 * index, 2 * index + 2), 16),
  );
}

/** The text of an id, in small letters. */
export function producerIdText(id: Uint8Array): string {
  invariant(id.length === PRODUCER_ID_BYTES, "a producer id has 16 bytes");
  return Array.from(id, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
