import assert from "node:assert/strict";
import { loadSettings, SettingsError } from "@sluice/shared/config";
import { discoverySettings, registryLimits, tcpEndpoints } from "./config.ts";
import { REGISTRY_LIMITS } from "./registry.ts";

const DECLARATION = discoverySettings("discovery-0");

function load(...args: string[]) {
  return loadSettings(DECLARATION, { args, env: {}, readFile: () => "" });
}

function problemsOf(...args: string[]): readonly string[] {
  try {
    load(...args);
  } catch (error) {
    assert.ok(error instanceof SettingsError);
    return error.problems;
  }
  return [];
}

Deno.test("discoverySettings() refuses settings that contradict each other or mean nothing", () => {
  assert.deepEqual(problemsOf("--http-address=0.0.0.0:4160"), [
    "tcp-address and http-address must differ, both are 0.0.0.0:4160",
  ]);
  assert.deepEqual(problemsOf("--channels-max=10"), [
    "channels-per-topic-max (10000) must not exceed channels-max (10)",
  ]);
  assert.deepEqual(problemsOf("--registrations-max=5"), [
    "registrations-per-producer-max (100000) must not exceed registrations-max (5)",
  ]);
  assert.equal(problemsOf("--topics-max=0").length, 1);
  assert.equal(problemsOf("--inactive-producer-timeout=0").length, 1);
  assert.deepEqual(problemsOf("--tcp-address=:0", "--http-address=:0"), []);
});

Deno.test("discoverySettings() has every flag of nsqlookupd with nsqlookupd's default", () => {
  const listing = Object.fromEntries(load().listing().map(({ name, value }) => [name, value]));
  const defaults: Readonly<Record<string, string>> = {
    "tcp-address": "0.0.0.0:4160",
    "http-address": "0.0.0.0:4161",
    "broadcast-address": "discovery-0",
    "inactive-producer-timeout": "5m",
    "tombstone-lifetime": "45s",
    "log-level": "info",
    "log-prefix": "[nsqlookupd] ",
    "verbose": "false",
  };
  for (const [name, value] of Object.entries(defaults)) assert.equal(listing[name], value, name);
});

Deno.test("discoverySettings() takes verbose with a notice", () => {
  assert.deepEqual(load("-verbose").notices, [
    "--verbose: replaced by log-level; the setting has no effect",
  ]);
});

Deno.test("registryLimits() takes each limit from its own setting", () => {
  assert.deepEqual(registryLimits(load().values), REGISTRY_LIMITS);
  const names = Object.keys(REGISTRY_LIMITS).map((key) =>
    key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)
  );
  const given = names.map((name, index) => `--${name}=${1000 - index}`);
  const values = Object.values(registryLimits(load(...given).values));
  assert.deepEqual(values.toSorted(), names.map((_, index) => 1000 - index).toSorted());
});

Deno.test("every flag of nsqlookupd is taken in each of Go's spellings and as a key of its file", () => {
  const rows = [
    ["tcp-address", "127.0.0.1:14160"],
    ["http-address", "127.0.0.1:14161"],
    ["broadcast-address", "b.example"],
    ["inactive-producer-timeout", "1m40s"],
    ["tombstone-lifetime", "30s"],
    ["log-level", "warn"],
    ["log-prefix", "[x] "],
  ] as const;
  for (const [flag, value] of rows) {
    const spellings = [
      [`--${flag}=${value}`],
      [`-${flag}=${value}`],
      [`--${flag}`, value],
      [`-${flag}`, value],
    ];
    const file = `${flag.replaceAll("-", "_")} = ${JSON.stringify(value)}`;
    const given = [
      ...spellings.map((args) => load(...args)),
      loadSettings(DECLARATION, { args: ["-config=f"], env: {}, readFile: () => file }),
    ];
    for (const { notices, listing } of given) {
      assert.deepEqual(notices, []);
      assert.equal(listing().find(({ name }) => name === flag)?.value, value, flag);
    }
  }
});

Deno.test("discoverySettings() takes brokers to ask from repeated flags, by address or by name", () => {
  const { values } = load(
    "--broker=a:4151,[::1]:4151",
    "--broker=b:80",
    "--broker-dns=brokers.internal:4151,_nsqd._tcp.brokers",
    "--cors-origin=https://console.example",
    "--cors-origin=http://localhost:8080",
  );
  assert.deepEqual(tcpEndpoints(values.brokers).map(({ host, port }) => `${host} ${port}`), [
    "a 4151",
    "::1 4151",
    "b 80",
  ]);
  assert.deepEqual(values.brokerDnsNames, [
    { kind: "address", name: "brokers.internal", port: 4151 },
    { kind: "service", name: "_nsqd._tcp.brokers" },
  ]);
  assert.deepEqual(values.corsOrigins, ["https://console.example", "http://localhost:8080"]);
});

Deno.test("discoverySettings() refuses brokers and origins that are none, and times that cannot work", () => {
  assert.deepEqual(problemsOf("--broker=/run/broker.sock"), [
    "brokers and name servers have an address, not a path: /run/broker.sock",
  ]);
  assert.deepEqual(problemsOf("--broker-dns-server=1.1.1.1:53,8.8.8.8:53"), [
    "broker-dns-server is one address",
  ]);
  assert.deepEqual(problemsOf("--broker-fresh=900ms"), [
    "broker-fresh (900 ms) must be at least twice broker-head-interval (500 ms)",
  ]);
  for (const given of ["--broker=a", "--broker-dns=a:b", "--cors-origin=console.example"]) {
    assert.equal(problemsOf(given).length, 1, given);
  }
  assert.equal(problemsOf("--cors-origin=https://console.example/path").length, 1);
});
