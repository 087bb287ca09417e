/**
 * Where the programs of NSQ itself are, for tests against them. They are not part of this repository;
 * in order: the folder named by `NSQ_BIN`; `PATH`; with `SLUICE_PEERS=1` they are built once, which
 * takes Go and half a minute, into `.cache/peers` of the workspace by the kit in `../shared/peers`
 * beside it (`SHARED` names another `../shared`). Run as a program, this builds them ahead of the tests.
 *
 * Where they cannot be had, the reason is told; a build that fails is an error.
 */
import { ROOT_PATH } from "./process.ts";

/** The programs the tests use. */
export const PEER_PROGRAMS = [
  "nsqd",
  "nsqlookupd",
  "nsqadmin",
  "nsq_tail",
  "nsq_to_file",
  "nsq_to_nsq",
  "to_nsq",
] as const;
export type PeerProgram = typeof PEER_PROGRAMS[number];

/** The programs by path, or why there are none. */
export type Peers =
  | { readonly paths: ReadonlyMap<PeerProgram, string> }
  | { readonly missing: string };

/** Where the kit of scripts around NSQ is, if it is. */
export const KIT_PATH = `${Deno.env.get("SHARED") ?? `${ROOT_PATH}../shared`}/peers/kit`;

const CACHE_PATH = `${ROOT_PATH}.cache/peers`;

/** Finds the programs, building them when asked to by the environment. */
export async function findPeers(): Promise<Peers> {
  const named = Deno.env.get("NSQ_BIN") ?? "";
  if (named !== "") {
    const paths = programsIn([named]);
    return paths === null ? { missing: `${named} lacks some of the programs` } : { paths };
  }
  const onPath = programsIn((Deno.env.get("PATH") ?? "").split(":"));
  if (onPath !== null) return { paths: onPath };
  const cached = programsIn([CACHE_PATH]);
  if (cached !== null) return { paths: cached };
  if (Deno.env.get("SLUICE_PEERS") !== "1") {
    return { missing: "NSQ is neither on PATH nor in NSQ_BIN, and SLUICE_PEERS=1 is not set" };
  }
  return await buildPeers();
}

async function buildPeers(): Promise<Peers> {
  const script = `${KIT_PATH}/install-nsq.sh`;
  if (!isFile(script)) return { missing: `there is no ${script}` };
  if (findProgram("go", (Deno.env.get("PATH") ?? "").split(":")) === null) {
    return { missing: "Go is not on PATH" };
  }
  // Built aside and renamed, so that an interrupted build is not taken for a whole one.
  const building = `${CACHE_PATH}.${Deno.pid}`;
  const { code } = await new Deno.Command("bash", {
    args: [script, building],
    stdin: "null",
    stdout: "inherit",
    stderr: "inherit",
  }).output();
  if (code !== 0) throw new Error(`Cannot build NSQ: ${script} ended with ${code}`);
  try {
    Deno.renameSync(building, CACHE_PATH);
  } catch {
    // Another test has built them meanwhile.
    Deno.removeSync(building, { recursive: true });
  }
  const paths = programsIn([CACHE_PATH]);
  if (paths === null) throw new Error(`Cannot find the programs of NSQ in ${CACHE_PATH}`);
  return { paths };
}

function programsIn(folders: readonly string[]): ReadonlyMap<PeerProgram, string> | null {
  const paths = new Map<PeerProgram, string>();
  for (const program of PEER_PROGRAMS) {
    const path = findProgram(program, folders);
    if (path === null) return null;
    paths.set(program, path);
  }
  return paths;
}

function findProgram(name: string, folders: readonly string[]): string | null {
  for (const folder of folders) {
    if (folder !== "" && isFile(`${folder}/${name}`)) return `${folder}/${name}`;
  }
  return null;
}

function isFile(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
}

if (import.meta.main) {
  const peers = await findPeers();
  console.log(
    "missing" in peers ? `No NSQ: ${peers.missing}` : [...peers.paths.values()].join("\n"),
  );
}
