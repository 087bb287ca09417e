/**
 * Any flags, environment and settings file, for broker and discovery: settings to run with, or an error
 * that names what is wrong with which of them. An input is a line for each flag or variable, then a line
 * `---`, then the file.
 */
import { equal, ok } from "node:assert/strict";
import { brokerSettings } from "@sluice/broker/config";
import { discoverySettings } from "@sluice/discovery/config";
import {
  configOption,
  type Declaration,
  loadSettings,
  type Setting,
  type Settings,
  SettingsError,
} from "@sluice/shared/config";
import { fuzz, type SeededRandom } from "@sluice/shared/testing";

const DECLARATIONS: readonly Declaration<Settings>[] = [
  brokerSettings("host"),
  discoverySettings("host"),
];
const ALL = DECLARATIONS.flatMap(({ settings }) => Object.values(settings));
const PATH = "/settings.toml";
/** What a problem may say instead of naming a setting. */
const NAMELESS_REGEXP = /^(?:"|unknown |the settings file|cannot read)|is no flag|config/;

/** TOML of every type, and texts that are nearly values. */
const VALUES = [
  '""',
  '"x"',
  '"1"',
  '"-1"',
  '"auto"',
  '"tls1.3"',
  '"true"',
  '"5m"',
  '"127.0.0.1:4150"',
  '"unix:///x"',
  '"[::1]:1"',
  '"a,b"',
  "true",
  "0",
  "-1",
  "1.5",
  "inf",
  "nan",
  "9007199254740993",
  "9223372036854775807",
  "1979-05-27",
  "1979-05-27T07:32:00Z",
  "07:32:00",
  "[]",
  "[1, 2]",
  '["a", ["b"]]',
  '["127.0.0.1:4160"]',
  "{}",
  "{ x = 1 }",
  '"\\u0000"',
  `"${"x".repeat(5000)}"`,
];

fuzz({
  name: "settings",
  corpus: new URL("corpus/settings/", import.meta.url),
  words: [
    ...VALUES,
    ...ALL.map((one) => one.file),
    "\n---\n",
    "=",
    "[table]\n",
    "__proto__ = 1\n",
    "--",
  ],
  fresh,
  cases: 800,
  check: (input) => {
    const [head = "", file] = new TextDecoder().decode(input).split("\n---\n");
    const lines = head.split("\n");
    const env = Object.fromEntries(
      lines.filter((line) => line.startsWith("SLUICE_")).map((line) => line.split("=", 2)),
    );
    const args = lines.filter((line) => !line.startsWith("SLUICE_") && line !== "");
    if (file !== undefined) args.push(`--config=${PATH}`);
    for (const declaration of DECLARATIONS) check(declaration, args, env, file ?? "");
  },
});

function check(
  declaration: Declaration<Settings>,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  file: string,
): void {
  try {
    const loaded = loadSettings(declaration, { args, env, readFile: () => file });
    equal(loaded.listing().length, Object.keys(declaration.settings).length);
    for (const one of Object.values(declaration.settings)) {
      const option = configOption(declaration, loaded.values, one.file);
      ok(option !== undefined);
      if (option.json) JSON.parse(option.body);
    }
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    for (const problem of error.problems) {
      ok(problem.length < 2_000, `a problem in a line: ${problem.slice(0, 200)}`);
      const names = Object.values(declaration.settings);
      const isNamed = problem.includes(PATH) || NAMELESS_REGEXP.test(problem) ||
        names.some(({ name, environment }) =>
          problem.includes(name) || problem.includes(environment)
        );
      ok(isNamed, `a problem that names nothing: ${problem}`);
    }
  }
}

function fresh(random: SeededRandom): Uint8Array {
  const lines: string[] = [];
  const file: string[] = [];
  for (let count = random.between(1, 5); count > 0; count--) {
    const one: Setting<unknown> = random.pick(ALL);
    const value = random.pick(VALUES);
    const text = value.replace(/^"|"$/g, "");
    switch (random.below(3)) {
      case 0:
        lines.push(`--${one.name}${random.pick(["=", "\n"])}${text}`);
        break;
      case 1:
        lines.push(`${one.environment}=${text}`);
        break;
      default:
        file.push(`${one.file} = ${value}`);
    }
  }
  return new TextEncoder().encode([...lines, "---", ...file, ""].join("\n"));
}
