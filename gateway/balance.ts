/**
 * Which broker a publish goes to.
 *
 * - `spread`: of two that are picked at random, the one with fewer bytes on their way.
 * - `owner-first`: the same among those that have the topic, or among all when none of those can
 *   take it: fewer connections for consumers, which need one to each owner.
 * - `hash`: always the same one for a topic, or for a key where there is one, as long as it can take
 *   it; when one goes, only what was its share moves.
 */
import { type Random, randomBelow } from "@sluice/shared/runtime";

export const AFFINITIES = ["spread", "owner-first", "hash"] as const;
export type Affinity = typeof AFFINITIES[number];

/** What is chosen from. */
export interface Candidate {
  readonly id: string;
  readonly outstandingBytes: number;
  hasTopic(topic: string): boolean;
}

/** The one to take, or null when there is none. */
export function chooseBroker<T extends Candidate>(
  candidates: readonly T[],
  affinity: Affinity,
  topic: string,
  key: string,
  random: Random,
): T | null {
  if (candidates.length <= 1) return candidates[0] ?? null;
  switch (affinity) {
    case "spread":
      return leastOfTwo(candidates, random);
    case "owner-first": {
      const owners = candidates.filter((candidate) => candidate.hasTopic(topic));
      return leastOfTwo(owners.length > 0 ? owners : candidates, random);
    }
    case "hash":
      return highestWeight(candidates, key === "" ? topic : `${topic}\n${key}`);
  }
}

function leastOfTwo<T extends Candidate>(candidates: readonly T[], random: Random): T {
  const count = candidates.length;
  const first = candidates[randomBelow(random, count)]!;
  if (count === 1) return first;
  let at = randomBelow(random, count - 1);
  if (candidates[at] === first) at = count - 1;
  const second = candidates[at]!;
  return second.outstandingBytes < first.outstandingBytes ? second : first;
}

/** Rendezvous hashing. */
function highestWeight<T extends Candidate>(candidates: readonly T[], key: string): T {
  let best = candidates[0]!;
  let bestWeight = -1;
  const seed = hashText(key, HASH_START);
  for (const candidate of candidates) {
    const weight = hashText(candidate.id, seed);
    if (weight > bestWeight) {
      best = candidate;
      bestWeight = weight;
    }
  }
  return best;
}

const HASH_START = 0x811c9dc5;

/** FNV-1a, and a last mix since its high bits say little of the last letters. */
function hashText(text: string, start: number): number {
  let hash = start;
  for (let at = 0; at < text.length; at++) {
    hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  }
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  hash = Math.imul(hash ^ (hash >>> 12), 0x297a2d39);
  return (hash ^ (hash >>> 15)) >>> 0;
}
