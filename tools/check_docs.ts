/**
 * Checks the Markdown files: links and their anchors lead somewhere, named tasks and paths exist,
 * code fences are closed, a table that says what each of its rows is shown by names tests, nothing points at one machine or registry, and the changelog has its
 * heads. How the text is written is nobody's business here.
 */
import { exists, listFiles, readConfig, ROOT_PATH, taskCommands } from "./workspace.ts";

/** A Markdown file, taken apart. */
export interface Page {
  readonly path: string;
  /** Lines outside of code fences; the others are empty. Line numbers hold. */
  readonly prose: readonly string[];
  readonly lines: readonly string[];
  readonly anchors: ReadonlySet<string>;
  /** The line of a code fence that is never closed, from 1, or 0. */
  readonly openFence: number;
}

/** What a page may refer to. */
export interface World {
  readonly pages: ReadonlyMap<string, Page>;
  readonly tasks: ReadonlySet<string>;
  /** The folders in the root, by which a path in backticks is told from other text. */
  readonly folders: ReadonlySet<string>;
  exists(path: string): boolean;
  /** The tests at a path, a file or a folder, as text; empty when there are none. */
  testsAt(path: string): string;
}

/** Takes a Markdown text apart. */
export function parsePage(path: string, text: string): Page {
  const lines = text.split("\n");
  const prose: string[] = [];
  let fence: { readonly mark: string; readonly line: number } | null = null;
  for (const [index, line] of lines.entries()) {
    const mark = /^\s*(?:>\s*)*(`{3,}|~{3,})(.*)$/.exec(line);
    const opens = fence === null && mark !== null && !(mark[2] ?? "").includes("`");
    const closes = fence !== null && mark !== null && (mark[2] ?? "").trim() === "" &&
      (mark[1] ?? "").startsWith(fence.mark);
    if (opens) fence = { mark: mark[1] ?? "", line: index + 1 };
    prose.push(fence === null ? line : "");
    if (closes) fence = null;
  }
  return { path, lines, prose, anchors: anchorsOf(prose), openFence: fence?.line ?? 0 };
}

/** The anchors that a viewer makes from headings, and those written as HTML. */
function anchorsOf(prose: readonly string[]): Set<string> {
  const anchors = new Set<string>();
  for (const line of prose) {
    for (const [, name] of line.matchAll(/<a\s+(?:id|name)="([^"]+)"/g)) anchors.add(name ?? "");
    const heading = /^#{1,6}\s+(.+?)\s*#*$/.exec(line)?.[1];
    if (heading === undefined) continue;
    const slug = slugOf(heading);
    let unique = slug;
    for (let count = 1; anchors.has(unique); count++) unique = `${slug}-${count}`;
    anchors.add(unique);
  }
  return anchors;
}

/** The anchor of a heading: lower case, punctuation left out, a dash for each space. */
export function slugOf(heading: string): string {
  return heading
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\p{M} _-]/gu, "")
    .replaceAll(" ", "-");
}

const MACHINE_PATH_REGEXP = /(?<![\w.$}/~-])\/(?:work|root|home|tmp|Users)\b/;
const REGISTRY_REGEXP =
  /\b(?:registry\.(?:npmjs\.org|yarnpkg\.com)|npm\.jsr\.io|proxy\.golang\.org|(?:artifactory|nexus|verdaccio)\.[\w-]+\.\w+)\b/;

/** The problems of a page, each as `path:line: what`. */
export function checkPage(page: Page, world: World): string[] {
  const problems: string[] = [];
  const report = (index: number, what: string) =>
    problems.push(`${page.path}:${index + 1}: ${what}`);
  if (page.openFence > 0) report(page.openFence - 1, "the code fence is never closed");
  for (const [index, line] of page.prose.entries()) {
    for (const target of linksOf(line)) {
      const problem = checkLink(page, target, world);
      if (problem !== null) report(index, problem);
    }
    for (const path of pathsOf(line, world.folders)) {
      if (!world.exists(path)) report(index, `\`${path}\` does not exist`);
    }
  }
  for (const [index, what] of checkProofs(page, world)) report(index, what);
  for (const [index, line] of page.lines.entries()) {
    for (const [, name = ""] of line.matchAll(/\bdeno@?\S* task ([a-z][\w:-]*)/g)) {
      if (!world.tasks.has(name)) report(index, `there is no task "${name}"`);
    }
    const machine = MACHINE_PATH_REGEXP.exec(line);
    if (machine !== null) report(index, `"${machine[0]}" is a path of one machine`);
    const registry = REGISTRY_REGEXP.exec(line);
    if (registry !== null) report(index, `"${registry[0]}" is the name of a registry`);
  }
  return problems;
}

/** The head of the last column of a table that names the tests of what its rows say. */
const PROOF_HEAD = "Shown by";

/** Each row of such a table names tests, and what it quotes is in one of their names. */
function* checkProofs({ prose }: Page, world: World): Generator<[index: number, what: string]> {
  let isProven = false;
  for (const [index, line] of prose.entries()) {
    const cells = line.startsWith("|") ? line.split("|").slice(1, -1) : [];
    const last = cells.at(-1)?.trim();
    if (last === undefined) isProven = false;
    else if (last === PROOF_HEAD) isProven = true;
    else if (isProven && !/^-+$/.test(last)) {
      const texts = pathsOf(last, world.folders).map((path) =>
        [path, world.testsAt(path)] as const
      );
      if (texts.length === 0) yield [index, "the row names no test"];
      for (const [path, text] of texts) if (text === "") yield [index, `\`${path}\` has no tests`];
      for (const [, name = ""] of last.matchAll(/"([^"]+)"/g)) {
        if (!texts.some(([, text]) => text.includes(name))) yield [index, `no test is "${name}"`];
      }
    }
  }
}

/** The targets of inline links, images and link definitions. Code is not searched. */
function linksOf(line: string): string[] {
  const text = line.replaceAll(/(`+)(?:(?!\1).)*\1/g, (code) => "`".repeat(code.length));
  const targets = [...text.matchAll(/\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)/g)];
  const definition = /^\s{0,3}\[[^\]]+\]:\s*<?([^\s>]+)/.exec(text);
  if (definition !== null) targets.push(definition as RegExpExecArray);
  return targets.flatMap(([, target]) => target ?? []);
}

function checkLink(page: Page, target: string, world: World): string | null {
  if (/^[a-z][a-z0-9+.-]*:/i.test(target)) return null;
  if (target.startsWith("/")) return `the link "${target}" is not relative`;
  const [file = "", anchor = ""] = target.split("#", 2);
  let path = page.path;
  if (file !== "") {
    const url = new URL(file, `root:///a/b/c/${page.path}`);
    if (!url.pathname.startsWith("/a/b/c/")) return `the link "${target}" leaves the project`;
    path = decodeURIComponent(url.pathname.slice("/a/b/c/".length)).replace(/\/$/, "");
    if (path !== "" && !world.exists(path)) return `the link "${target}" leads nowhere`;
  }
  if (anchor === "" || (file !== "" && !path.endsWith(".md"))) return null;
  if (world.pages.get(path)?.anchors.has(decodeURIComponent(anchor)) === true) return null;
  return `the link "${target}" names an anchor that is not there`;
}

/** Code in backticks that is the path of something in the project, by its first folder. */
function pathsOf(line: string, folders: ReadonlySet<string>): string[] {
  return [...line.matchAll(/(?<!`)`([^`\s]+)`(?!`)/g)].flatMap(([, code = ""]) => {
    const path = code.replace(/^\.\//, "").replace(/:\d+(?::\d+)?$/, "").replace(/\/$/, "");
    if (!/^[\w.@-]+(?:\/[\w.@-]+)+$/.test(path)) return [];
    return folders.has(path.slice(0, path.indexOf("/"))) ? [path] : [];
  });
}

const CHANGE_GROUPS = ["Upgrading", "Safety and performance", "Features", "Fixes"];

/** The problems of the changelog's heads: the newest is Unreleased, and groups have known names. */
export function checkChangelog(page: Page): string[] {
  const problems: string[] = [];
  const report = (index: number, what: string) =>
    problems.push(`${page.path}:${index + 1}: ${what}`);
  let releases = 0;
  for (const [index, line] of page.prose.entries()) {
    const [, level = "", text = ""] = /^(#{2,3})\s+(.+?)\s*$/.exec(line) ?? [];
    if (level === "##") {
      releases++;
      const unreleased = /^\[?Unreleased\]?$/.test(text);
      if (releases === 1 && !unreleased) report(index, `the first head must be "Unreleased"`);
      if (releases > 1 && !/^\[?v?\d+\.\d+\.\d+\S*\]? - \d{4}-\d\d-\d\d$/.test(text)) {
        report(index, `a release is written "1.2.3 - 2026-01-31", not "${text}"`);
      }
    } else if (level === "###" && !CHANGE_GROUPS.includes(text)) {
      report(index, `"${text}" is none of ${CHANGE_GROUPS.join(", ")}`);
    }
  }
  if (releases === 0) report(0, `there is no head "Unreleased"`);
  return problems;
}

/** Checks all Markdown files of the workspace; the problems found, one line each. */
export function checkWorkspaceDocs(): { problems: string[]; summary: string } {
  const pages = new Map(
    listFiles(".md").map((path) =>
      [path, parsePage(path, Deno.readTextFileSync(ROOT_PATH + path))] as const
    ),
  );
  const folders = new Set<string>();
  for (const entry of Deno.readDirSync(ROOT_PATH)) if (entry.isDirectory) folders.add(entry.name);
  const world: World = {
    pages,
    folders,
    tasks: new Set(taskCommands(readConfig("deno.json")).keys()),
    exists,
    testsAt,
  };
  const problems = [...pages.values()].flatMap((page) => checkPage(page, world));
  for (const path of ["README.md", "CHANGELOG.md"]) {
    if (!pages.has(path)) problems.push(`${path} is missing`);
  }
  const changelog = pages.get("CHANGELOG.md");
  if (changelog !== undefined) problems.push(...checkChangelog(changelog));
  return { problems, summary: `${pages.size} pages` };
}

function testsAt(path: string): string {
  if (!exists(path)) return "";
  const tests = path.endsWith("_test.ts") ? [path] : testsIn(path);
  return tests.map((test) => Deno.readTextFileSync(ROOT_PATH + test)).join("\n");
}

function testsIn(path: string): string[] {
  if (!Deno.statSync(ROOT_PATH + path).isDirectory) return [];
  return listFiles("_test.ts", `${ROOT_PATH}${path}/`).map((name) => `${path}/${name}`);
}

if (import.meta.main) {
  const { problems, summary } = checkWorkspaceDocs();
  for (const problem of problems) console.error(problem);
  console.log(`${summary}, ${problems.length} problems`);
  if (problems.length > 0) Deno.exit(1);
}
