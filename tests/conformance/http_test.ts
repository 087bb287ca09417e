/**
 * The scripts in `http_testdata` against our services, and against nsqd and nsqlookupd where there
 * are any (see ../integration/peers.ts). Each side has its answer in the script; where the two
 * differ, the script says why.
 */
import { deepStrictEqual as equal, match, ok } from "node:assert/strict";
import { findPeers } from "../integration/peers.ts";
import { HttpProcess, Service, TemporaryFolder } from "../integration/process.ts";
import { parseHttpScript, playHttpScript, type Side } from "./http_script.ts";

const FOLDER = new URL("./http_testdata/", import.meta.url);
const PROGRAMS = { nsqd: "broker", nsqlookupd: "discovery" } as const;
const LOOPBACK = [
  "--tcp-address=127.0.0.1:0",
  "--http-address=127.0.0.1:0",
  "--broadcast-address=127.0.0.1",
];

const peers = await findPeers();
if ("missing" in peers) console.log(`HTTP is not compared with NSQ: ${peers.missing}`);

const SCRIPTS = [...Deno.readDirSync(FOLDER)].map(({ name }) => {
  const program = name.startsWith("nsqlookupd") ? "nsqlookupd" : "nsqd";
  const script = parseHttpScript(Deno.readTextFileSync(new URL(name, FOLDER)));
  return { name, program, script } as const;
}).sort((a, b) => (a.name < b.name ? -1 : 1));

/** A service that has nothing yet, ours or NSQ's. */
async function start(
  program: keyof typeof PROGRAMS,
  side: Side,
  folder: string,
  flags: readonly string[],
): Promise<HttpProcess> {
  const data = program === "nsqd" ? [`--data-path=${folder}`, ...flags] : flags;
  if (side === "ours") return await Service.start(PROGRAMS[program], data);
  const path = "missing" in peers ? undefined : peers.paths.get(program);
  ok(path !== undefined, "the program is there");
  const daemon = new HttpProcess(program, path, [...LOOPBACK, ...data]);
  try {
    await daemon.ready();
    return daemon;
  } catch (error) {
    await daemon[Symbol.asyncDispose]();
    throw error;
  }
}

for (const { name, program, script } of SCRIPTS) {
  for (const side of ["ours", "theirs"] as const) {
    Deno.test({
      name: `HTTP of ${side === "ours" ? PROGRAMS[program] : program}: ${script.title} (${name})`,
      // The programs of NSQ are not everywhere; the reason is printed above.
      ignore: side === "theirs" && "missing" in peers,
      fn: async () => {
        await using folder = await TemporaryFolder.create();
        await using service = await start(program, side, folder.path, script.flags);
        const { httpPort, tcpPort } = service;
        equal((await playHttpScript(script, { side, httpPort, tcpPort })).join("\n"), "");
      },
    });
  }
}

Deno.test("every difference between the two is explained in its script", () => {
  const asked = SCRIPTS.flatMap(({ script }) => script.steps).filter((step) => step.kind === "ask");
  ok(asked.length > 100, "the scripts are read");
  for (const { line, answers } of asked) {
    if (answers.ours === answers.theirs) equal(answers.why, "", `line ${line}`);
    else match(answers.why, /\w+ \w+/, `line ${line}`);
  }
});
