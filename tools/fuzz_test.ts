import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { parseFuzzArguments, TARGETS } from "./fuzz.ts";
import { ROOT_PATH } from "./workspace.ts";

Deno.test("parseFuzzArguments() runs every target for 30 s when nothing is asked for", () => {
  equal(parseFuzzArguments([]), { seconds: 30, seed: null, files: Object.values(TARGETS) });
  equal(parseFuzzArguments(["--seconds", "5", "--only=tls,session", "--seed=s"]), {
    seconds: 5,
    seed: "s",
    files: [TARGETS["tls"], TARGETS["session"]],
  });
});

Deno.test("parseFuzzArguments() says what is wrong", () => {
  for (const args of [["--second=1"], ["--seconds"], ["--seconds=0"], ["--only=none"], ["x"]]) {
    ok(typeof parseFuzzArguments(args) === "string", args.join(" "));
  }
});

Deno.test("every fuzz target is a file", () => {
  for (const file of Object.values(TARGETS)) ok(Deno.statSync(`${ROOT_PATH}${file}`).isFile);
});
