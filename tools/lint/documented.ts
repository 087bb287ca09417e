/**
 * `module-doc` and `export-doc`: a module opens with what it promises, and each exported class,
 * function or interface of `shared` and the services says what it is. `no-leftover` reads the other
 * comments: no promise to come back later, and no note that switches a check off.
 */
import { type Place, placeOfFile } from "./place.ts";

/** The rule. */
export const moduleDoc: Deno.lint.Rule = {
  create(context) {
    const place = placeOfFile(context.filename);
    if (place === null || place.role === "test") return {};
    return {
      Program(node) {
        const first = node.body.find(isExport) ??
          node.body.find((statement) => statement.type !== "ImportDeclaration");
        if (first === undefined) return;
        if (node.comments.length > 0 && docs(context).some(([start]) => start < first.range[0])) {
          return;
        }
        context.report({
          node: first,
          message: "The module does not say what it promises",
          hint: "open it with a /** ... */ comment: guarantees, assumptions, limits",
        });
      },
    };
  },
};

function isExport(statement: Deno.lint.Statement): boolean {
  return statement.type === "ExportNamedDeclaration" ||
    statement.type === "ExportDefaultDeclaration" || statement.type === "ExportAllDeclaration";
}

/** The rule. */
export const exportDoc: Deno.lint.Rule = {
  create(context) {
    const place = placeOfFile(context.filename);
    if (place === null || !isPublic(place)) return {};
    let overloaded = "";
    const check = (
      node: Deno.lint.ExportNamedDeclaration | Deno.lint.ExportDefaultDeclaration,
    ) => {
      const { declaration } = node;
      let name: string;
      switch (declaration?.type) {
        case "ClassDeclaration":
        case "FunctionDeclaration":
        case "TSDeclareFunction":
        case "TSInterfaceDeclaration":
          name = declaration.id?.name ?? "default";
          break;
        default:
          return;
      }
      // Only the first signature of an overloaded function carries the comment.
      const repeated = name === overloaded;
      overloaded = declaration.type === "TSDeclareFunction" ? name : "";
      if (repeated || isNamesake(name, place.path) || isDocumented(context, node.range[0])) return;
      context.report({
        range: [node.range[0], node.range[0] + "export".length],
        message: `"${name}" is exported without a word about it`,
        hint: "say in a /** ... */ comment what a caller may rely on",
      });
    };
    return { ExportNamedDeclaration: check, ExportDefaultDeclaration: check };
  },
};

/** `SimClock` and `SimClockOptions` of sim_clock.ts: the comment of the module speaks of them. */
function isNamesake(name: string, path: string): boolean {
  const file = path.slice(path.lastIndexOf("/") + 1, -".ts".length).replaceAll("_", "");
  return name.replace(/Options$/, "").toLowerCase() === file;
}

function isPublic(place: Place): boolean {
  return place.role !== "test" && place.role !== "bench" && place.role !== "tool" &&
    place.member !== "";
}

function docs(context: Deno.lint.RuleContext): Deno.lint.Range[] {
  return context.sourceCode.getAllComments()
    .filter(({ type, value }) => type === "Block" && value.startsWith("*"))
    .map(({ range }) => range);
}

/** Whether a doc comment ends right before `start`, give or take decorators and white space. */
function isDocumented(context: Deno.lint.RuleContext, start: number): boolean {
  const { text } = context.sourceCode;
  return docs(context).some(([, end]) =>
    end <= start && /^\s*(?:@[\w.]+(?:\([^)]*\))?\s*)*$/.test(text.slice(end, start))
  );
}

const LEFTOVER = /\b(?:TODO|FIXME|XXX|HACK)\b/;
const SWITCH_OFF =
  /^\s*(?:@ts-(?:ignore|expect-error|nocheck)|deno-lint-ignore|deno-coverage-ignore|[cv]8 ignore|istanbul ignore)/;

/** The rule. */
export const noLeftover: Deno.lint.Rule = {
  create(context) {
    if (placeOfFile(context.filename) === null) return {};
    return {
      Program() {
        for (const { range, value } of context.sourceCode.getAllComments()) {
          if (LEFTOVER.test(value)) {
            context.report({ range, message: "A leftover note: do it now or leave it out" });
          }
          if (SWITCH_OFF.test(value)) {
            context.report({ range, message: "A check is switched off: mend what it found" });
          }
        }
      },
    };
  },
};
