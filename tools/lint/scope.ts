/**
 * Tells a global name from a local one of the same spelling: enough of scoping for lint rules that
 * watch a handful of globals. Every declaration covers the nearest block, function or file it
 * stands in (a `var` is treated like a `let`).
 */

/** Anything that can bring names into a scope. */
type Binding = Deno.lint.Node | Deno.lint.Parameter;

interface Local {
  readonly name: string;
  readonly scope: Deno.lint.Range;
}

const SCOPES: ReadonlySet<string> = new Set([
  "Program",
  "BlockStatement",
  "FunctionDeclaration",
  "FunctionExpression",
  "ArrowFunctionExpression",
  "ForStatement",
  "ForOfStatement",
  "ForInStatement",
  "CatchClause",
  "StaticBlock",
  "SwitchStatement",
  "TSModuleBlock",
]);

/** A use of a global name. */
export interface GlobalUse {
  readonly name: string;
  readonly node: Deno.lint.Identifier;
}

/** Makes a visitor that calls `onUse` at the end of the file for each use of one of `names`. */
export function watchGlobals(
  names: ReadonlySet<string>,
  onUse: (use: GlobalUse) => void,
): Deno.lint.LintVisitor {
  const locals: Local[] = [];
  const uses: Deno.lint.Identifier[] = [];
  const declare = (pattern: Binding | null, scope: Deno.lint.Range) => {
    for (const name of boundNames(pattern)) if (names.has(name)) locals.push({ name, scope });
  };
  const declareFunction = (
    node:
      | Deno.lint.FunctionDeclaration
      | Deno.lint.FunctionExpression
      | Deno.lint.ArrowFunctionExpression,
  ) => {
    for (const param of node.params) declare(param, node.range);
  };
  return {
    Identifier(node) {
      if (names.has(node.name) && isReference(node)) uses.push(node);
    },
    VariableDeclarator(node) {
      declare(node.id, scopeAround(node));
    },
    FunctionDeclaration(node) {
      declare(node.id, scopeAround(node));
      declareFunction(node);
    },
    FunctionExpression: declareFunction,
    ArrowFunctionExpression: declareFunction,
    ClassDeclaration(node) {
      declare(node.id, scopeAround(node));
    },
    CatchClause(node) {
      declare(node.param, node.range);
    },
    ImportDeclaration(node) {
      for (const specifier of node.specifiers) declare(specifier.local, scopeAround(node));
    },
    "Program:exit"() {
      for (const node of uses) {
        const [at] = node.range;
        const shadowed = locals.some(({ name, scope }) =>
          name === node.name && at >= scope[0] && at < scope[1]
        );
        if (!shadowed) onUse({ name: node.name, node });
      }
    },
  };
}

/** The parent of a node. Only a program has none, and nobody asks for that. */
export function parentOf(node: Binding): Binding | null {
  return "parent" in node ? node.parent : null;
}

function scopeAround(node: Deno.lint.Node): Deno.lint.Range {
  let around = parentOf(node);
  while (around !== null && !SCOPES.has(around.type)) around = parentOf(around);
  return around?.range ?? [0, Number.MAX_SAFE_INTEGER];
}

function boundNames(pattern: Binding | null): string[] {
  switch (pattern?.type) {
    case "Identifier":
      return [pattern.name];
    case "ObjectPattern":
      return pattern.properties.flatMap((property) =>
        boundNames(property.type === "Property" ? property.value : property)
      );
    case "ArrayPattern":
      return pattern.elements.flatMap((element) => boundNames(element));
    case "RestElement":
      return boundNames(pattern.argument);
    case "AssignmentPattern":
      return boundNames(pattern.left);
    case "TSParameterProperty":
      return boundNames(pattern.parameter);
    default:
      return [];
  }
}

/** Whether an identifier reads a variable, rather than naming a key, a label or a declaration. */
function isReference(node: Deno.lint.Identifier): boolean {
  const { parent } = node;
  switch (parent.type) {
    case "MemberExpression":
      return parent.computed || parent.object === node;
    case "TSQualifiedName":
      return parent.left === node;
    case "Property":
      if (parent.parent.type === "ObjectPattern") return parent.computed && parent.key === node;
      return parent.computed || parent.shorthand || parent.value === node;
    case "PropertyDefinition":
      return parent.computed || parent.value === node;
    case "MethodDefinition":
    case "TSPropertySignature":
      return parent.computed && parent.key === node;
    case "VariableDeclarator":
      return parent.init === node;
    case "AssignmentPattern":
      return parent.right === node;
    case "ImportSpecifier":
    case "ImportDefaultSpecifier":
    case "ImportNamespaceSpecifier":
    case "ExportSpecifier":
    case "FunctionDeclaration":
    case "FunctionExpression":
    case "ClassDeclaration":
    case "LabeledStatement":
    case "BreakStatement":
    case "ContinueStatement":
    case "MetaProperty":
    case "RestElement":
    case "TSMethodSignature":
    case "TSFunctionType":
    case "TSDeclareFunction":
    case "TSEnumMember":
    case "TSNamedTupleMember":
      return false;
    case "ArrowFunctionExpression":
      return parent.body === node;
    default:
      return true;
  }
}
