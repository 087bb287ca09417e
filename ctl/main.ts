/**
 * Starts `sluicectl`: the only place that touches arguments, standard output and the real disk and network.
 *
 * Exit codes: 0 done and nothing wrong, 1 damage found, 2 cannot run.
 */
import { askHttp, SystemClock, SystemDisk } from "@sluice/shared/runtime/system";
import { run } from "./cli.ts";

/** Output is written before anything more is read, so that a slow reader holds us up. */
function writeAll(
  stream: { writeSync(bytes: Uint8Array): number },
  bytes: Uint8Array,
): void {
  for (let written = 0; written < bytes.length;) {
    written += stream.writeSync(bytes.subarray(written));
  }
}

try {
  Deno.exitCode = await run(Deno.args, {
    disk: new SystemDisk(),
    clock: new SystemClock(),
    askHttp,
    out: (bytes) => writeAll(Deno.stdout, bytes),
    err: (text) => writeAll(Deno.stderr, new TextEncoder().encode(text)),
    errIsTerminal: Deno.stderr.isTerminal(),
  });
} catch (error) {
  // Whoever reads has seen enough, as in `dump | head`.
  if (!(error instanceof Deno.errors.BrokenPipe)) throw error;
}
