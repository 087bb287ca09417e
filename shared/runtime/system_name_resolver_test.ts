import { deepStrictEqual as equal, rejects } from "node:assert/strict";
import { NameServerFixture } from "../testing/mod.ts";
import { NameResolutionError } from "./name_resolver.ts";
import { SystemNameResolver } from "./system_name_resolver.ts";

const TIMEOUT_MS = 5_000;

async function withServer(
  test: (server: NameServerFixture, resolver: SystemNameResolver) => Promise<void>,
): Promise<void> {
  const server = await NameServerFixture.start();
  try {
    await test(server, new SystemNameResolver({ ipAddress: "127.0.0.1", port: server.port }));
  } finally {
    await server.close();
  }
}

Deno.test("SystemNameResolver.addresses() gives IPv4 and IPv6 addresses as they are at the moment", () =>
  withServer(async (server, resolver) => {
    server.records = { "brokers.test": { A: ["10.0.0.1", "10.0.0.2"], AAAA: ["fd00::1"] } };
    equal(await resolver.addresses("brokers.test", TIMEOUT_MS), [
      "10.0.0.1",
      "10.0.0.2",
      "fd00::1",
    ]);
    server.records = { "brokers.test": { A: ["10.0.0.3"] } };
    equal(await resolver.addresses("brokers.test", TIMEOUT_MS), ["10.0.0.3"]);
  }));

Deno.test("SystemNameResolver.services() gives the hosts and ports of SRV records", () =>
  withServer(async (server, resolver) => {
    server.records = {
      "_nsqd._tcp.test": {
        SRV: [{ host: "b0.test", port: 4151 }, { host: "b1.test", port: 5151 }],
      },
    };
    equal(await resolver.services("_nsqd._tcp.test", TIMEOUT_MS), [
      { host: "b0.test", port: 4151 },
      { host: "b1.test", port: 5151 },
    ]);
  }));

Deno.test("SystemNameResolver gives an empty list for a name without records, and rejects without an answer", () =>
  withServer(async (server, resolver) => {
    equal(await resolver.addresses("none.test", TIMEOUT_MS), []);
    equal(await resolver.services("_none._tcp.test", TIMEOUT_MS), []);
    server.isSilent = true;
    await rejects(resolver.addresses("none.test", 100), NameResolutionError);
  }));
