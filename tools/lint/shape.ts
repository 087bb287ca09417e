/**
 * The shape of our code: `private-name` (`#` rather than the keyword), `top-level-function`
 * (`function` rather than a constant that holds an arrow), `no-module-state` (a module keeps nothing
 * between calls) and `file-name` (snake_case).
 */
import { placeOfFile } from "./place.ts";

/** The rule. */
export const privateName: Deno.lint.Rule = {
  create(context) {
    if (placeOfFile(context.filename) === null) return {};
    const message = "Private only to the type checker";
    const check = (node: Deno.lint.PropertyDefinition | Deno.lint.MethodDefinition) => {
      // A constructor cannot be named with #; a private one is the only way to force a factory.
      if (node.type === "MethodDefinition" && node.kind === "constructor") return;
      if (node.accessibility !== "private") return;
      context.report({ node: node.key, message, hint: "name it with #" });
    };
    return {
      PropertyDefinition: check,
      MethodDefinition: check,
      TSParameterProperty(node: Deno.lint.TSParameterProperty) {
        // Deno 2.9 leaves `accessibility` out of this node, so the source is asked.
        if (!/^(?:@\S+\s+)*private\b/.test(textOf(context, node.range))) return;
        context.report({ range: node.range, message, hint: "assign it to a # field" });
      },
    };
  },
};

/** The rule. */
export const topLevelFunction: Deno.lint.Rule = {
  create(context) {
    if (placeOfFile(context.filename) === null) return {};
    return {
      VariableDeclarator(node) {
        if (!isTopLevel(node.parent) || node.id.type !== "Identifier") return;
        const type = node.init?.type;
        if (type !== "ArrowFunctionExpression" && type !== "FunctionExpression") return;
        context.report({
          node: node.id,
          message: `"${node.id.name}" is a function in a variable`,
          hint: "declare it with function",
        });
      },
    };
  },
};

function textOf(context: Deno.lint.RuleContext, range: Deno.lint.Range): string {
  return context.sourceCode.text.slice(range[0], range[1]);
}

const CONTAINERS = ["Map", "Set", "WeakMap", "WeakSet", "Array"];

/** The rule. */
export const noModuleState: Deno.lint.Rule = {
  create(context) {
    const place = placeOfFile(context.filename);
    if (place === null || !["source", "system", "testing"].includes(place.role)) return {};
    return {
      VariableDeclaration(node) {
        if (!isTopLevel(node)) return;
        const empty = node.declarations.some(({ id, init }) =>
          init !== null && !isReadonly(textOf(context, [id.range[0], init.range[0]])) &&
          (init.type === "ArrayExpression" && init.elements.length === 0 ||
            init.type === "NewExpression" && init.arguments.length === 0 &&
              init.callee.type === "Identifier" && CONTAINERS.includes(init.callee.name))
        );
        if (node.kind === "const" && !empty) return;
        context.report({
          node,
          message: "The module keeps state between calls",
          hint: "keep it in an object that main.ts makes",
        });
      },
    };
  },
};

/**
 * Whether a name is declared with a type that is not plainly writable: `NONE: readonly string[]`,
 * `NONE: ReadonlySet<string>`, or a name of our own, which gets the benefit of the doubt.
 */
function isReadonly(declared: string): boolean {
  const type = /^[^=]*?:\s*(.+?)\s*=?\s*$/s.exec(declared)?.[1];
  if (type === undefined) return false;
  return /^readonly\s/.test(type) || !/^(?:Weak)?(?:Map|Set|Array)<|\[\]$/.test(type);
}

function isTopLevel(node: Deno.lint.VariableDeclaration): boolean {
  const { parent } = node;
  return parent.type === "Program" ||
    parent.type === "ExportNamedDeclaration" && parent.parent.type === "Program";
}

/** The rule. */
export const fileName: Deno.lint.Rule = {
  create(context) {
    const place = placeOfFile(context.filename);
    if (place === null) return {};
    return {
      Program(node) {
        if (/^(?:[a-z0-9_.]+\/)*[a-z0-9_]+(?:\.d)?\.tsx?$/.test(place.path)) return;
        context.report({ node, message: `"${place.path}" is not in snake_case` });
      },
    };
  },
};
