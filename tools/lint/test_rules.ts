/**
 * `no-test-only`: every test runs, with the sanitizers on. `only` is never committed; a test that is
 * skipped or runs without a sanitizer says why in a comment on the same or the line above.
 */
import { placeOfFile } from "./place.ts";

const SANITIZERS = ["sanitizeOps", "sanitizeResources", "sanitizeExit"];

/** The rule. */
export const noTestOnly: Deno.lint.Rule = {
  create(context) {
    if (placeOfFile(context.filename) === null) return {};
    const report = (node: Deno.lint.Node, message: string, hint: string) => {
      context.report({ node, message, hint });
    };
    const judge = (node: Deno.lint.Node, name: string) => {
      if (name === "only") report(node, "The other tests would not run", `remove "only"`);
      else if (!hasReason(context, node.range)) {
        report(
          node,
          name === "ignore" ? "A test is skipped without a reason" : "A sanitizer is off",
          "say why in a comment on the line above",
        );
      }
    };
    return {
      MemberExpression(node) {
        if (node.computed || node.property.type !== "Identifier") return;
        const { name } = node.property;
        if (name !== "only" && name !== "ignore") return;
        if (context.sourceCode.getText(node.object) === "Deno.test") judge(node, name);
      },
      Property(node) {
        if (node.key.type !== "Identifier" || node.parent.type !== "ObjectExpression") return;
        const { name } = node.key;
        const off = node.value.type === "Literal" && node.value.value === false;
        const matters = name === "only" || name === "ignore"
          ? !off
          : SANITIZERS.includes(name) && off;
        if (!matters) return;
        const call = node.parent.parent;
        if (call.type !== "CallExpression") return;
        if (/^(?:Deno\.test|\w+\.step)\b/.test(context.sourceCode.getText(call.callee))) {
          judge(node, name);
        }
      },
    };
  },
};

/** Whether a comment stands on the line of `range` or ends on the line above it. */
function hasReason(context: Deno.lint.RuleContext, range: Deno.lint.Range): boolean {
  const { text } = context.sourceCode;
  const line = lineOf(text, range[0]);
  return context.sourceCode.getAllComments().some((comment) => {
    const end = lineOf(text, comment.range[1]);
    return /[A-Za-z]{2}/.test(comment.value) && (end === line || end === line - 1);
  });
}

function lineOf(text: string, offset: number): number {
  let line = 0;
  for (let at = text.indexOf("\n"); at >= 0 && at < offset; at = text.indexOf("\n", at + 1)) line++;
  return line;
}
