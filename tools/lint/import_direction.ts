/**
 * `import-direction`: who may import whom. The table below is the one of docs/ARCHITECTURE.md; this
 * file only applies it. A zone is a folder, the longest matching one counts, and importing from
 * one's own zone is always allowed.
 *
 * Besides the table: members import each other by name and never by `../`, a folder of `shared` is
 * entered by its `mod.ts` only, the real clock, disk and network belong to a `main.ts`, test
 * helpers to tests, and outside packages come through the import map of the workspace.
 */
import { type Place, placeOfFile, resolveRelative } from "./place.ts";

interface Zone {
  /** The folder, with a slash at its end; or one file. */
  readonly under: string;
  readonly mayImport: readonly string[];
  /** Also these, but only by `import type`. */
  readonly mayImportTypes?: readonly string[];
}

const SERVICES = ["broker/", "discovery/", "gateway/", "operator/", "console/", "ctl/"];

/** The longest match decides. What is in no zone (tests, benches, tools) may import everything. */
export const ZONES: readonly Zone[] = [
  { under: "shared/runtime/", mayImport: [] },
  { under: "shared/protocol/", mayImport: ["shared/runtime/invariant"] },
  ...["config", "telemetry", "http", "client", "authorization"].map((folder) => ({
    under: `shared/${folder}/`,
    mayImport: ["shared/protocol", "shared/runtime", "shared/telemetry"],
  })),
  { under: "shared/log/", mayImport: ["shared/runtime", "shared/telemetry"] },
  {
    under: "shared/server/",
    mayImport: [
      "shared/authorization",
      "shared/config",
      "shared/http",
      "shared/protocol",
      "shared/runtime",
      "shared/telemetry",
    ],
  },
  { under: "shared/testing/", mayImport: ["shared"] },
  {
    under: "broker/storage/",
    mayImport: ["shared/log", "shared/runtime", "shared/telemetry"],
  },
  {
    under: "broker/queue/",
    mayImport: ["broker/storage", "shared/runtime", "shared/telemetry"],
    mayImportTypes: ["shared/protocol"],
  },
  {
    under: "broker/server/",
    mayImport: [
      "broker/queue",
      // The operations that sessions of every protocol stand on.
      "broker/broker",
      "shared/protocol",
      "shared/runtime",
      "shared/telemetry",
      "shared/http",
      "shared/client",
      "shared/authorization",
      "shared/server",
    ],
  },
  ...SERVICES.map((under) => ({
    under,
    mayImport: under === "ctl/"
      ? ["shared", "ctl", "broker/storage/format"]
      : ["shared", under.slice(0, -1)],
  })),
];

/** Where the real clock, disk, network and randomness live. */
const SYSTEM = "shared/runtime/system";
const TESTING = "shared/testing";
/** Folders of `shared` may also be entered here, past their `mod.ts`. */
const SIDE_DOORS = ["shared/runtime/invariant", SYSTEM];
/** Packages for tests and benches; production code has `invariant()` and clients of its own. */
const TEST_PACKAGES = ["node:assert", "node:assert/strict", "node:test", "fast-check", "nsqjs"];

/** What is wrong with an import, in one sentence, or `null`. */
export function judgeImport(place: Place, specifier: string, typeOnly: boolean): string | null {
  const test = place.role === "test" || place.role === "bench" || place.role === "testing";
  if (TEST_PACKAGES.includes(specifier) && !test) {
    return `"${specifier}" is for tests and benches only`;
  }
  if (/^(?:https?|jsr|npm):/.test(specifier)) {
    return `"${specifier}" must come through the import map of the workspace`;
  }
  const relative = specifier.startsWith("./") || specifier.startsWith("../");
  let target: string;
  if (relative) {
    const path = resolveRelative(place.path, specifier);
    if (path === null || memberOf(path) !== place.member) {
      return `"${specifier}" leaves "${place.member}": import another member by name`;
    }
    target = path;
  } else if (specifier.startsWith("@sluice/")) {
    target = specifier.slice("@sluice/".length);
    if (memberOf(target) === place.member) {
      return `"${specifier}" is the member's own name: import it by a relative path`;
    }
  } else {
    return null;
  }
  return judgeTarget(place, target.replace(/\.ts$/, ""), typeOnly, relative);
}

function judgeTarget(
  place: Place,
  target: string,
  typeOnly: boolean,
  relative: boolean,
): string | null {
  const { role } = place;
  const anyTest = role === "test" || role === "bench" || role === "testing";
  if (isUnder(target, TESTING) && !anyTest) {
    return `"${TESTING}" is for tests and benches only`;
  }
  if (isSystem(target) && role === "source") {
    return `"${SYSTEM}" is for a main.ts only: take the clock, disk or network as a parameter`;
  }
  if (
    relative && place.member === "shared" && folderOf(target) !== folderOf(place.path) &&
    !target.endsWith("/mod") && !SIDE_DOORS.includes(target) && !isSystem(target)
  ) {
    return `"${target}" is behind a door: import the folder's mod.ts`;
  }
  const zone = zoneOf(place.path);
  if (zone === null || `${target}/`.startsWith(zone.under)) return null;
  if (zone.mayImport.some((allowed) => isUnder(target, allowed))) return null;
  // A test sits in the zone of what it tests, but may set the stage with anything shared.
  if (role === "test" && target.startsWith("shared/")) return null;
  if (zone.mayImportTypes?.some((allowed) => isUnder(target, allowed))) {
    return typeOnly ? null : `"${zone.under}" may import "${target}" as types only`;
  }
  return `"${zone.under}" must not import "${target}"`;
}

function zoneOf(path: string): Zone | null {
  let best: Zone | null = null;
  for (const zone of ZONES) {
    if (path.startsWith(zone.under) && (best === null || zone.under.length > best.under.length)) {
      best = zone;
    }
  }
  return best;
}

function isUnder(target: string, prefix: string): boolean {
  return target === prefix || target.startsWith(`${prefix}/`);
}

function isSystem(target: string): boolean {
  return target.startsWith(SYSTEM);
}

function memberOf(path: string): string {
  const slash = path.indexOf("/");
  return slash < 0 ? path : path.slice(0, slash);
}

/** `shared/log` of `shared/log/block.ts`. */
function folderOf(path: string): string {
  return path.split("/").slice(0, 2).join("/");
}

/** The rule. */
export const importDirection: Deno.lint.Rule = {
  create(context) {
    const place = placeOfFile(context.filename);
    if (place === null) return {};
    const check = (node: Deno.lint.Node, source: Deno.lint.Node | null, typeOnly: boolean) => {
      if (source?.type !== "Literal" || typeof source.value !== "string") return;
      const message = judgeImport(place, source.value, typeOnly);
      if (message !== null) context.report({ node, message });
    };
    return {
      ImportDeclaration(node) {
        const named = node.specifiers.filter((specifier) => specifier.type === "ImportSpecifier");
        const typeOnly = node.importKind === "type" ||
          named.length > 0 && named.length === node.specifiers.length &&
            named.every((specifier) => specifier.importKind === "type");
        check(node, node.source, typeOnly);
      },
      ExportNamedDeclaration(node) {
        check(node, node.source, node.exportKind === "type");
      },
      ExportAllDeclaration(node) {
        check(node, node.source, node.exportKind === "type");
      },
      ImportExpression(node) {
        check(node, node.source, false);
      },
      TSImportType(node) {
        const { argument } = node;
        check(node, argument.type === "TSLiteralType" ? argument.literal : null, true);
      },
    };
  },
};
