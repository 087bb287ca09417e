import assert from "node:assert/strict";
import { ZONES } from "./import_direction.ts";
import { REAL_TIME_FILES } from "./no_ambient.ts";
import { placeOf, resolveRelative } from "./place.ts";
import plugin from "./plugin.ts";

const ROOT_PATH = decodeURIComponent(new URL("../../", import.meta.url).pathname);

/** The texts that one rule reports, each as the source it points at. */
function found(rule: string, path: string, source: string): string[] {
  return Deno.lint.runPlugin(plugin, ROOT_PATH + path, source)
    .filter(({ id }) => id === `sluice/${rule}`)
    .map(({ range }) => source.slice(range[0], range[1]));
}

/** Asserts that the rule reports each of `bad`, once or more, and none of `good`. */
function judge(rule: string, path: string, bad: string[], good: string[]): void {
  for (const source of bad) {
    assert.notEqual(
      found(rule, path, source).length,
      0,
      `${rule} must report in ${path}: ${source}`,
    );
  }
  for (const source of good) {
    assert.deepEqual(found(rule, path, source), [], `${rule} must allow in ${path}: ${source}`);
  }
}

function importing(specifier: string): string {
  return `import { a } from "${specifier}";`;
}

/** Each row: a file, what it must not import, what it may. */
const DIRECTIONS: [path: string, refused: string[], allowed: string[]][] = [
  ["shared/runtime/clock.ts", ["../protocol/mod.ts", "../log/mod.ts", "./system.ts"], [
    "./disk.ts",
  ]],
  ["shared/runtime/system.ts", ["../telemetry/mod.ts"], ["./clock.ts", "./system_disk.ts"]],
  ["shared/protocol/frame.ts", [
    "../runtime/mod.ts",
    "../runtime/clock.ts",
    "../telemetry/mod.ts",
  ], ["../runtime/invariant.ts", "./names.ts"]],
  ["shared/http/server.ts", ["../log/mod.ts", "../runtime/clock.ts", "../testing/mod.ts"], [
    "../runtime/mod.ts",
    "../protocol/mod.ts",
    "../telemetry/mod.ts",
  ]],
  ["shared/log/block.ts", ["../protocol/mod.ts", "../config/mod.ts", "@sluice/shared/runtime"], [
    "../runtime/mod.ts",
    "../telemetry/mod.ts",
  ]],
  ["shared/log/block_test.ts", ["../runtime/clock.ts", "../../broker/main.ts"], [
    "../testing/mod.ts",
    "../protocol/mod.ts",
    "../runtime/system.ts",
    "node:assert/strict",
  ]],
  ["broker/storage/index.ts", [
    "../queue/channel.ts",
    "../broker.ts",
    "@sluice/shared/protocol",
    "@sluice/shared/http",
    "@sluice/shared/runtime/system",
    "@sluice/shared/testing",
    "../../shared/log/mod.ts",
  ], ["@sluice/shared/log", "@sluice/shared/runtime", "@sluice/shared/runtime/invariant", "hono"]],
  ["broker/queue/channel.ts", [
    "../server/session.ts",
    "../broker.ts",
    "@sluice/shared/log",
    "@sluice/shared/protocol",
  ], ["../storage/index.ts", "@sluice/shared/telemetry"]],
  ["broker/server/session.ts", [
    "../storage/index.ts",
    "../service.ts",
    "@sluice/shared/log",
    "@sluice/shared/config",
  ], [
    "../queue/channel.ts",
    "../broker.ts",
    "@sluice/shared/protocol",
    "@sluice/shared/http",
    "@sluice/shared/client",
  ]],
  ["broker/broker.ts", ["@sluice/discovery", "@sluice/shared/runtime/system"], [
    "./storage/index.ts",
    "./server/session.ts",
    "@sluice/shared/log",
  ]],
  ["broker/main.ts", ["@sluice/shared/testing", "@sluice/discovery/registry", "fast-check"], [
    "@sluice/shared/runtime/system",
    "./broker.ts",
  ]],
  ["discovery/registry.ts", ["@sluice/broker/queue", "npm:hono@4", "jsr:@std/assert", "nsqjs"], [
    "@sluice/shared/http",
    "./session.ts",
    "prom-client",
  ]],
  ["ctl/inspect.ts", ["@sluice/broker/storage/index", "@sluice/broker"], [
    "@sluice/broker/storage/format",
  ]],
  ["tests/crash/run_test.ts", ["../../broker/main.ts"], [
    "@sluice/broker/broker",
    "@sluice/shared/testing",
    "@sluice/shared/runtime/system",
    "nsqjs",
  ]],
  ["benches/publish_bench.ts", ["../shared/log/mod.ts"], ["@sluice/shared/testing"]],
  ["tools/up.ts", ["../shared/protocol/mod.ts", "@sluice/shared/testing"], [
    "@sluice/shared/protocol",
    "@sluice/broker/config",
  ]],
];

for (const [path, refused, allowed] of DIRECTIONS) {
  Deno.test(`import-direction keeps ${path} within its table row`, () => {
    judge("import-direction", path, refused.map(importing), allowed.map(importing));
  });
}

Deno.test("import-direction sees every way to import", () => {
  judge("import-direction", "broker/storage/index.ts", [
    `import "../queue/a.ts";`,
    `import * as a from "../queue/a.ts";`,
    `export * from "../queue/a.ts";`,
    `export { a } from "../queue/a.ts";`,
    `const a = await import("../queue/a.ts");`,
    `type A = import("../queue/a.ts").A;`,
    `import type { A } from "../queue/a.ts";`,
  ], [`export { a };`, `const a = await import(name);`]);
});

Deno.test("import-direction lets the queue see the protocol as types only", () => {
  judge("import-direction", "broker/queue/channel.ts", [
    `import { type A, b } from "@sluice/shared/protocol";`,
    `import "@sluice/shared/protocol";`,
    `export { a } from "@sluice/shared/protocol";`,
  ], [
    `import type { A } from "@sluice/shared/protocol";`,
    `import { type A, type B } from "@sluice/shared/protocol";`,
    `export type { A } from "@sluice/shared/protocol";`,
    `type A = import("@sluice/shared/protocol").A;`,
  ]);
});

Deno.test("import-direction has no row that lets one service into another, but ctl's format door", () => {
  const services = ["broker", "discovery", "gateway", "operator", "console", "ctl"];
  const crossings = ZONES.flatMap(({ under, mayImport }) =>
    mayImport.filter((target) => {
      const member = target.split("/")[0] ?? "";
      return services.includes(member) && !under.startsWith(`${member}/`);
    }).map((target) => `${under} -> ${target}`)
  );
  assert.deepEqual(crossings, ["ctl/ -> broker/storage/format"]);
});

const AMBIENT = [
  "Date.now();",
  "new Date();",
  "Date();",
  "const { now } = Date;",
  'Date["now"]();',
  "performance.now();",
  "setTimeout(f, 1);",
  "setTimeout(f, 0);",
  "setInterval(f, 1);",
  "const a = { setTimeout };",
  "function f(timer = setTimeout) {}",
  "Math.random();",
  "const { random } = Math;",
  "crypto.getRandomValues(a);",
  "crypto.randomUUID();",
  'Deno.readFile("a");',
  "let a: Deno.Conn;",
  'fetch("http://a");',
  "process.env.HOME;",
  "globalThis.Date.now();",
  "AbortSignal.timeout(1);",
  'new WebSocket("ws://a");',
  'import { readFile } from "node:fs/promises";',
  'import net from "node:net";',
  'import { setTimeout } from "node:timers/promises";',
  'export * from "node:os";',
  'await import("node:tls");',
  'import { randomBytes } from "node:crypto";',
  'import crypto from "node:crypto";',
  "import.meta.dirname;",
  "import.meta.filename;",
];

Deno.test("no-ambient keeps time, disk, network and randomness out of the core", () => {
  judge("no-ambient", "broker/queue/channel.ts", AMBIENT, [
    "new Date(ms); new Date(ms).toISOString(); Date.UTC(1); Date.parse(a);",
    "a instanceof Date; let b: Date;",
    "Math.floor(1); crypto.subtle.digest(a, b);",
    "queueMicrotask(f); clearTimeout(a);",
    "clock.setTimeout(f, 1); a.fetch(); a.process.b; a = { Date: 1, fetch() {} };",
    "interface A { fetch(a: string): void; process: number }",
    'import { createHash } from "node:crypto"; import { crc32 } from "node:zlib";',
    "import.meta.url;",
    "type F = (fetch: string) => void;",
    "AbortSignal.any([a]); new AbortController();",
  ]);
});

Deno.test("no-ambient lets main, system files, tests, benches and tools touch the world", () => {
  for (
    const path of [
      "broker/main.ts",
      "shared/runtime/system.ts",
      "shared/runtime/system_disk.ts",
      "shared/testing/fake_disk.ts",
      "broker/queue/channel_test.ts",
      "tests/crash/run.ts",
      "benches/publish_bench.ts",
      "tools/ok.ts",
    ]
  ) judge("no-ambient", path, [], AMBIENT);
  judge("no-ambient", "broker/system.ts", AMBIENT, []);
});

Deno.test("no-ambient does not mistake a local name for the global", () => {
  judge("no-ambient", "discovery/registry.ts", [
    "function f() { const fetch = 1; return fetch; } fetch(a);",
    "class A { process() { return process.pid; } }",
  ], [
    "function f(fetch: Fetch) { return () => fetch(a); }",
    "const f = ({ process, ...self }) => process(self);",
    'import { performance } from "./a.ts"; performance.now();',
    "class A { constructor(readonly process: P) { process.run(); } }",
    "for (const self of all) self.run();",
    "try { f(); } catch (self) { g(self); }",
  ]);
});

Deno.test("no-console leaves the console to main, tools, tests and benches", () => {
  const source = ["console.log(1);", "const { error } = console;"];
  judge("no-console", "shared/http/server.ts", source, ["f.console.log(1);"]);
  judge("no-console", "shared/runtime/system.ts", source, []);
  for (const path of ["broker/main.ts", "tools/ok.ts", "tests/a/b.ts", "benches/a_bench.ts"]) {
    judge("no-console", path, [], source);
  }
});

Deno.test("no-sleep makes tests wait for events, apart from helpers of real processes", () => {
  const sleeps = [
    "await new Promise((done) => setTimeout(done, 10));",
    "setTimeout(done, delayMs);",
    "setInterval(f, 5);",
    'import { setTimeout } from "node:timers/promises";',
    'import { setTimeout as sleep } from "node:timers/promises";',
    'import * as timers from "node:timers";',
  ];
  for (
    const path of [
      "broker/queue/channel_test.ts",
      "tests/integration/start_test.ts",
      "tools/a_test.ts",
    ]
  ) {
    judge("no-sleep", path, sleeps, [
      "await new Promise((done) => setTimeout(done, 0));",
      'import { setImmediate as turn } from "node:timers/promises";',
      "AbortSignal.timeout(5_000);",
      "await clock.sleep(10);",
    ]);
  }
  for (const path of REAL_TIME_FILES) judge("no-sleep", path, [], sleeps);
  judge("no-sleep", "benches/publish_bench.ts", [], sleeps);
});

Deno.test("no-test-only refuses only, and a skip or a sanitizer off without a reason", () => {
  judge("no-test-only", "broker/queue/channel_test.ts", [
    `Deno.test.only("a", f);`,
    `// because\nDeno.test.only("a", f);`,
    `Deno.test({ name: "a", only: true, fn });`,
    `Deno.test.ignore("a", f);`,
    `Deno.test("a", { ignore: true }, f);`,
    `Deno.test("a", { ignore: os !== "linux" }, f);`,
    `Deno.test({ name: "a", sanitizeOps: false, fn });`,
    `await t.step({ name: "a", ignore: true, fn });`,
    `// too far away\n\n\nDeno.test.ignore("a", f);`,
  ], [
    `Deno.test("a", f);`,
    `Deno.test({ name: "a", only: false, ignore: false, sanitizeOps: true, fn });`,
    `// The kernel of the build machines has no such call.\nDeno.test.ignore("a", f);`,
    `Deno.test("a", { ignore: !linux }, f); // only Linux can`,
    `parse({ only: true, ignore: true });`,
    `a.only; a.ignore;`,
  ]);
});

Deno.test("no-leftover refuses notes to come back and switched-off checks", () => {
  judge("no-leftover", "broker/broker.ts", [
    "// TODO: later",
    "/* FIXME */",
    "// deno-lint-ignore no-explicit-any",
    "// @ts-ignore",
    "/* @ts-expect-error */",
    "// deno-coverage-ignore-start",
  ], [
    "// A retry is up to the caller.",
    'const a = "TODO";',
    "// The reader may ignore what it does not know.",
  ]);
});

Deno.test("no-module-state finds what lives as long as the module", () => {
  const state = [
    "let a = 1;",
    "export let a = 1;",
    "var a = 1;",
    "const a = new Map();",
    "export const a: string[] = [];",
    "const a = new Set<string>();",
    "const a: Map<string, number> = new Map();",
    "const a: [], b: string[] = [];",
  ];
  const constants = [
    "const A = 1;",
    "const A = new Map([[1, 2]]);",
    "const A: readonly string[] = [];",
    "const A: ReadonlySet<string> = new Set();",
    "const A: Query = new Map();",
    "function f() { let a = 1; return a; }",
    "if (import.meta.main) { let a = 1; }",
  ];
  judge("no-module-state", "broker/broker.ts", state, constants);
  judge("no-module-state", "broker/broker_test.ts", [], state);
});

Deno.test("module-doc wants a doc comment before the first export", () => {
  judge("module-doc", "broker/broker.ts", [
    "export const a = 1;",
    "// not a doc\nexport const a = 1;",
    "export const a = 1;\n/** late */\nexport const b = 1;",
    `export * from "./a.ts";`,
    `import { run } from "./run.ts";\nawait run();`,
  ], [
    "/** Says it. */\nexport const a = 1;",
    `import { b } from "./b.ts";\n/** Says it – “naïve” 😀. */\nexport const a = b;`,
    `/** Says it. */\nimport { run } from "./run.ts";\nawait run();`,
    "",
  ]);
  judge("module-doc", "broker/broker_test.ts", [], ["export const a = 1;"]);
});

Deno.test("export-doc wants a doc comment on each exported class, function and interface", () => {
  const head = "/** Module. */\nexport const a = 1;\n";
  const bad = [
    "export class A {}",
    "export function a() {}",
    "export interface A {}",
    "export default class A {}",
    "// not a doc\nexport class A {}",
    "/** far */\nconst b = 1;\nexport class A {}",
    "export class BrokerPool {}",
  ].map((source) => head + source);
  judge("export-doc", "broker/broker.ts", bad, [
    head + "/** Says it – 😀. */\nexport class A {}",
    head + "/** Says it. */\n@sealed({ a: 1 })\nexport class A {}",
    head +
    "/** Says it. */\nexport function a(b: 1): 1;\nexport function a(b: 2): 2;\nexport function a(b: 3) { return b; }",
    head + "function b() {}\nexport { b };",
    "/** Module and interface in one. */\nexport interface A {}",
    // broker/broker.ts: the module's comment is that of the thing it is named after.
    head + "export class Broker {}",
    head + "export interface BrokerOptions {}",
    head + "export function broker() {}",
  ]);
  judge("export-doc", "tools/ok.ts", [], bad);
  judge("export-doc", "broker/broker_test.ts", [], bad);
});

Deno.test("private-name wants # instead of the keyword", () => {
  judge("private-name", "broker/broker.ts", [
    "class A { private b = 1; }",
    "class A { private b() {} }",
    "class A { private static b = 1; }",
    "class A { constructor(private b: number) {} }",
  ], [
    "class A { #b = 1; #c() {} }",
    "class A { private constructor(readonly b: number) {} }",
  ]);
});

Deno.test("top-level-function wants function at the top level only", () => {
  judge("top-level-function", "broker/broker.ts", [
    "const f = () => 1;",
    "export const f = async () => 1;",
    "const f = function () {};",
  ], [
    "function f() { const g = () => 1; return g; }",
    "const f = wrap(() => 1);",
  ]);
});

Deno.test("file-name wants snake_case", () => {
  for (const path of ["broker/commitLog.ts", "broker/commit-log.ts", "Broker/a.ts"]) {
    judge("file-name", path, ["f();"], []);
  }
  for (const path of ["broker/commit_log.ts", "broker/v2_test.ts", "a.ts", "shared/types.d.ts"]) {
    judge("file-name", path, [], ["f();"]);
  }
});

Deno.test("no rule applies outside the workspace", () => {
  const source = 'import "../queue/a.ts"; Date.now(); let a = 1; export class A { private b = 1; }';
  assert.deepEqual(Deno.lint.runPlugin(plugin, "/elsewhere/broker/storage/A.ts", source), []);
});

Deno.test("placeOf() and resolveRelative() read paths alone", () => {
  assert.deepEqual(placeOf("deno_setup.ts"), { path: "deno_setup.ts", member: "", role: "source" });
  assert.equal(placeOf("tools/lint/plugin_test.ts").role, "test");
  assert.equal(placeOf("shared/runtime/system_test.ts").role, "test");
  assert.equal(resolveRelative("a/b/c.ts", "../d/./e.ts"), "a/d/e.ts");
  assert.equal(resolveRelative("a/b.ts", "../../c.ts"), null);
});
