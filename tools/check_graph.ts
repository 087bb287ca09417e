/**
 * Checks the graph of imports over all TypeScript files: no cycles, types included; every import
 * resolves; no dead file, that is one that nothing we run or export leads to; and no file that
 * keeps the linter out. Deno itself resolves the imports, so what is checked is what would run.
 */
import { exists, listFiles, readConfig, ROOT_PATH, taskCommands } from "./workspace.ts";

/** Each file with the files it imports, all relative to the workspace root. */
export type Graph = ReadonlyMap<string, readonly string[]>;

/** The cycles of a graph: for each knot of files that reach each other, one way around it. */
export function findCycles(graph: Graph): string[][] {
  const importers = reverse(graph);
  const seen = new Set<string>();
  const ways: string[][] = [];
  for (const start of graph.keys()) {
    if (seen.has(start)) continue;
    const knot = reach(graph, [start]).intersection(reach(importers, [start]));
    for (const file of knot) seen.add(file);
    if (knot.size > 1 || graph.get(start)?.includes(start) === true) {
      ways.push(wayAround(graph, start));
    }
  }
  return ways;
}

function reverse(graph: Graph): Graph {
  const importers = new Map<string, string[]>();
  for (const [file, targets] of graph) {
    for (const target of targets) {
      const list = importers.get(target);
      if (list === undefined) importers.set(target, [file]);
      else list.push(file);
    }
  }
  return importers;
}

/** The shortest way from a file of a cycle back to itself; both ends are that file. */
function wayAround(graph: Graph, start: string): string[] {
  const from = new Map<string, string>();
  const queue = [start];
  for (let file = queue.shift(); file !== undefined; file = queue.shift()) {
    for (const next of graph.get(file) ?? []) {
      if (next === start) {
        const way = [start];
        for (let at = file; at !== start; at = from.get(at) ?? start) way.unshift(at);
        return [start, ...way];
      }
      if (from.has(next)) continue;
      from.set(next, file);
      queue.push(next);
    }
  }
  return [start];
}

/** The files that the entries lead to, themselves included. */
export function reach(graph: Graph, entries: Iterable<string>): Set<string> {
  const reached = new Set<string>();
  const queue = [...entries];
  for (let file = queue.pop(); file !== undefined; file = queue.pop()) {
    if (reached.has(file)) continue;
    reached.add(file);
    queue.push(...graph.get(file) ?? []);
  }
  return reached;
}

/** What people, tasks, scripts and other projects start at. */
export interface Entries {
  /** Files that the `exports` of the members name. */
  readonly exported: readonly string[];
  /** Files that tasks, the lint settings and the CI script name. */
  readonly named: readonly string[];
}

/** Whether production code may be found here; the rest serves tests and benches. */
function isProduction(path: string): boolean {
  return !/^(?:tests|benches|tools|shared\/testing)\//.test(path) && !isTest(path);
}

function isTest(path: string): boolean {
  return /_(?:test|bench)\.ts$/.test(path);
}

/** Files beside the sources that only tests use say so in their name. */
function isTestHelper(path: string): boolean {
  return /_test_[a-z_]+\.ts$|(?:^|\/)testdata\//.test(path);
}

/** Problems of a graph, one sentence each. */
export function checkGraph(graph: Graph, entries: Entries): string[] {
  const problems = findCycles(graph).map((way) => `cycle: ${way.join(" -> ")}`);
  const files = [...graph.keys()];
  const started = files.filter((file) => file.endsWith("/main.ts") || file === "main.ts");
  const shipped = reach(graph, [...started, ...entries.exported, ...entries.named]);
  const tried = reach(graph, files.filter(isTest));
  for (const file of files) {
    if (shipped.has(file) || isTest(file)) continue;
    if (!tried.has(file)) problems.push(`dead file: nothing leads to ${file}`);
    else if (isProduction(file) && !isTestHelper(file)) {
      problems.push(`dead file: only tests lead to ${file}`);
    }
  }
  return problems;
}

/** Files started by path instead of imported: `new URL("./child.ts", import.meta.url)`. */
export function findStarted(text: string): string[] {
  return [...text.matchAll(/new URL\(\s*"(\.[^"]+\.ts)",\s*import\.meta\.url/g)]
    .flatMap((match) => match[1] ?? []);
}

/** The TypeScript files that a command line or script names. */
export function findNamed(text: string): string[] {
  return [...text.matchAll(/(?:^|[\s"'=])(?:\.\/)?([\w./-]+\.ts)\b/g)]
    .flatMap((match) => match[1] ?? []);
}

/** Whether a source tells the linter to stay out of the whole file. */
export function keepsLinterOut(text: string): boolean {
  return /^\s*\/[/*]+\s*deno-lint-ignore-file\b/m.test(text);
}

interface InfoModule {
  readonly specifier: string;
  readonly error?: string;
  readonly dependencies?: readonly {
    readonly specifier: string;
    readonly code?: { readonly specifier?: string; readonly error?: string };
    readonly type?: { readonly specifier?: string; readonly error?: string };
  }[];
}

/** Asks Deno for the imports of all files at once. */
async function resolveImports(
  files: readonly string[],
): Promise<{ graph: Map<string, string[]>; problems: string[] }> {
  const root = `file://${encodeURI(ROOT_PATH)}`;
  const all = await Deno.makeTempFile({ prefix: "sluice_graph_", suffix: ".ts" });
  try {
    await Deno.writeTextFile(
      all,
      files.map((file) => `import ${JSON.stringify(root + encodeURI(file))};\n`).join(""),
    );
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["info", "--json", "--config", `${ROOT_PATH}deno.json`, all],
      cwd: ROOT_PATH,
    }).output();
    if (code !== 0) throw new Error(`Cannot read the graph: ${new TextDecoder().decode(stderr)}`);
    const { modules } = JSON.parse(new TextDecoder().decode(stdout)) as { modules: InfoModule[] };
    const graph = new Map<string, string[]>();
    const problems: string[] = [];
    const pathOf = (url: string) => url.startsWith(root) ? decodeURI(url.slice(root.length)) : null;
    for (const { specifier, error, dependencies = [] } of modules) {
      const path = pathOf(specifier);
      if (path === null || path.startsWith("node_modules/")) continue;
      if (error !== undefined) problems.push(`${path}: ${error}`);
      const targets = new Set<string>();
      for (const dependency of dependencies) {
        const { code, type } = dependency;
        const broken = code?.error ?? type?.error;
        if (broken !== undefined) problems.push(`${path}: ${broken}`);
        for (const url of [code?.specifier, type?.specifier]) {
          const target = url === undefined ? null : pathOf(url);
          if (target !== null && !target.startsWith("node_modules/")) targets.add(target);
        }
      }
      graph.set(path, [...targets]);
    }
    return { graph, problems };
  } finally {
    await Deno.remove(all);
  }
}

function readEntries(): Entries {
  const root = readConfig("deno.json");
  const exported = (root.workspace ?? []).flatMap((folder) => {
    const member = folder.replace(/^\.\//, "").replace(/\/$/, "");
    const { exports } = readConfig(`${member}/deno.json`);
    const targets = typeof exports === "string" ? [exports] : Object.values(exports ?? {});
    return targets.map((target) => `${member}/${target.replace(/^\.\//, "")}`);
  });
  const texts = [...taskCommands(root).values(), ...(root.lint?.plugins ?? [])];
  if (exists(".ci/run")) texts.push(Deno.readTextFileSync(`${ROOT_PATH}.ci/run`));
  return { exported, named: texts.flatMap(findNamed) };
}

/** Checks the workspace; the problems found, one sentence each. */
export async function checkWorkspaceGraph(): Promise<{ problems: string[]; summary: string }> {
  const files = listFiles(".ts");
  const { graph, problems } = await resolveImports(files);
  for (const file of files) {
    const text = Deno.readTextFileSync(ROOT_PATH + file);
    if (keepsLinterOut(text)) problems.push(`${file}: keeps the linter out of the whole file`);
    const folder = file.slice(0, file.lastIndexOf("/") + 1);
    const started = findStarted(text)
      .map((path) => new URL(path, `file:///${folder}`).pathname.slice(1))
      .filter((path) => graph.has(path));
    graph.set(file, [...graph.get(file) ?? [], ...started]);
  }
  problems.push(...checkGraph(graph, readEntries()));
  const edges = [...graph.values()].reduce((sum, targets) => sum + targets.length, 0);
  return { problems, summary: `${graph.size} files, ${edges} imports` };
}

if (import.meta.main) {
  const { problems, summary } = await checkWorkspaceGraph();
  for (const problem of problems) console.error(problem);
  console.log(`${summary}, ${problems.length} problems`);
  if (problems.length > 0) Deno.exit(1);
}
