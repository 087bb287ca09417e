/**
 * `no-ambient`: time, disk, network, randomness, the environment and the console of the process are
 * parameters. They may be touched by shared/runtime/system*.ts, a `main.ts`, tools, tests and
 * benches only, so that everything else runs simulated, from a seed.
 *
 * `no-console` and `no-sleep` are of the same kind: logs go through the logger, and a test waits
 * for an event, not for the clock.
 */
import { type Place, placeOfFile } from "./place.ts";
import { parentOf, watchGlobals } from "./scope.ts";

/** Globals that are banned however they are used, each with what to do instead. */
const AMBIENT: ReadonlyMap<string, string> = new Map([
  ["Deno", "take a Disk, Network or setting as a parameter"],
  ["process", "take what you need from the environment as a parameter"],
  ["performance", "take a Clock and use monoMs()"],
  ["setTimeout", "take a Clock and use setTimer() or sleep()"],
  ["setInterval", "take a Clock and use setTimer()"],
  ["setImmediate", "take a Clock, or use queueMicrotask()"],
  ["fetch", "take the function as a parameter"],
  ["WebSocket", "take a Network or Connection as a parameter"],
  ["EventSource", "take a Network as a parameter"],
  ["Worker", "start it in main.ts and pass it in"],
  ["BroadcastChannel", "pass events in as a parameter"],
  ["localStorage", "take a Disk as a parameter"],
  ["sessionStorage", "take a Disk as a parameter"],
  ["navigator", "take the value as a parameter"],
  ["alert", "use the logger"],
  ["confirm", "use the logger"],
  ["prompt", "use the logger"],
  ["globalThis", "name the global itself, or take it as a parameter"],
  ["window", "name the global itself, or take it as a parameter"],
  ["self", "name the global itself, or take it as a parameter"],
]);

/** Globals of which only some members are ambient; any use that is not a plain member is, too. */
const AMBIENT_MEMBERS: ReadonlyMap<string, { isPure(member: string): boolean; instead: string }> =
  new Map([
    ["Date", {
      isPure: (member) => member !== "now",
      instead: "take a Clock and use wallMs()",
    }],
    ["Math", {
      isPure: (member) => member !== "random",
      instead: "take a Random",
    }],
    ["crypto", {
      isPure: (member) => member === "subtle",
      instead: "take a Random",
    }],
    ["AbortSignal", {
      isPure: (member) => member !== "timeout",
      instead: "take a Clock and abort from setTimer()",
    }],
    ["Temporal", {
      isPure: (member) => member !== "Now",
      instead: "take a Clock",
    }],
  ]);

/** Built-in modules that neither do I/O nor read the clock. Every other one is banned. */
const PURE_BUILTINS: ReadonlySet<string> = new Set([
  "node:assert",
  "node:assert/strict",
  "node:async_hooks",
  "node:buffer",
  "node:crypto",
  "node:diagnostics_channel",
  "node:events",
  "node:path",
  "node:path/posix",
  "node:querystring",
  "node:stream",
  "node:string_decoder",
  "node:url",
  "node:util",
  "node:zlib",
]);
/** What of node:crypto is a source of randomness. */
const RANDOM_IMPORT = /^(?:random|getRandomValues|generate|webcrypto|prng|pseudoRandom|default$)/;

/** Where a test may let real time pass: it waits for real processes there. */
export const REAL_TIME_FILES: readonly string[] = [
  "tests/integration/process.ts",
  "tests/integration/wait.ts",
];

/** Whether a file may touch the world. `testing` fakes it, and a few fakes are real underneath. */
function isFree(place: Place): boolean {
  return place.role !== "source";
}

/** The rule. */
export const noAmbient: Deno.lint.Rule = {
  create(context) {
    const place = placeOfFile(context.filename);
    if (place === null || isFree(place)) return {};
    const names = new Set([...AMBIENT.keys(), ...AMBIENT_MEMBERS.keys()]);
    const uses = watchGlobals(names, ({ name, node }) => {
      const hint = AMBIENT.get(name) ?? ambientMember(name, node);
      if (hint === null) return;
      const parent = parentOf(node);
      const shown = parent?.type === "MemberExpression" ? parent : node;
      context.report({
        node: shown,
        message: `"${context.sourceCode.getText(shown)}" reaches out of the module`,
        hint,
      });
    });
    const checkModule = (node: Deno.lint.Node, source: unknown) => {
      if (typeof source !== "string" || !source.startsWith("node:")) return;
      if (PURE_BUILTINS.has(source)) return;
      context.report({
        node,
        message: `"${source}" reaches out of the module`,
        hint: "take a seam of shared/runtime as a parameter",
      });
    };
    return {
      ...uses,
      ImportDeclaration(node) {
        uses.ImportDeclaration?.(node);
        checkModule(node, node.source.value);
        if (node.source.value !== "node:crypto") return;
        for (const specifier of node.specifiers) {
          const imported = specifier.type === "ImportSpecifier"
            ? nameOf(specifier.imported)
            : "default";
          if (!RANDOM_IMPORT.test(imported)) continue;
          context.report({
            node: specifier,
            message: `"${imported}" of node:crypto is randomness`,
            hint: "import single functions by name, and take a Random",
          });
        }
      },
      ExportNamedDeclaration(node) {
        checkModule(node, node.source?.value);
      },
      ExportAllDeclaration(node) {
        checkModule(node, node.source.value);
      },
      ImportExpression(node) {
        checkModule(node, node.source.type === "Literal" ? node.source.value : null);
      },
      MemberExpression(node) {
        if (node.object.type !== "MetaProperty" || node.property.type !== "Identifier") return;
        if (!["dirname", "filename"].includes(node.property.name)) return;
        context.report({
          node,
          message: `"${context.sourceCode.getText(node)}" reaches out of the module`,
          hint: "take the folder as a parameter",
        });
      },
    };
  },
};

function nameOf(node: Deno.lint.Identifier | Deno.lint.StringLiteral): string {
  return node.type === "Identifier" ? node.name : node.value;
}

/** The hint for an ambient use of `Date`, `Math` and the like; `null` when the use is pure. */
function ambientMember(name: string, node: Deno.lint.Identifier): string | null {
  const rule = AMBIENT_MEMBERS.get(name);
  if (rule === undefined) return null;
  const { parent } = node;
  switch (parent.type) {
    case "MemberExpression":
      if (parent.property.type === "Identifier" && !parent.computed) {
        return rule.isPure(parent.property.name) ? null : rule.instead;
      }
      return rule.instead;
    case "NewExpression":
      // `new Date(ms)` is arithmetic, `new Date()` reads the clock.
      return parent.callee === node && parent.arguments.length > 0 ? null : rule.instead;
    case "BinaryExpression":
      return parent.operator === "instanceof" ? null : rule.instead;
    case "TSTypeReference":
    case "TSQualifiedName":
    case "TSTypeQuery":
    case "TSClassImplements":
    case "TSInterfaceHeritage":
      return null;
    default:
      return rule.instead;
  }
}

/** The rule. */
export const noConsole: Deno.lint.Rule = {
  create(context) {
    const place = placeOfFile(context.filename);
    if (place === null || (place.role !== "source" && place.role !== "system")) return {};
    return watchGlobals(new Set(["console"]), ({ node }) => {
      context.report({ node, message: `"console" is for main.ts only`, hint: "use the logger" });
    });
  },
};

/** The rule. */
export const noSleep: Deno.lint.Rule = {
  create(context) {
    const place = placeOfFile(context.filename);
    if (place === null || !isTimeless(place)) return {};
    const hint = "wait for an event, run on a simulated clock, or guard with AbortSignal.timeout()";
    const uses = watchGlobals(new Set(["setTimeout", "setInterval"]), ({ name, node }) => {
      if (isTurn(node)) return;
      context.report({ node, message: `"${name}" makes a test wait for real time`, hint });
    });
    return {
      ...uses,
      ImportDeclaration(node) {
        uses.ImportDeclaration?.(node);
        if (!["node:timers", "node:timers/promises"].includes(node.source.value)) return;
        for (const specifier of node.specifiers) {
          const imported = specifier.type === "ImportSpecifier" ? nameOf(specifier.imported) : "*";
          if (imported === "setImmediate") continue;
          context.report({
            node: specifier,
            message: `"${imported}" of ${node.source.value} makes a test wait for real time`,
            hint,
          });
        }
      },
    };
  },
};

function isTimeless(place: Place): boolean {
  if (REAL_TIME_FILES.includes(place.path)) return false;
  return place.role === "test" || place.role === "testing";
}

/** `setTimeout(f, 0)` waits for one turn of the event loop, not for time. */
function isTurn(node: Deno.lint.Identifier): boolean {
  const { parent } = node;
  if (parent.type !== "CallExpression" || node.name !== "setTimeout") return false;
  const delay = parent.arguments[1];
  return delay?.type === "Literal" && delay.value === 0;
}
