/**
 * The workspace on disk, for the tools: its root and its files. Paths are relative to the root and
 * use `/`. What tools, builds and runs leave behind is not part of it.
 */

/** The folder of the root deno.json, with a slash at its end. */
export const ROOT_PATH = decodeURIComponent(new URL("../", import.meta.url).pathname);

const SKIPPED: readonly string[] = [".git", ".sluice", "node_modules", "coverage", "vendor"];

/** All files whose name ends in `ending`, sorted. */
export function listFiles(ending: string, root: string = ROOT_PATH): string[] {
  const found: string[] = [];
  const walk = (folder: string) => {
    for (const entry of Deno.readDirSync(root + folder)) {
      if (SKIPPED.includes(entry.name)) continue;
      const path = folder + entry.name;
      if (entry.isDirectory) walk(`${path}/`);
      else if (path.endsWith(ending)) found.push(path);
    }
  };
  walk("");
  return found.sort();
}

/** Whether a file or folder is there. */
export function exists(path: string, root: string = ROOT_PATH): boolean {
  try {
    Deno.statSync(root + path);
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound || error instanceof Deno.errors.NotADirectory) {
      return false;
    }
    throw error;
  }
}

/** What the tools read of a deno.json. */
export interface DenoConfig {
  readonly workspace?: readonly string[];
  readonly exports?: string | Readonly<Record<string, string>>;
  readonly tasks?: Readonly<Record<string, string | { readonly command?: string }>>;
  readonly lint?: { readonly plugins?: readonly string[] };
}

/** Reads a deno.json. */
export function readConfig(path: string, root: string = ROOT_PATH): DenoConfig {
  return JSON.parse(Deno.readTextFileSync(root + path)) as DenoConfig;
}

/** The commands of the tasks, by name. */
export function taskCommands(config: DenoConfig): Map<string, string> {
  return new Map(
    Object.entries(config.tasks ?? {}).map(([name, task]) =>
      [name, typeof task === "string" ? task : task.command ?? ""] as const
    ),
  );
}
