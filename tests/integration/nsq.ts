/** Programs of NSQ for tests: those that take them, and daemons that answer. */
import { findPeers, type PeerProgram } from "./peers.ts";
import { HttpProcess } from "./process.ts";
import { eventually } from "./wait.ts";

const peers = await findPeers();
if ("missing" in peers) console.log(`Tests against NSQ are skipped: ${peers.missing}`);

/** A test that takes NSQ's programs; skipped where there are none. */
export function testWithNsq(name: string, run: () => Promise<void>): void {
  // The programs of NSQ are not everywhere; the reason is printed above.
  Deno.test({ name, fn: run, ignore: "missing" in peers });
}

/** The path of a program of NSQ. */
export function peer(program: PeerProgram): string {
  const path = "missing" in peers ? undefined : peers.paths.get(program);
  if (path === undefined) throw new Error(`No ${program}`);
  return path;
}

/** Flags of a daemon on free ports of loopback. */
export const LOOPBACK = [
  "--tcp-address=127.0.0.1:0",
  "--http-address=127.0.0.1:0",
  "--broadcast-address=127.0.0.1",
];

/** A daemon of NSQ that answers. */
export async function startPeer(
  program: "nsqd" | "nsqlookupd" | "nsqadmin",
  args: readonly string[],
): Promise<HttpProcess> {
  const daemon = new HttpProcess(program, peer(program), args);
  try {
    await daemon.ready(program === "nsqadmin" ? ["HTTP"] : ["TCP", "HTTP"]);
    return daemon;
  } catch (error) {
    await daemon[Symbol.asyncDispose]();
    throw error;
  }
}

/** Waits until a lookup of a topic names a port. */
export async function found(
  lookup: HttpProcess,
  topic: string,
  tcpPort: number,
): Promise<void> {
  await eventually(
    `${topic} in the lookup`,
    async () => (await lookup.get(`/lookup?topic=${topic}`)).text.includes(`"tcp_port":${tcpPort}`),
  );
}
