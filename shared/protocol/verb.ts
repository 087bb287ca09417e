/**
 * The verbs of both protocols as small integers. Verbs are case-sensitive, and each protocol knows
 * its own only: what the other one has is as unknown as any other word. SPUB and SMPUB are ours, the
 * others NSQ's.
 */
import { invariant } from "../runtime/invariant.ts";

/** Verbs of V2 (brokers) and of V1 (discovery). IDENTIFY is in both. */
export const Verb = {
  UNKNOWN: 0,
  IDENTIFY: 1,
  AUTH: 2,
  SUB: 3,
  RDY: 4,
  FIN: 5,
  REQ: 6,
  TOUCH: 7,
  PUB: 8,
  MPUB: 9,
  DPUB: 10,
  CLS: 11,
  NOP: 12,
  PING: 13,
  REGISTER: 14,
  UNREGISTER: 15,
  SPUB: 16,
  SMPUB: 17,
} as const;
export type Verb = typeof Verb[keyof typeof Verb];

/** The verbs that publish. */
export type PublishVerb =
  | typeof Verb.PUB
  | typeof Verb.MPUB
  | typeof Verb.DPUB
  | SequencedVerb;
/** The verbs that publish with a sequence, of a producer that IDENTIFY has named. */
export type SequencedVerb = typeof Verb.SPUB | typeof Verb.SMPUB;
/** The verbs that answer a delivered message. */
export type MessageVerb = typeof Verb.FIN | typeof Verb.REQ | typeof Verb.TOUCH;

const NAMES: readonly string[] = Object.keys(Verb);

/** The word of a verb, for error texts and metrics. */
export function verbName(verb: Verb): string {
  const name = NAMES[verb];
  invariant(name !== undefined, "every verb has a name");
  return name;
}

/** The V2 verb in `buffer[start, end)`. */
export function recognizeVerb(buffer: Uint8Array, start: number, end: number): Verb {
  switch (end - start) {
    case 3:
      switch ((buffer[start]! << 16) | (buffer[start + 1]! << 8) | buffer[start + 2]!) {
        case 0x505542:
          return Verb.PUB;
        case 0x46494e:
          return Verb.FIN;
        case 0x524459:
          return Verb.RDY;
        case 0x524551:
          return Verb.REQ;
        case 0x4e4f50:
          return Verb.NOP;
        case 0x535542:
          return Verb.SUB;
        case 0x434c53:
          return Verb.CLS;
        default:
          return Verb.UNKNOWN;
      }
    case 4:
      if (spells(buffer, start, "MPUB")) return Verb.MPUB;
      if (spells(buffer, start, "DPUB")) return Verb.DPUB;
      if (spells(buffer, start, "SPUB")) return Verb.SPUB;
      return spells(buffer, start, "AUTH") ? Verb.AUTH : Verb.UNKNOWN;
    case 5:
      if (spells(buffer, start, "SMPUB")) return Verb.SMPUB;
      return spells(buffer, start, "TOUCH") ? Verb.TOUCH : Verb.UNKNOWN;
    case 8:
      return spells(buffer, start, "IDENTIFY") ? Verb.IDENTIFY : Verb.UNKNOWN;
    default:
      return Verb.UNKNOWN;
  }
}

/** The V1 verb in `buffer[start, end)`. */
export function recognizeLookupVerb(buffer: Uint8Array, start: number, end: number): Verb {
  switch (end - start) {
    case 4:
      return spells(buffer, start, "PING") ? Verb.PING : Verb.UNKNOWN;
    case 8:
      if (spells(buffer, start, "REGISTER")) return Verb.REGISTER;
      return spells(buffer, start, "IDENTIFY") ? Verb.IDENTIFY : Verb.UNKNOWN;
    case 10:
      return spells(buffer, start, "UNREGISTER") ? Verb.UNREGISTER : Verb.UNKNOWN;
    default:
      return Verb.UNKNOWN;
  }
}

function spells(buffer: Uint8Array, start: number, word: string): boolean {
  for (let index = 0; index < word.length; index++) {
    if (buffer[start + index] !== word.charCodeAt(index)) return false;
  }
  return true;
}
