import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { isLoopback, remoteHost } from "./remote_host.ts";

Deno.test("remoteHost() leaves out the port and the brackets of IPv6", () => {
  const peers = ["1.2.3.4:5", "[::1]:5", "host:5", "@"];
  equal(peers.map(remoteHost), ["1.2.3.4", "::1", "host", ""]);
});

Deno.test("isLoopback() takes the loopback addresses of both families and Unix sockets, and nothing else", () => {
  for (
    const peer of ["@", "127.0.0.1:1", "127.9.8.7:1", "[::1]:1", "::1:1", "[::ffff:127.0.0.1]:1"]
  ) {
    ok(isLoopback(peer), peer);
  }
  for (const peer of ["", "@:1", "128.0.0.1:1", "127.0.0.1.x:1", "[::2]:1", "127.0.0.1", ":1"]) {
    ok(!isLoopback(peer), peer);
  }
});
