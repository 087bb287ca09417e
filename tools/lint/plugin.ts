/**
 * Our rules for `deno lint`: what STYLE and ARCHITECTURE ask for and a machine can see. A file's
 * place in the workspace decides which of them apply to it, so the plugin needs no options. Rules
 * are never switched off by a comment; where one is wrong, mend the rule and its test.
 */
import { exportDoc, moduleDoc, noLeftover } from "./documented.ts";
import { importDirection } from "./import_direction.ts";
import { noAmbient, noConsole, noSleep } from "./no_ambient.ts";
import { fileName, noModuleState, privateName, topLevelFunction } from "./shape.ts";
import { noTestOnly } from "./test_rules.ts";

const plugin: Deno.lint.Plugin = {
  name: "sluice",
  rules: {
    "import-direction": importDirection,
    "no-ambient": noAmbient,
    "no-console": noConsole,
    "no-sleep": noSleep,
    "no-test-only": noTestOnly,
    "no-leftover": noLeftover,
    "no-module-state": noModuleState,
    "module-doc": moduleDoc,
    "export-doc": exportDoc,
    "private-name": privateName,
    "top-level-function": topLevelFunction,
    "file-name": fileName,
  },
};
export default plugin;
