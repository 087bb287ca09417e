/**
 * Where a file stands in the workspace, told from its path alone. Paths are relative to the
 * workspace root and use `/`; a file outside of it has no place and no rule applies to it.
 */

/** What a file is for; decides how much of the world it may touch. */
export type Role = "source" | "main" | "system" | "test" | "bench" | "tool" | "testing";

/** A file of the workspace. */
export interface Place {
  /** `broker/queue/channel.ts`. */
  readonly path: string;
  /** The first folder: `broker`. Empty for a file in the root. */
  readonly member: string;
  readonly role: Role;
}

const ROOT_PATH = decodeURIComponent(new URL("../../", import.meta.url).pathname);

/** The place of an absolute path, or `null` when it lies outside the workspace. */
export function placeOfFile(filename: string): Place | null {
  if (!filename.startsWith(ROOT_PATH)) return null;
  return placeOf(filename.slice(ROOT_PATH.length));
}

/** The place of a path relative to the workspace root. */
export function placeOf(path: string): Place {
  const slash = path.indexOf("/");
  return { path, member: slash < 0 ? "" : path.slice(0, slash), role: roleOf(path) };
}

function roleOf(path: string): Role {
  const name = path.slice(path.lastIndexOf("/") + 1);
  if (name.endsWith("_test.ts") || path.startsWith("tests/")) return "test";
  if (name.endsWith("_bench.ts") || path.startsWith("benches/")) return "bench";
  if (path.startsWith("tools/")) return "tool";
  if (path.startsWith("shared/testing/")) return "testing";
  if (/^shared\/runtime\/system[^/]*\.ts$/.test(path)) return "system";
  return name === "main.ts" ? "main" : "source";
}

/** Joins a relative import to the file it stands in; `null` when it climbs out of the workspace. */
export function resolveRelative(from: string, specifier: string): string | null {
  const parts = from.split("/").slice(0, -1);
  for (const part of specifier.split("/")) {
    if (part === "..") {
      if (parts.pop() === undefined) return null;
    } else if (part !== "." && part !== "") {
      parts.push(part);
    }
  }
  return parts.join("/");
}
