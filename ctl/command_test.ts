import { SimClock, SimDisk } from "@sluice/shared/testing";
import assert from "node:assert/strict";
import { type CommandGroup, runCommandLine } from "./command.ts";

/** A tree with one command that says what it was given. */
const ROOT: CommandGroup = {
  name: "tool",
  summary: "A tool.",
  commands: [{
    name: "things",
    summary: "About things.",
    commands: [{
      name: "show",
      summary: "Shows a thing.",
      positionals: ["THING"],
      options: {
        loud: { help: "louder" },
        count: { value: "N", help: "how often" },
      },
      description: ["It shows it."],
      examples: [["things show it", "show it"]],
      run(input, world) {
        const count = input.integer("count", 9);
        const given = [
          input.positional(0),
          input.flag("loud"),
          input.text("count"),
          count,
        ];
        world.out(new TextEncoder().encode(JSON.stringify(given)));
        return Promise.resolve(0);
      },
    }],
  }],
};

async function runTool(
  ...args: string[]
): Promise<{ code: number; out: string; err: string }> {
  let out = "";
  let err = "";
  const code = await runCommandLine(ROOT, args, {
    disk: new SimDisk(),
    clock: new SimClock(),
    out: (bytes) => out += new TextDecoder().decode(bytes),
    err: (text) => err += text,
    errIsTerminal: false,
  });
  return { code, out, err };
}

Deno.test("runCommandLine() gives a command its arguments and options, in any order", async () => {
  const { code, out, err } = await runTool(
    "things",
    "show",
    "--count=7",
    "it",
    "--loud",
  );
  assert.deepEqual([code, out, err], [0, `["it",true,"7",7]`, ""]);
  assert.equal(
    (await runTool("things", "show", "it")).out,
    `["it",false,null,null]`,
  );
});

Deno.test("runCommandLine() refuses what it does not understand with 2 and says where help is", async () => {
  for (
    const [args, reason] of [
      [["thing"], `tool: there is no command "thing"`],
      [["things", "hide"], `tool things: there is no command "hide"`],
      [["things", "show"], "tool things show: THING is missing"],
      [
        ["things", "show", "a", "b"],
        `tool things show: "b" is one argument too many`,
      ],
      [
        ["things", "show", "a", "--quiet"],
        "tool things show: Unknown option '--quiet'",
      ],
      [["things", "show", "a", "--count"], "tool things show: Option '--count"],
      [
        ["things", "show", "a", "--count=-1"],
        "tool things show: --count takes an integer",
      ],
      [
        ["things", "show", "a", "--count=10"],
        "tool things show: --count takes an integer",
      ],
      [
        ["things", "show", "a", "--count="],
        "tool things show: --count takes an integer",
      ],
    ] as const
  ) {
    const { code, out, err } = await runTool(...args);
    assert.equal(code, 2, reason);
    assert.equal(out, "");
    assert.ok(err.startsWith(reason), err);
    assert.match(err, /\nTry "tool.* --help"\.\n$/);
  }
});

Deno.test("runCommandLine() gives a command that takes them any number of further arguments", async () => {
  const given: string[][] = [];
  const group: CommandGroup = {
    name: "tool",
    summary: "A tool.",
    commands: [{
      name: "drop",
      summary: "Drops things.",
      positionals: [],
      rest: "THING",
      options: {},
      description: [],
      examples: [],
      run: (input) => {
        given.push([...input.positionals]);
        return Promise.resolve(0);
      },
    }],
  };
  let out = "";
  const world = {
    disk: new SimDisk(),
    clock: new SimClock(),
    out: (bytes: Uint8Array) => out += new TextDecoder().decode(bytes),
    err: () => {},
    errIsTerminal: false,
  };
  for (const args of [[], ["a"], ["a", "b", "c"], ["--help"]]) {
    assert.equal(await runCommandLine(group, ["drop", ...args], world), 0);
  }
  assert.deepEqual(given, [[], ["a"], ["a", "b", "c"]]);
  assert.match(out, /Usage: tool drop \[THING \.\.\.\] \[OPTION \.\.\.\]/);
});

Deno.test("runCommandLine() helps at every level, and is no success without a command", async () => {
  const top = await runTool("--help");
  assert.match(
    top.out,
    /Usage: tool COMMAND \.\.\.[\s\S]*things {2}About things\./,
  );
  assert.match((await runTool("things", "-h")).out, /show {2}Shows a thing\./);
  const command = await runTool("things", "show", "--help");
  assert.equal(command.code, 0);
  assert.match(command.out, /Usage: tool things show THING/);
  assert.match(command.out, /--count N {2}how often/);
  assert.match(command.out, /# show it\n {2}tool things show it/);
  const none = await runTool("things");
  assert.deepEqual([none.code, none.out], [2, ""]);
  assert.match(none.err, /^About things\./);
});
