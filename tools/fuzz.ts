/**
 * `deno task fuzz [--seconds N] [--only NAME,...] [--seed S]`: the fuzz tests for longer than the
 * tests run them, each target for N seconds (30), from one seed. An input that finds something is
 * kept in the corpus of its target, beside which the fix belongs. Ends like `deno task test`.
 */
import { runTests } from "./run_tests.ts";

/** Where the targets are. */
export const TARGETS: Readonly<Record<string, string>> = {
  "commands": "shared/protocol/fuzz_test.ts",
  "compression": "shared/protocol/compression_test.ts",
  "auth-reply": "shared/authorization/auth_reply_test.ts",
  "patterns": "shared/authorization/pattern_test.ts",
  "broker-http": "broker/server/http_fuzz_test.ts",
  "http-sockets": "broker/server/http_socket_fuzz_test.ts",
  "gateway-session": "gateway/session_fuzz_test.ts",
  "session": "broker/server/session_fuzz_test.ts",
  "tls": "shared/runtime/system_tls_fuzz_test.ts",
  "discovery-http": "discovery/http_fuzz_test.ts",
  "lookup-session": "discovery/session_fuzz_test.ts",
  "settings": "tests/fuzz/settings_test.ts",
};

/** What the arguments ask for, or what is wrong with them. */
export function parseFuzzArguments(
  args: readonly string[],
): { readonly seconds: number; readonly seed: string | null; readonly files: string[] } | string {
  const given = new Map<string, string>();
  const words = args.flatMap((argument) => {
    const equals = argument.indexOf("=");
    return equals < 0 ? [argument] : [argument.slice(0, equals), argument.slice(equals + 1)];
  });
  for (let index = 0; index < words.length; index += 2) {
    const [name = "", value] = words.slice(index, index + 2);
    if (!["--seconds", "--only", "--seed"].includes(name)) return `There is no ${name}`;
    if (value === undefined) return `${name} needs a value`;
    given.set(name, value);
  }
  const seconds = Number(given.get("--seconds") ?? "30");
  if (!(seconds > 0 && seconds <= 86_400)) return "--seconds is a number from 1 to 86400";
  const names = given.get("--only")?.split(",") ?? Object.keys(TARGETS);
  const files: string[] = [];
  for (const name of names) {
    const file = TARGETS[name];
    if (file === undefined) {
      return `There is no target "${name}". There are: ${Object.keys(TARGETS).join(", ")}`;
    }
    files.push(file);
  }
  return { seconds, seed: given.get("--seed") ?? null, files };
}

if (import.meta.main) {
  const parsed = parseFuzzArguments(Deno.args);
  if (typeof parsed === "string") {
    console.error(parsed);
    Deno.exit(2);
  }
  const seed = parsed.seed ?? String(crypto.getRandomValues(new Uint32Array(1))[0]);
  console.log(`Seed ${seed}, ${parsed.seconds} s for each target`);
  Deno.env.set("SLUICE_SEED", seed);
  Deno.env.set("SLUICE_FUZZ_SECONDS", String(parsed.seconds));
  const { passed, failed, exitCode } = await runTests(parsed.files);
  console.log(`${passed} passed, ${failed} failed`);
  Deno.exit(exitCode);
}
