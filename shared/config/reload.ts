/**
 * Reading the settings again while a service runs. Whatever is configured counts, by the same precedence
 * as at a start: what can change is applied, what cannot is named with the value in use and the one
 * that is configured.
 *
 * - A file that is wrong changes nothing at all, and neither do settings that are right by themselves
 *   and do not fit what cannot change.
 * - One at a time; whoever asks meanwhile waits for one more, all together.
 */
import { invariant } from "../runtime/mod.ts";
import type { Logger } from "../telemetry/mod.ts";
import { type LoadedSettings, type Origin, SettingsError } from "./load.ts";
import { type Declaration, type Settings, showValue, type ValuesOf } from "./setting.ts";

/** A setting whose value is another one now; those of secrets are masked. */
export interface SettingChange {
  readonly name: string;
  readonly before: string;
  readonly after: string;
  readonly origin: Origin;
}

/** What reading the settings again comes to. */
export interface ReloadPlan<S extends Settings> {
  /** The values to go on with. */
  readonly values: ValuesOf<S>;
  readonly keys: ReadonlySet<keyof S>;
  /** Those that are applied. */
  readonly changed: readonly SettingChange[];
  /** Those that are not: `before` stays in use. */
  readonly needsRestart: readonly SettingChange[];
}

/** What came of reading one more file again, such as a certificate. */
export interface FileOutcome {
  /** The setting that names it. */
  readonly setting: string;
  readonly path: string;
  readonly outcome: "changed" | "unchanged" | "refused";
  /** Why it was refused: then what was read before stays in use. */
  readonly reason?: string;
}

/** What a reload has done. */
export interface ReloadReport {
  readonly changed: readonly SettingChange[];
  readonly needsRestart: readonly SettingChange[];
  readonly files: readonly FileOutcome[];
}

/** What a {@linkcode Reloader} works on. */
export interface ReloadWorld<S extends Settings> {
  readonly declaration: Declaration<S>;
  /** Reads the settings again. Throws {@linkcode SettingsError}. */
  readonly read: () => LoadedSettings<S>;
  /** What is in use now. */
  readonly current: () => ValuesOf<S>;
  /** Has `values` be in use; `keys` are those that differ. */
  readonly apply: (values: ValuesOf<S>, keys: ReadonlySet<keyof S>) => void;
  /** Reads what else there is again. */
  readonly files?: () => Promise<readonly FileOutcome[]>;
  readonly logger: Logger;
}

/** Decides what changes. Throws {@linkcode SettingsError} when the outcome would break a rule. */
export function planReload<S extends Settings>(
  declaration: Declaration<S>,
  current: ValuesOf<S>,
  loaded: LoadedSettings<S>,
): ReloadPlan<S> {
  const values: Record<string, unknown> = { ...current };
  const keys = new Set<keyof S>();
  const changed: SettingChange[] = [];
  const needsRestart: SettingChange[] = [];
  for (const [key, one] of Object.entries(declaration.settings)) {
    const before = current[key];
    const after = loaded.values[key];
    if (one.kind.show(before) === one.kind.show(after)) continue;
    const change = {
      name: one.name,
      before: showValue(one, before),
      after: showValue(one, after),
      origin: loaded.origin(key),
    };
    if (!one.reload) {
      // What has no effect needs none.
      if (!one.accepted) needsRestart.push(change);
      continue;
    }
    changed.push(change);
    keys.add(key);
    values[key] = after;
  }
  const problems = declaration.relations(values as ValuesOf<S>);
  if (problems.length > 0) throw new SettingsError(declaration.program, problems);
  return { values: values as ValuesOf<S>, keys, changed, needsRestart };
}

/** Waits for a reload that nobody else waits for: what is wrong with the settings is in the log. */
export async function settleReload(reloading: Promise<ReloadReport>): Promise<void> {
  try {
    await reloading;
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
  }
}

/** See the module. */
export class Reloader<S extends Settings> {
  readonly #world: ReloadWorld<S>;
  readonly #logger: Logger;
  #running: Promise<ReloadReport> | null = null;
  #next: Promise<ReloadReport> | null = null;

  constructor(world: ReloadWorld<S>) {
    this.#world = world;
    this.#logger = world.logger.component("config").tellingEach();
  }

  /** Rejects with {@linkcode SettingsError}, and has said so in the log; nothing has changed then. */
  reload(): Promise<ReloadReport> {
    if (this.#running === null) return this.#begin();
    this.#next ??= this.#running.then(() => {}, () => {}).then(() => {
      this.#next = null;
      return this.#begin();
    });
    return this.#next;
  }

  #begin(): Promise<ReloadReport> {
    invariant(this.#running === null, "one reload at a time");
    const running = this.#reload().finally(() => {
      if (this.#running === running) this.#running = null;
    });
    this.#running = running;
    return running;
  }

  async #reload(): Promise<ReloadReport> {
    const { declaration, current, read, apply, files } = this.#world;
    let plan: ReloadPlan<S>;
    try {
      plan = planReload(declaration, current(), read());
    } catch (error) {
      if (!(error instanceof SettingsError)) throw error;
      const { problems } = error;
      this.#logger.error("The settings cannot be used; those before stay in use", { problems });
      throw error;
    }
    apply(plan.values, plan.keys);
    const { changed, needsRestart } = plan;
    for (const { name, before, after, origin } of changed) {
      this.#logger.info("A setting is another one now", { name, before, after, origin });
    }
    for (const { name, before, after } of needsRestart) {
      this.#logger.warn("A setting needs a restart", { name, in_use: before, configured: after });
    }
    const outcomes = await files?.() ?? [];
    this.#logger.info("Reloaded", {
      changed: changed.length,
      need_restart: needsRestart.length,
      files_changed: outcomes.filter(({ outcome }) => outcome === "changed").length,
      files_refused: outcomes.filter(({ outcome }) => outcome === "refused").length,
    });
    return { changed, needsRestart, files: outcomes };
  }
}
