/**
 * The broker and lookup service that a suite is run against: ours, or with `original` NSQ's own, so
 * that the figures expected of a suite can be proven. Either way a suite sees the same flags.
 */
import { findPeers } from "../integration/peers.ts";
import { HttpProcess, ROOT_PATH, TemporaryFolder } from "../integration/process.ts";
import type { Start } from "./suites.ts";

/** The commands of a pair of services. */
export interface Commands {
  readonly nsqd: string;
  readonly nsqlookupd: string;
}

/** Ours behind NSQ's names, or NSQ's own. */
export async function commands(original: boolean): Promise<Commands> {
  if (!original) {
    const shim = `${ROOT_PATH}tests/clients/shim`;
    return { nsqd: `${shim}/nsqd`, nsqlookupd: `${shim}/nsqlookupd` };
  }
  const peers = await findPeers();
  if ("missing" in peers) throw new Error(peers.missing);
  const [nsqd, nsqlookupd] = [peers.paths.get("nsqd"), peers.paths.get("nsqlookupd")];
  if (nsqd === undefined || nsqlookupd === undefined) throw new Error("NSQ is incomplete");
  return { nsqd, nsqlookupd };
}

/** What a suite needs to find its broker. */
export interface Running extends AsyncDisposable {
  readonly env: Readonly<Record<string, string>>;
}

/** Starts what a suite needs; `certificates` writes the suite's own into a folder. */
export async function startFor(
  start: Start,
  { nsqd, nsqlookupd }: Commands,
  certificates: (folder: string) => Promise<void>,
): Promise<Running> {
  await using stack = new AsyncDisposableStack();
  const launch = async (name: string, command: string, args: readonly string[]) => {
    const process = stack.use(new HttpProcess(name, command, args));
    await process.ready();
    return process;
  };
  if (start === "by the suite") {
    const env = { NSQD: nsqd, NSQLOOKUPD: nsqlookupd };
    return { env, [Symbol.asyncDispose]: () => Promise.resolve() };
  }
  const folder = stack.use(await TemporaryFolder.create());
  const data = `${folder.path}/data`;
  await Deno.mkdir(data);
  const env: Record<string, string> = {};
  const args = [`--data-path=${data}`, "--broadcast-address=127.0.0.1"];
  if (start === "free ports with lookup") {
    const free = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"];
    const lookup = await launch("nsqlookupd", nsqlookupd, [
      ...free,
      "--broadcast-address=127.0.0.1",
    ]);
    const broker = await launch("nsqd", nsqd, [
      ...args,
      ...free,
      `--lookupd-tcp-address=${lookup.tcpAddress}`,
    ]);
    env["NSQD_TCP"] = broker.tcpAddress;
    env["NSQD_HTTP"] = broker.httpAddress;
    env["LOOKUPD_HTTP"] = lookup.httpAddress;
  } else {
    if (start === "fixed ports with TLS") {
      await certificates(folder.path);
      args.push(
        `--tls-cert=${folder.path}/server.pem`,
        `--tls-key=${folder.path}/server.key`,
        `--tls-root-ca-file=${folder.path}/ca.pem`,
      );
    }
    args.push("--tcp-address=127.0.0.1:4150", "--http-address=127.0.0.1:4151");
    await launch("nsqd", nsqd, args);
  }
  const owned = stack.move();
  return { env, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}
