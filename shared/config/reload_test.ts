import assert from "node:assert/strict";
import { Logger } from "../telemetry/mod.ts";
import { integer, list, text } from "./kind.ts";
import { loadSettings, SettingsError } from "./load.ts";
import { planReload, Reloader, type ReloadWorld } from "./reload.ts";
import { declareSettings, setting, type ValuesOf } from "./setting.ts";

const DECLARATION = declareSettings("sluice-sample", {
  low: setting({ name: "low", kind: integer(), default: 1, doc: "A bound.", reload: true }),
  high: setting({ name: "high", kind: integer(), default: 10, doc: "A bound." }),
  peers: setting({ name: "peers", kind: list(text()), default: [], doc: "Others.", reload: true }),
  token: setting({
    name: "token",
    kind: text(),
    default: "",
    doc: "A.",
    secret: true,
    reload: true,
  }),
  old: setting({ name: "old", kind: integer(), default: 0, doc: "None.", accepted: "no effect" }),
}, { relations: ({ low, high }) => low > high ? ["low must not exceed high"] : [] });

type Sample = typeof DECLARATION.settings;

class World {
  file = "";
  env: Record<string, string> = {};
  args = ["--config=/f"];
  readonly lines: string[] = [];
  readonly applied: string[][] = [];
  values: ValuesOf<Sample> = this.load().values;
  filesRead: (() => void) | null = null;
  readonly reloader = new Reloader(this.world());

  load() {
    return loadSettings(DECLARATION, {
      args: this.args,
      env: this.env,
      readFile: () => this.file,
    });
  }

  world(): ReloadWorld<Sample> {
    return {
      declaration: DECLARATION,
      read: () => this.load(),
      current: () => this.values,
      apply: (values, keys) => {
        this.values = values;
        this.applied.push([...keys]);
      },
      files: () => {
        const done = [{ setting: "cert", path: "/c", outcome: "changed" as const }];
        if (this.filesRead !== null) return Promise.resolve(done);
        return new Promise((resolve) => this.filesRead = () => resolve(done));
      },
      logger: new Logger({ clock: { wallMs: () => 0 }, sink: (line) => this.lines.push(line) }),
    };
  }
}

Deno.test("planReload() applies what can change, and names what needs a restart with both values", () => {
  const world = new World();
  world.file = 'low = 2\nhigh = 20\npeers = ["a", "b"]\nold = 3\n';
  const plan = planReload(DECLARATION, world.values, world.load());
  assert.deepEqual(plan.values, { low: 2, high: 10, peers: ["a", "b"], token: "", old: 0 });
  assert.deepEqual(plan.changed, [
    { name: "low", before: "1", after: "2", origin: "file" },
    { name: "peers", before: "", after: "a,b", origin: "file" },
  ]);
  assert.deepEqual(plan.needsRestart, [
    { name: "high", before: "10", after: "20", origin: "file" },
  ]);
  assert.deepEqual([...plan.keys], ["low", "peers"]);
});

Deno.test("planReload() keeps precedence: a flag and the environment win over a changed file", () => {
  const world = new World();
  world.args.push("--low=3");
  world.env = { SLUICE_PEERS: "env" };
  world.values = world.load().values;
  world.file = 'low = 5\npeers = "file"\n';
  assert.deepEqual([...planReload(DECLARATION, world.values, world.load()).keys], []);
});

Deno.test("planReload() refuses what does not fit a value that stays until a restart", () => {
  const world = new World();
  world.file = "low = 15\nhigh = 20\n";
  assert.throws(
    () => planReload(DECLARATION, world.values, world.load()),
    (error) => error instanceof SettingsError && error.problems[0] === "low must not exceed high",
  );
});

Deno.test("planReload() takes back a value that is configured no more, and masks secrets", () => {
  const world = new World();
  world.file = 'low = 2\ntoken = "hunter2"\n';
  world.values = planReload(DECLARATION, world.values, world.load()).values;
  world.file = 'token = "hunter3"\n';
  const { changed } = planReload(DECLARATION, world.values, world.load());
  assert.deepEqual(changed, [
    { name: "low", before: "2", after: "1", origin: "default" },
    { name: "token", before: "***", after: "***", origin: "file" },
  ]);
});

Deno.test("a file that is wrong changes nothing and reads no other file, and the log says why", async () => {
  const world = new World();
  for (const file of ["low = 2\npeers = 5\n", "low = 2\nlwo = 1\n", "low = \n"]) {
    world.file = file;
    await assert.rejects(world.reloader.reload(), SettingsError);
    assert.deepEqual([world.applied, world.filesRead], [[], null]);
    assert.match(
      world.lines.pop() ?? "",
      /ERROR The settings cannot be used.*component=config.*\/f/,
    );
  }
});

Deno.test("reloads come one at a time; those who ask meanwhile share one more", async () => {
  const world = new World();
  world.file = "low = 2\nhigh = 3\n";
  const first = world.reloader.reload();
  world.file = "low = 4\n";
  const second = world.reloader.reload();
  assert.equal(world.reloader.reload(), second);
  await Promise.resolve();
  assert.deepEqual(world.applied, [["low"]]);
  world.filesRead?.();
  assert.deepEqual((await first).changed.map(({ after }) => after), ["2"]);
  assert.deepEqual((await second).changed.map(({ after }) => after), ["4"]);
  assert.deepEqual((await second).files, [{ setting: "cert", path: "/c", outcome: "changed" }]);
  assert.deepEqual(world.lines.map((line) => line.slice(25)), [
    "INFO  A setting is another one now component=config name=low before=1 after=2 origin=file",
    "WARN  A setting needs a restart component=config name=high in_use=10 configured=3",
    "INFO  Reloaded component=config changed=1 need_restart=1 files_changed=1 files_refused=0",
    "INFO  A setting is another one now component=config name=low before=2 after=4 origin=file",
    "INFO  Reloaded component=config changed=1 need_restart=0 files_changed=1 files_refused=0",
  ]);
  world.file = "low = 5\n";
  assert.equal((await world.reloader.reload()).changed.length, 1, "and then there is a next one");
});
