/**
 * The programs for comparisons: nsqd, and the load generators of the peers. In order: the folder named
 * by `NSQ_BIN`, `PATH`, and `.cache/bench` of the workspace, where they are built with Go from
 * `../shared/peers` beside it (`SHARED` names another place).
 */
export const BENCH_PROGRAMS = [
  "nsqd",
  "nsqload",
  "nsqlat",
  "bench_writer",
  "bench_reader",
] as const;
export type BenchProgram = typeof BENCH_PROGRAMS[number];
/** The folder of the peers that each load generator is built from. */
const SOURCES: Readonly<Partial<Record<BenchProgram, string>>> = { nsqload: "load", nsqlat: "lat" };

/** Paths of the programs; rejects when one can neither be found nor built. */
export async function benchPrograms(root: string): Promise<Record<BenchProgram, string>> {
  const cache = `${root}/.cache/bench`;
  const folders = [
    Deno.env.get("NSQ_BIN") ?? "",
    ...(Deno.env.get("PATH") ?? "").split(":"),
    cache,
  ];
  const peers = Deno.env.get("SHARED") ?? `${root}/../shared/peers`;
  const found: Partial<Record<BenchProgram, string>> = {};
  for (const program of BENCH_PROGRAMS) {
    found[program] = find(program, folders) ?? await build(program, peers, cache);
  }
  return found as Record<BenchProgram, string>;
}

async function build(program: BenchProgram, peers: string, cache: string): Promise<string> {
  console.error(`Building ${program} ...`);
  await Deno.mkdir(cache, { recursive: true });
  const source = SOURCES[program];
  if (source === undefined) {
    await run("bash", [`${peers}/kit/install-nsq.sh`, cache], ".");
  } else {
    await run("go", ["build", "-o", `${cache}/${program}`, "."], `${peers}/${source}`);
  }
  return `${cache}/${program}`;
}

async function run(program: string, args: readonly string[], cwd: string): Promise<void> {
  const { code } = await new Deno.Command(program, {
    args: [...args],
    cwd,
    stdin: "null",
    stdout: "inherit",
    stderr: "inherit",
  }).output();
  if (code !== 0) throw new Error(`Cannot build: ${program} ${args.join(" ")} ended with ${code}`);
}

function find(program: string, folders: readonly string[]): string | null {
  for (const folder of folders) {
    if (folder === "") continue;
    try {
      if (Deno.statSync(`${folder}/${program}`).isFile) return `${folder}/${program}`;
    } catch {
      // Not in this folder.
    }
  }
  return null;
}
