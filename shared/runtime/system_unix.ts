/**
 * Real Unix sockets: the listener, and what a start does about a socket file that another process has
 * left behind. The file is made with the process's umask and is removed by an orderly close.
 */
import { AddressInUseError } from "./connection.ts";
import { UNIX_PORT } from "./unix_socket.ts";

/**
 * Removes the socket file at `path` when nobody listens on it any more: a process that was killed
 * leaves it, and it would keep the next one from listening. Rejects with {@linkcode AddressInUseError}
 * when somebody answers, and when the file is no socket; then nothing is removed.
 */
export async function reclaimUnixSocket(path: string): Promise<void> {
  try {
    const { isSocket } = await Deno.lstat(path);
    if (isSocket !== true) throw new AddressInUseError(path, UNIX_PORT);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return;
    throw error;
  }
  try {
    (await Deno.connect({ transport: "unix", path })).close();
  } catch (error) {
    // Only a refusal says that nobody is there; a full backlog or a missing permission does not.
    if (!(error instanceof Deno.errors.ConnectionRefused)) {
      throw new AddressInUseError(path, UNIX_PORT, { cause: error });
    }
    await Deno.remove(path);
    return;
  }
  throw new AddressInUseError(path, UNIX_PORT);
}

/** Listens on a path. Throws {@linkcode AddressInUseError} when there is a file. */
export function listenUnix(path: string): Deno.UnixListener {
  try {
    return Deno.listen({ transport: "unix", path });
  } catch (error) {
    if (!(error instanceof Deno.errors.AddrInUse)) throw error;
    throw new AddressInUseError(path, UNIX_PORT, { cause: error });
  }
}
