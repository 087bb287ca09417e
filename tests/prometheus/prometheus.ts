/**
 * Where Prometheus and promtool are, for tests with the real ones. They are not part of this repository;
 * in order: the folder named by `PROMETHEUS_BIN`; `PATH`; with `SLUICE_PROMETHEUS=1` Debian's package
 * is unpacked once, without installing anything, into `.cache/prometheus` of the workspace. Run as a
 * program, this does so ahead of the tests.
 *
 * Where they cannot be had, the reason is told; when they were asked for, that is an error.
 */
import { ROOT_PATH, runToEnd } from "../integration/process.ts";

/** The two programs by path, or why there are none. */
export type Programs =
  | { readonly prometheus: string; readonly promtool: string }
  | { readonly missing: string };

const CACHE_PATH = `${ROOT_PATH}.cache/prometheus`;
/** Downloads the package and takes the programs out of it, into the folder given. */
const UNPACK = `set -euo pipefail
mkdir -p "$1/package"
cd "$1/package"
apt-get download prometheus || { apt-get update && apt-get download prometheus; }
dpkg-deb --extract ./prometheus_*.deb .
mv usr/bin/prometheus usr/bin/promtool ..
cd ..
rm -r package`;

/** Finds the programs, unpacking them when asked to by the environment. */
export async function findPrometheus(): Promise<Programs> {
  const named = Deno.env.get("PROMETHEUS_BIN") ?? "";
  if (named !== "") {
    return programsIn([named]) ?? { missing: `${named} lacks some of the programs` };
  }
  const found = programsIn((Deno.env.get("PATH") ?? "").split(":")) ?? programsIn([CACHE_PATH]);
  if (found !== null) return found;
  if (Deno.env.get("SLUICE_PROMETHEUS") !== "1") {
    return {
      missing:
        "Prometheus is neither on PATH nor in PROMETHEUS_BIN, and SLUICE_PROMETHEUS=1 is not set",
    };
  }
  return await unpackPrometheus();
}

async function unpackPrometheus(): Promise<Programs> {
  // Made aside and renamed, so that an interrupted one is not taken for a whole one.
  const making = `${CACHE_PATH}.${Deno.pid}`;
  const { code, success } = await new Deno.Command("bash", {
    args: ["-c", UNPACK, "bash", making],
    stdin: "null",
    stdout: "inherit",
    stderr: "inherit",
  }).output();
  if (!success) throw new Error(`Cannot have Debian's package of Prometheus: ended with ${code}`);
  try {
    await Deno.rename(making, CACHE_PATH);
  } catch {
    // Another test has made it meanwhile.
    await Deno.remove(making, { recursive: true });
  }
  const programs = programsIn([CACHE_PATH]);
  if (programs === null) throw new Error(`Cannot find Prometheus in ${CACHE_PATH}`);
  return programs;
}

function programsIn(folders: readonly string[]): Programs | null {
  for (const folder of folders) {
    const [prometheus, promtool] = [`${folder}/prometheus`, `${folder}/promtool`];
    if (folder !== "" && isFile(prometheus) && isFile(promtool)) return { prometheus, promtool };
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
  const programs = await findPrometheus();
  if ("missing" in programs) console.log(`No Prometheus: ${programs.missing}`);
  else console.log((await runToEnd(programs.prometheus, ["--version"])).stdout);
}
