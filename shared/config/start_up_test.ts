import assert from "node:assert/strict";
import { SimClock } from "../testing/mod.ts";
import { text } from "./kind.ts";
import { SettingsError } from "./load.ts";
import { logSettings } from "./log_settings.ts";
import { declareSettings, setting } from "./setting.ts";
import { startUp } from "./start_up.ts";

const DECLARATION = declareSettings("sluice-sample", {
  ...logSettings("Log", "[sample] "),
  dataPath: setting({ name: "data-path", kind: text("PATH"), default: ".", doc: "A folder." }),
});

function start(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const printed: string[] = [];
  const lines: string[] = [];
  const asked: string[] = [];
  const started = startUp(DECLARATION, {
    args,
    env: (name) => {
      asked.push(name);
      return env[name];
    },
    readFile: () => "",
    print: (line) => printed.push(line),
    log: (line) => lines.push(line),
    clock: new SimClock(),
  });
  return { started, printed, lines, asked };
}

Deno.test("startUp() throws what is wrong with the settings, and logs nothing", () => {
  assert.throws(() => start(["--data-pth=x"]), SettingsError);
});

Deno.test("startUp() answers --help and --version and starts nothing", () => {
  const help = start(["--help"]);
  assert.equal(help.started, null);
  assert.match(help.printed[0]!, /--data-path/);
  const version = start(["-version"]);
  assert.deepEqual([version.started, version.lines], [null, []]);
  assert.match(
    version.printed[0]!,
    /^sluice-sample v\d+\.\d+\.\d+ \(compatible with NSQ 1\.3\.0\)$/,
  );
});

Deno.test("startUp() logs the version and what is not the default, and reads only its own variables", () => {
  const { started, lines, asked } = start(["--log-prefix=[a] "], { SLUICE_DATA_PATH: "/d" });
  assert.equal(started?.values.dataPath, "/d");
  assert.equal(started?.origin("dataPath"), "env");
  assert.equal(lines.length, 3);
  assert.match(lines[0]!, /\[a\] sluice-sample v/);
  assert.match(lines.join("\n"), /name=data-path value=\/d origin=env/);
  assert.ok(asked.every((name) => name.startsWith("SLUICE_")));
  started?.logger.info("on");
  assert.match(lines.at(-1)!, /\[a\] on$/);
});

Deno.test("startUp() logs from the level that is set", () => {
  assert.deepEqual(start(["--log-level=error"]).lines, []);
});
