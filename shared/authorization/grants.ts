/**
 * What somebody may do: scopes, each on topics and channels whose names match a pattern.
 *
 * - What concerns a topic as a whole (publishing, deleting it) is asked with the channel `""`, and
 *   what concerns a whole node (statistics, settings) with the topic `""` too. `*` and `.*` match
 *   both. NSQ has the first rule: a grant to publish needs a channel pattern that matches nothing.
 * - Nothing implies anything else: who may administrate may not read the statistics.
 */
import type { Pattern } from "./pattern.ts";

/** What can be allowed. */
export const SCOPES = ["publish", "consume", "read", "admin"] as const;
/** One of {@linkcode SCOPES}. */
export type Scope = typeof SCOPES[number];

/** Scopes on what matches one of `topics` and one of `channels`. */
export interface Grant {
  readonly scopes: readonly Scope[];
  readonly topics: readonly Pattern[];
  readonly channels: readonly Pattern[];
}

/** The most steps of all patterns that one answer, token or file entry may hold. */
export const GRANT_STEPS_MAX = 20_000;
/** The most grants of one of these. */
export const GRANTS_MAX = 1000;
/** The most patterns of one of these. */
export const GRANT_PATTERNS_MAX = 4000;

const STEP_BYTES = 128;
const GRANT_BYTES = 512;
/** Decisions remembered; then they are made again. */
const DECISIONS_MAX = 64;

/** The grants of one identity. */
export class Grants {
  readonly identity: string;
  readonly identityUrl: string;
  /** The memory that one more user of them takes, about, remembered decisions included. */
  readonly bytes: number;
  readonly #grants: readonly Grant[];
  readonly #decisions = new Map<string, boolean>();

  /** Grants that are `shared` by all who have them are kept anyway and take no memory for one more. */
  constructor(
    identity: string,
    identityUrl: string,
    grants: readonly Grant[],
    { shared = false }: { readonly shared?: boolean } = {},
  ) {
    this.identity = identity;
    this.identityUrl = identityUrl;
    this.bytes = shared ? 0 : bytesOf(grants);
    this.#grants = grants;
  }

  get count(): number {
    return this.#grants.length;
  }

  /** Whether `scope` is allowed; the names are valid ones or empty. */
  allows(scope: Scope, topic: string, channel: string): boolean {
    const key = `${scope} ${topic} ${channel}`;
    let isAllowed = this.#decisions.get(key);
    if (isAllowed === undefined) {
      isAllowed = this.#grants.some((grant) =>
        grant.scopes.includes(scope) &&
        grant.topics.some((pattern) => pattern.matches(topic)) &&
        grant.channels.some((pattern) => pattern.matches(channel))
      );
      if (this.#decisions.size >= DECISIONS_MAX) this.#decisions.clear();
      this.#decisions.set(key, isAllowed);
    }
    return isAllowed;
  }
}

function bytesOf(grants: readonly Grant[]): number {
  const patterns = new Set(grants.flatMap(({ topics, channels }) => [...topics, ...channels]));
  let steps = DECISIONS_MAX;
  for (const pattern of patterns) steps += pattern.steps;
  return STEP_BYTES * steps + GRANT_BYTES * (grants.length + 1);
}

/** Compiles patterns within the bounds of one set of grants, each of the same text once. */
export class PatternBook {
  readonly #compile: (source: string) => Pattern;
  readonly #patterns = new Map<string, Pattern>();
  #count = 0;
  #steps = 0;

  constructor(compile: (source: string) => Pattern) {
    this.#compile = compile;
  }

  /** Throws as `compile` does, and `RangeError` beyond the bounds. */
  pattern(source: string): Pattern {
    this.#count++;
    if (this.#count > GRANT_PATTERNS_MAX) {
      throw new RangeError(`There are more than ${GRANT_PATTERNS_MAX} patterns`);
    }
    let pattern = this.#patterns.get(source);
    if (pattern === undefined) {
      pattern = this.#compile(source);
      this.#steps += pattern.steps;
      if (this.#steps > GRANT_STEPS_MAX) {
        throw new RangeError(`The patterns have more than ${GRANT_STEPS_MAX} steps`);
      }
      this.#patterns.set(source, pattern);
    }
    return pattern;
  }
}
