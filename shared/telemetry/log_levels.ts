/**
 * How much is logged: one level for all, and levels of their own for parts of a service. Written
 * `info`, or `info,storage=debug,http=warn`; the level for all may be left out, which means info.
 */

/** From chatty to grave. At a level, lines of that level and graver ones are written. */
export const LOG_LEVELS = ["debug", "info", "warn", "error", "fatal"] as const;
/** One of {@linkcode LOG_LEVELS}. */
export type LogLevel = typeof LOG_LEVELS[number];

/**
 * The parts of services: who may do what (`auth`), settings and reloads (`config`), registration
 * (`discovery`), the HTTP doors (`http`), NSQ connections (`nsq`), statsd, the log and the disk
 * (`storage`), certificates (`tls`), topics and channels (`topics`).
 */
export const LOG_COMPONENTS = [
  "auth",
  "config",
  "discovery",
  "http",
  "nsq",
  "statsd",
  "storage",
  "tls",
  "topics",
] as const;
/** One of {@linkcode LOG_COMPONENTS}. */
export type LogComponent = typeof LOG_COMPONENTS[number];

/** What is to be logged. */
export interface LogLevelChoice {
  readonly base: LogLevel;
  /** Levels that differ from it. */
  readonly components: Readonly<Partial<Record<LogComponent, LogLevel>>>;
}

/** Reads `info,storage=debug`; undefined when it is not that. A part that is named twice is an error. */
export function parseLogLevels(text: string): LogLevelChoice | undefined {
  let base: LogLevel | undefined;
  const components: Partial<Record<LogComponent, LogLevel>> = {};
  for (const [index, part] of text.toLowerCase().split(",").entries()) {
    // Space only where people put it in a list; nsqd takes none around the word.
    const [name = "", word, ...rest] = (index === 0 ? part : part.trimStart()).split("=");
    if (word === undefined) {
      const level = LOG_LEVELS.find((one) => one === name);
      if (level === undefined || base !== undefined) return undefined;
      base = level;
      continue;
    }
    const component = LOG_COMPONENTS.find((one) => one === name);
    const level = LOG_LEVELS.find((one) => one === word);
    const isKnown = component !== undefined && level !== undefined && rest.length === 0;
    if (!isKnown || components[component] !== undefined) return undefined;
    components[component] = level;
  }
  return { base: base ?? "info", components };
}

/** The text that {@linkcode parseLogLevels} reads. */
export function showLogLevels({ base, components }: LogLevelChoice): string {
  const own = LOG_COMPONENTS.flatMap((name) => {
    const level = components[name];
    return level === undefined ? [] : [`${name}=${level}`];
  });
  return [base, ...own].join(",");
}

/** The levels in force. Who holds a threshold sees every change. */
export class LogLevels {
  #choice: LogLevelChoice;
  readonly #thresholds = new Map<LogComponent | null, { rank: number }>();

  constructor(level: LogLevel | LogLevelChoice) {
    this.#choice = typeof level === "string" ? { base: level, components: {} } : level;
  }

  get choice(): LogLevelChoice {
    return this.#choice;
  }

  set choice(choice: LogLevelChoice) {
    this.#choice = choice;
    for (const [component, threshold] of this.#thresholds) threshold.rank = this.#rankOf(component);
  }

  /** The rank of the least severe level that a component writes; null for what is no component. */
  thresholdOf(component: LogComponent | null): { readonly rank: number } {
    let threshold = this.#thresholds.get(component);
    if (threshold === undefined) {
      threshold = { rank: this.#rankOf(component) };
      this.#thresholds.set(component, threshold);
    }
    return threshold;
  }

  #rankOf(component: LogComponent | null): number {
    const { base, components } = this.#choice;
    return LOG_LEVELS.indexOf((component === null ? undefined : components[component]) ?? base);
  }
}
