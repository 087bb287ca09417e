import assert from "node:assert/strict";
import { address } from "./address.ts";
import { bytes } from "./bytes.ts";
import { helpText, settingsMarkdown } from "./describe.ts";
import { durationMs } from "./duration.ts";
import { boolean, choice, integer, list, text } from "./kind.ts";
import { loadSettings, SETTINGS_FILE_CHARACTERS_MAX, SettingsError } from "./load.ts";
import { configOption, declareSettings, environmentNames, setting } from "./setting.ts";

const SETTINGS = {
  dataPath: setting({ name: "data-path", kind: text("PATH"), default: ".", doc: "A folder." }),
  tcpAddress: setting({
    name: "tcp-address",
    kind: address(),
    default: "0.0.0.0:4150",
    doc: "Where clients connect.",
    group: "Network",
  }),
  peers: setting({
    name: "peer-address",
    kind: list(text()),
    default: [],
    file: "peers",
    doc: "Others.",
    group: "Network",
  }),
  timeoutMs: setting({
    name: "timeout",
    kind: durationMs({ min: 1 }),
    default: 60_000,
    doc: "A time.",
  }),
  timeoutMaxMs: setting({
    name: "timeout-max",
    kind: durationMs(),
    default: "15m",
    doc: "A bound.",
  }),
  sizeBytes: setting({ name: "size", kind: bytes(), default: "1MiB", doc: "A size." }),
  count: setting({ name: "count", kind: integer({ min: 0 }), default: 3, doc: "A count." }),
  eager: setting({ name: "eager", kind: boolean(), default: false, doc: "A switch." }),
  mode: setting({
    name: "mode",
    kind: choice(["off", "on"], { bare: "on" }),
    default: "off",
    doc: "A mode.",
  }),
  token: setting({
    name: "token",
    kind: integer({ min: 1000 }),
    default: 1000,
    secret: true,
    doc: "A secret number.",
  }),
  legacy: setting({
    name: "legacy",
    kind: integer(),
    default: 5,
    doc: "An old setting.",
    accepted: "there is nothing to set; the setting has no effect",
  }),
  codec: setting({
    name: "codec",
    kind: boolean(),
    default: false,
    doc: "A codec.",
    accepted: (value) => value ? "not offered yet" : undefined,
  }),
  tls: setting({
    name: "tls",
    kind: boolean(),
    default: false,
    doc: "TLS.",
    refused: "not supported yet by this version",
  }),
};

const DECLARATION = declareSettings("example", SETTINGS, {
  about: "An example.",
  relations: ({ timeoutMs, timeoutMaxMs }) =>
    timeoutMs <= timeoutMaxMs ? [] : ["timeout must not exceed timeout-max"],
});

function load(args: string[], env: Record<string, string> = {}, file = "") {
  const readFile = (path: string) => {
    assert.equal(path, "/etc/example.toml");
    return file;
  };
  const all = file === "" ? args : ["--config=/etc/example.toml", ...args];
  return loadSettings(DECLARATION, { args: all, env, readFile });
}

function problemsOf(
  args: string[],
  env: Record<string, string> = {},
  file = "",
): readonly string[] {
  try {
    load(args, env, file);
  } catch (error) {
    assert.ok(error instanceof SettingsError);
    return error.problems;
  }
  return [];
}

Deno.test("loadSettings() names the nearest known flag, variable and key for an unknown one", () => {
  assert.deepEqual(problemsOf(["--timout", "5s"], { SLUICE_DATA_PAHT: "x" }, "cout = 1"), [
    "unknown flag --timout; did you mean --timeout?",
    "unknown environment variable SLUICE_DATA_PAHT; did you mean SLUICE_DATA_PATH?",
    'unknown key "cout" in /etc/example.toml; did you mean count?',
  ]);
  assert.deepEqual(problemsOf(["--zzzzzzzz"]), [
    "unknown flag --zzzzzzzz; --help lists the settings",
  ]);
  assert.deepEqual(problemsOf(["--hepl"]), ["unknown flag --hepl; did you mean --help?"]);
});

Deno.test("loadSettings() suggests the key of a setting for its flag name", () => {
  assert.deepEqual(problemsOf([], {}, 'peer_address = ["a"]'), [
    'unknown key "peer_address" in /etc/example.toml; did you mean peers?',
  ]);
});

Deno.test("loadSettings() says what was given where and what is wanted, for all problems at once", () => {
  assert.deepEqual(
    problemsOf(["--count=-1"], { SLUICE_TIMEOUT: "soon" }, "size = 1.5\neager = []"),
    [
      'SLUICE_TIMEOUT: got "soon", want a duration such as 1m30s, 250ms or a number of milliseconds, ' +
      "at least 1ms",
      "size in /etc/example.toml: got 1.5, want a number of bytes such as 1048576 or 64MiB",
      '--count: got "-1", want a whole number, at least 0',
      'eager in /etc/example.toml: got "[]", want true or false',
    ],
  );
});

Deno.test("SettingsError lists each problem on a line of its own", () => {
  assert.throws(
    () => load(["--count=x", "--size=y"]),
    (error: unknown) =>
      error instanceof SettingsError &&
      error.message.split("\n").length === 3 &&
      error.message.startsWith('example: 2 settings are wrong:\n  --size: got "y"'),
  );
});

Deno.test("loadSettings() reports a wrong value even where a stronger source overrides it", () => {
  assert.equal(problemsOf(["--count=1"], { SLUICE_COUNT: "x" }).length, 1);
});

Deno.test("loadSettings() refuses words that are no flags and flags without their value", () => {
  assert.deepEqual(problemsOf(["run", "--", "-", "--=x"]), [
    '"run" is no flag; a setting is written --name=value',
    '"--" is no flag; a setting is written --name=value',
    '"-" is no flag; a setting is written --name=value',
    '"--=x" is no flag; a setting is written --name=value',
  ]);
  assert.deepEqual(problemsOf(["--count", "--eager", "-size"]), [
    "flag --count needs a value",
    "flag --size needs a value",
  ]);
  assert.deepEqual(problemsOf(["--eager", "false"]), [
    '"false" is no flag; a setting is written --name=value',
  ]);
  assert.deepEqual(problemsOf(["--help=maybe"]), ["flag --help takes no value"]);
});

Deno.test("loadSettings() reports a file it cannot read, parse or that is too long", () => {
  const failing = () =>
    loadSettings(DECLARATION, {
      args: ["--config=/nowhere"],
      env: {},
      readFile: () => {
        throw new Error("no such file");
      },
    });
  assert.throws(failing, /cannot read the settings file "\/nowhere": no such file/);
  const [syntax = ""] = problemsOf([], {}, "count = 1\ntoken = 'hidden");
  assert.match(syntax, /^\/etc\/example.toml, line 2, column \d+: /);
  assert.ok(!syntax.includes("hidden"), "a syntax error does not quote the file");
  const [long = ""] = problemsOf([], {}, "#".repeat(SETTINGS_FILE_CHARACTERS_MAX + 1));
  assert.match(long, /has more than 1048576 characters/);
  assert.deepEqual(problemsOf([], {}, "[count]\nx = 1"), [
    "count in /etc/example.toml: got a table, want a whole number, at least 0",
  ]);
  assert.equal(problemsOf([], {}, "__proto__ = 1").length, 1);
});

Deno.test("loadSettings() checks relations, but only between values that are right themselves", () => {
  assert.deepEqual(problemsOf(["--timeout=20m"]), ["timeout must not exceed timeout-max"]);
  assert.equal(problemsOf(["--timeout=20m", "--count=x"]).length, 1);
});

Deno.test("loadSettings() refuses a setting that asks for what does not exist, but not its default", () => {
  assert.deepEqual(problemsOf(["--tls"]), ["--tls: not supported yet by this version"]);
  assert.deepEqual(problemsOf([], { SLUICE_TLS: "1" }), [
    "SLUICE_TLS: not supported yet by this version",
  ]);
  assert.deepEqual(problemsOf(["--tls=false"]), []);
});

Deno.test("loadSettings() takes one notice from each given setting without effect", () => {
  assert.deepEqual(load([]).notices, []);
  assert.deepEqual(load(["--codec=false"]).notices, []);
  assert.deepEqual(load(["--legacy=1", "--legacy=2", "--codec"], { SLUICE_LEGACY: "3" }).notices, [
    "--legacy: there is nothing to set; the setting has no effect",
    "--codec: not offered yet",
  ]);
});

Deno.test("loadSettings() never shows a secret, in problems, listing or /config", () => {
  assert.deepEqual(problemsOf(["--token=77"]), [
    "--token: got ***, want a whole number, at least 1000",
  ]);
  const { values, listing } = load(["--token=123456"]);
  assert.equal(values.token, 123456);
  assert.deepEqual(listing().find(({ name }) => name === "token"), {
    name: "token",
    value: "***",
    origin: "flag",
  });
  assert.equal(configOption(DECLARATION, values, "token")?.body, "***");
});

Deno.test("loadSettings() lets file win over default, environment over file, flag over both", () => {
  const file = "count = 10";
  const env = { SLUICE_COUNT: "20" };
  const rows = [
    [load([]), 3, "default"],
    [load([], {}, file), 10, "file"],
    [load([], env, file), 20, "env"],
    [load(["--count=30"], env, file), 30, "flag"],
  ] as const;
  for (const [loaded, count, origin] of rows) {
    assert.equal(loaded.values.count, count);
    assert.equal(loaded.origin("count"), origin);
  }
});

Deno.test("loadSettings() takes one or two dashes, = or the next argument, and bare switches", () => {
  for (const args of [["-count", "7"], ["-count=7"], ["--count", "7"], ["--count=7"]]) {
    assert.equal(load(args).values.count, 7, args.join(" "));
  }
  const { values } = load(["--eager", "-mode", "--data-path", "-x", "--count", "1", "--count=2"]);
  assert.equal(values.eager, true);
  assert.equal(values.mode, "on");
  assert.equal(values.dataPath, "-x", "a value may begin with a dash");
  assert.equal(values.count, 2, "the last of repeated flags counts");
  assert.equal(load(["--eager=false"]).values.eager, false);
  assert.equal(load(["--data-path=a=b"]).values.dataPath, "a=b");
});

Deno.test("loadSettings() gathers a list from repeated flags and commas, in order", () => {
  assert.deepEqual(load(["--peer-address=a,b", "--peer-address", "c"]).values.peers, [
    "a",
    "b",
    "c",
  ]);
  assert.deepEqual(load([], { SLUICE_PEER_ADDRESS: "a, b" }).values.peers, ["a", "b"]);
  assert.deepEqual(load([], { SLUICE_PEER_ADDRESS: "" }, 'peers = ["a"]').values.peers, []);
  assert.deepEqual(load([], {}, 'peers = ["a", "b"]').values.peers, ["a", "b"]);
});

Deno.test("loadSettings() reads the file that the environment names, unless a flag names one", () => {
  const read: string[] = [];
  const readFile = (path: string) => {
    read.push(path);
    return "count = 4";
  };
  const env = { SLUICE_CONFIG: "/a" };
  assert.equal(loadSettings(DECLARATION, { args: [], env, readFile }).values.count, 4);
  loadSettings(DECLARATION, { args: ["-config", "/b"], env, readFile });
  assert.deepEqual(read, ["/a", "/b"]);
});

Deno.test("loadSettings() does not take Kubernetes service variables for settings", () => {
  const env = {
    SLUICE_BROKER_SERVICE_HOST: "10.0.0.1",
    SLUICE_BROKER_SERVICE_PORT: "4150",
    SLUICE_BROKER_SERVICE_PORT_TCP: "4150",
    SLUICE_BROKER_PORT: "tcp://10.0.0.1:4150",
    SLUICE_BROKER_PORT_4150_TCP: "tcp://10.0.0.1:4150",
    SLUICE_BROKER_PORT_4150_TCP_ADDR: "10.0.0.1",
    HOME: "/root",
  };
  assert.deepEqual(problemsOf([], env), []);
  assert.equal(problemsOf([], { SLUICE_BROKER_PORT: "4150" }).length, 1);
});

Deno.test("loadSettings() answers help and version before it looks at anything else", () => {
  const broken = { SLUICE_COUNT: "x" };
  assert.equal(load(["--help", "--nonsense"], broken).request, "help");
  assert.equal(load(["-h"], broken).request, "help");
  assert.equal(load(["-version"], broken).request, "version");
  assert.equal(load(["--version=false"]).request, "run");
  assert.equal(load(["--help"]).values.count, 3);
});

Deno.test("configOption() answers by file key, and not by any other name", () => {
  const { values } = load(["--peer-address=a", "--timeout=1m"]);
  assert.deepEqual(configOption(DECLARATION, values, "peers"), { body: '["a"]', json: true });
  assert.deepEqual(configOption(DECLARATION, values, "timeout"), {
    body: "60000000000",
    json: true,
  });
  assert.deepEqual(configOption(DECLARATION, values, "data_path"), { body: ".", json: false });
  assert.equal(configOption(DECLARATION, values, "peer_address"), undefined);
  assert.equal(configOption(DECLARATION, values, "toString"), undefined);
});

Deno.test("declareSettings() does not take two settings of one name or a wrong default", () => {
  const one = () => setting({ name: "one", kind: integer(), default: 1, doc: "One." });
  assert.throws(() => declareSettings("p", { a: one(), b: one() }), /setting names differ/);
  const wrong = { name: "wrong", kind: integer({ min: 5 }), default: 1, doc: "Wrong." };
  assert.throws(() => setting(wrong), /the default of wrong/);
  assert.throws(() => setting({ ...wrong, default: 5, name: "help" }), /not reserved/);
  assert.throws(() => setting({ ...wrong, default: 5, name: "Wrong" }), /kebab-case/);
});

Deno.test("environmentNames() holds every variable the program reads", () => {
  const names = environmentNames(DECLARATION);
  assert.ok(names.includes("SLUICE_DATA_PATH") && names.includes("SLUICE_CONFIG"));
  assert.equal(names.length, Object.keys(SETTINGS).length + 1);
});

Deno.test("helpText() shows each setting with default, variable and text, within the line", () => {
  const help = helpText(DECLARATION);
  assert.match(help, /^An example\.\n\nUsage: example \[--setting=value \.\.\.\]\n/);
  assert.ok(help.includes(
    "\nNetwork\n  --tcp-address=HOST:PORT\n      Where clients connect.\n" +
      "      default 0.0.0.0:4150   env SLUICE_TCP_ADDRESS\n",
  ));
  assert.ok(help.includes("--eager[=true|false]"));
  assert.ok(help.includes("\n  --legacy, --codec\n"), "settings without effect are only named");
  assert.ok(help.split("\n").every((line) => line.length <= 92));
  for (const { name } of Object.values(SETTINGS)) assert.ok(help.includes(`--${name}`), name);
});

Deno.test("settingsMarkdown() has a row for each setting and escapes what would split a cell", () => {
  const markdown = settingsMarkdown(DECLARATION);
  assert.ok(markdown.includes(
    "| `--eager[=true\\|false]` | `SLUICE_EAGER` | `eager` | `false` |  | A switch. |",
  ));
  assert.ok(markdown.includes("| `peers` | none |  | Others. |"));
  assert.equal(markdown.match(/^\| `--/gm)?.length, Object.keys(SETTINGS).length);
});
