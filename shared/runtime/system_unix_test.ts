import { deepStrictEqual as equal, rejects, throws } from "node:assert/strict";
import { AddressInUseError } from "./connection.ts";
import { SystemClock } from "./system_clock.ts";
import { serveHttp } from "./system_http.ts";
import { SystemNetwork } from "./system_network.ts";
import { reclaimUnixSocket } from "./system_unix.ts";
import { UNIX_PORT } from "./unix_socket.ts";

async function inFolder(use: (path: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await use(`${folder}/socket`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

function exists(path: string): boolean {
  try {
    Deno.lstatSync(path);
    return true;
  } catch {
    return false;
  }
}

/** Leaves a socket file behind, as a process does that is killed. */
async function abandonSocket(path: string): Promise<void> {
  const script = `Deno.listen({ transport: "unix", path: ${JSON.stringify(path)} });
    Deno.kill(Deno.pid, "SIGKILL");`;
  await new Deno.Command(Deno.execPath(), { args: ["eval", "--no-lock", script] }).output();
}

Deno.test("SystemNetwork listens on a path, whose file is gone once it is closed", async () => {
  await inFolder(async (path) => {
    const listener = new SystemNetwork(new SystemClock()).listen(path, UNIX_PORT);
    equal([listener.hostname, listener.port], [path, UNIX_PORT]);
    const peer = await Deno.connect({ transport: "unix", path });
    const connection = await listener.accept();
    equal([connection?.remoteAddress, connection?.localAddress], ["@", path]);
    await connection?.writeAll(Uint8Array.of(1, 2, 3));
    const into = new Uint8Array(8);
    equal(await peer.read(into), 3);
    peer.close();
    equal(await connection?.read(into), null);
    connection?.close();
    listener.close();
    equal([await listener.accept(), exists(path)], [null, false]);
  });
});

Deno.test("serveHttp() answers on a path, whose file is gone once it is shut down", async () => {
  await inFolder(async (path) => {
    const server = serveHttp({
      hostname: path,
      port: UNIX_PORT,
      handler: (request, remoteAddress) =>
        new Response(`${new URL(request.url).pathname} for ${remoteAddress}`),
      onError: () => new Response("", { status: 500 }),
    });
    equal([server.hostname, server.port], [path, UNIX_PORT]);
    const client = Deno.createHttpClient({ proxy: { transport: "unix", path } });
    const response = await fetch("http://localhost/stats?x=1", { client });
    equal(await response.text(), "/stats for @");
    client.close();
    await server.shutdown();
    equal(exists(path), false);
  });
});

Deno.test("a path that is taken is refused, by TCP and by HTTP", async () => {
  await inFolder(async (path) => {
    const network = new SystemNetwork(new SystemClock());
    const listener = network.listen(path, UNIX_PORT);
    throws(() => network.listen(path, UNIX_PORT), AddressInUseError);
    throws(() =>
      serveHttp({
        hostname: path,
        port: UNIX_PORT,
        handler: () => new Response(),
        onError: () => new Response(),
      }), {
      name: "AddressInUseError",
      message: `Cannot listen on ${path}: the address is in use`,
    });
    await rejects(reclaimUnixSocket(path), AddressInUseError);
    // The question was a connection like any other.
    (await listener.accept())?.close();
    listener.close();
  });
});

Deno.test("reclaimUnixSocket() removes what a killed process left, and nothing else", async () => {
  await inFolder(async (path) => {
    await reclaimUnixSocket(path);
    await abandonSocket(path);
    equal(exists(path), true);
    await reclaimUnixSocket(path);
    equal(exists(path), false);
    await Deno.writeTextFile(path, "precious");
    await rejects(reclaimUnixSocket(path), AddressInUseError);
    equal(await Deno.readTextFile(path), "precious");
    await Deno.remove(path);
    await Deno.symlink("/dev/null", path);
    await rejects(reclaimUnixSocket(path), AddressInUseError);
    equal(exists(path), true);
  });
});
