/** The settings of the gateway. */
import assert from "node:assert/strict";
import { loadSettings, SettingsError } from "@sluice/shared/config";
import { gatewaySettings, staticBrokers, tunnelAddress } from "./config.ts";

const DECLARATION = gatewaySettings("gateway-0");
const BROKER = "--broker-tcp-address=broker-0:4150";

function load(...args: string[]) {
  return loadSettings(DECLARATION, { args, env: {}, readFile: () => "" });
}

function loadFile(file: string) {
  return loadSettings(DECLARATION, { args: ["--config=f"], env: {}, readFile: () => file });
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

Deno.test("gatewaySettings() has these defaults", () => {
  const listing = Object.fromEntries(
    load(BROKER).listing().map(({ name, value }) => [name, value]),
  );
  const defaults: Readonly<Record<string, string>> = {
    "tcp-address": "0.0.0.0:4150",
    "http-address": "0.0.0.0:4151",
    "broadcast-address": "gateway-0",
    "connections-max": "10000",
    "max-heartbeat-interval": "1m",
    "discovery-http-address": "",
    "broker-tcp-address": "broker-0:4150",
    "affinity": "spread",
    "broker-connect-timeout": "2s",
    "broker-heartbeat-interval": "1s",
    "broker-slow": "500ms",
    "broker-dedup-window": "10m",
    "publish-timeout": "10s",
    "max-msg-size": "1MiB",
    "max-body-size": "5MiB",
    "max-defer-timeout": "1h",
    "publish-bytes-max": "256MiB",
    "connection-publish-bytes-max": "16MiB",
    "data-path": "",
    "spool-bytes-max": "10GiB",
    "spool-age-max": "24h",
    "spool-after": "200ms",
    "quarantine-max": "10000",
    "tunnel-tcp-address": "",
    "tunnel-age-max": "5m",
    "tunnels-max": "1000",
    "shutdown-timeout": "25s",
    "drain-delay": "0s",
    "log-level": "info",
    "log-prefix": "[sluice-gateway] ",
  };
  for (const [name, value] of Object.entries(defaults)) assert.equal(listing[name], value, name);
});

Deno.test("gatewaySettings() refuses settings that contradict each other or mean nothing", () => {
  const rows: readonly (readonly [args: readonly string[], problem: string])[] = [
    [[], "discovery-http-address or broker-tcp-address is needed: there are no brokers"],
    [
      [BROKER, "--http-address=0.0.0.0:4150"],
      "tcp-address, http-address and tunnel-tcp-address must differ",
    ],
    [
      [BROKER, "--tunnel-tcp-address=0.0.0.0:4151"],
      "tcp-address, http-address and tunnel-tcp-address must differ",
    ],
    [
      [BROKER, "--tunnel-tcp-address=:4152", "--tunnel-tcp-address=:4153"],
      "tunnel-tcp-address is one address",
    ],
    [
      ["--broker-tcp-address=/run/broker.sock"],
      "brokers have a host and a port, not a path: /run/broker.sock",
    ],
    [
      [BROKER, "--max-msg-size=6MiB"],
      "max-msg-size (6MiB) must not exceed max-body-size (5MiB)",
    ],
    [
      [BROKER, "--publish-bytes-max=4MiB"],
      "max-body-size (5MiB) must not exceed publish-bytes-max (4MiB)",
    ],
    [[BROKER, "--tls-cert=c"], "tls-cert and tls-key must be given together"],
    [[BROKER, "--tls-required"], "tls-required needs tls-cert and tls-key"],
    [
      [BROKER, "--jwt-issuer=x"],
      "jwt-audience and jwt-issuer need jwt-secret-file or jwt-public-key-file",
    ],
  ];
  for (const [args, problem] of rows) assert.deepEqual(problemsOf(...args), [problem]);
  assert.deepEqual(problemsOf(BROKER, "--tcp-address=:0", "--http-address=:0"), []);
  assert.deepEqual(
    problemsOf(BROKER, "--tcp-address=:0", "--http-address=:0", "--tunnel-tcp-address=:0"),
    [],
  );
});

Deno.test("gatewaySettings() refuses values out of bounds, each with one problem", () => {
  for (
    const given of [
      "--affinity=random",
      "--connections-max=0",
      "--broker-heartbeat-interval=500ms",
      "--broker-heartbeat-interval=2m",
      "--broker-slow=1ms",
      "--broker-dedup-window=0",
      "--publish-timeout=10ms",
      "--publish-timeout=6m",
      "--max-msg-size=0",
      "--max-msg-size=101MiB",
      "--publish-bytes-max=1KiB",
      "--spool-bytes-max=1MiB",
      "--spool-after=2m",
      "--quarantine-max=-1",
      "--tunnel-age-max=10ms",
      "--shutdown-timeout=10ms",
      "--discovery-http-address=discovery",
      "--broker-tcp-address=broker",
    ]
  ) {
    assert.equal(problemsOf(BROKER, given).length, 1, given);
  }
});

Deno.test("gatewaySettings() takes discovery services by address or URL, alone or repeated", () => {
  const { values } = load(
    "--discovery-http-address=discovery-0:4161,http://discovery-1:4161/",
    "-discovery-http-address=https://discovery.example:443",
    "--discovery-http-address=[::1]:4161",
  );
  assert.deepEqual(values.discoveryUrls, [
    "http://discovery-0:4161",
    "http://discovery-1:4161",
    "https://discovery.example:443",
    "http://[::1]:4161",
  ]);
  for (
    const given of [
      "discovery",
      "discovery:port",
      "ftp://discovery:21",
      "http://discovery",
      "http://user@discovery:4161",
      "http://discovery:4161/path",
      "http://discovery:4161?x=1",
      "discovery:4161/nodes",
    ]
  ) {
    assert.equal(problemsOf(`--discovery-http-address=${given}`).length, 1, given);
  }
});

Deno.test("gatewaySettings() takes each spelling of a flag, the environment, and the keys of a file", () => {
  const spellings = [
    ["--broker-tcp-address=a:1,b:2"],
    ["-broker-tcp-address=a:1,b:2"],
    ["--broker-tcp-address", "a:1", "--broker-tcp-address", "b:2"],
    ["-broker-tcp-address", "a:1", "-broker-tcp-address=b:2"],
  ];
  const loaded = [
    ...spellings.map((args) => load(...args)),
    loadFile('broker_tcp_addresses = ["a:1", "b:2"]'),
    loadSettings(DECLARATION, {
      args: [],
      env: { SLUICE_BROKER_TCP_ADDRESS: "a:1,b:2" },
      readFile: () => "",
    }),
  ];
  for (const { values, notices } of loaded) {
    assert.deepEqual(notices, []);
    assert.deepEqual(
      staticBrokers(values).map(({ host, port }) => `${host}:${port}`),
      ["a:1", "b:2"],
    );
  }
});

Deno.test("gatewaySettings() reads a file with everything in it", () => {
  const { values } = loadFile([
    'tcp_address = "127.0.0.1:5150"',
    'discovery_http_addresses = ["http://a:4161", "b:4161"]',
    'affinity = "owner-first"',
    'broker_slow = "1s"',
    'data_path = "/var/lib/sluice-gateway"',
    'spool_bytes_max = "1GiB"',
    'tunnel_tcp_address = ["127.0.0.1:5152"]',
    "tunnels_max = 5",
  ].join("\n"));
  assert.deepEqual(values.discoveryUrls, ["http://a:4161", "http://b:4161"]);
  assert.deepEqual(
    [values.affinity, values.brokerSlowMs, values.dataPath, values.spoolBytesMax],
    ["owner-first", 1_000, "/var/lib/sluice-gateway", 2 ** 30],
  );
  const tunnel = tunnelAddress(values);
  assert.ok(tunnel !== null && tunnel.transport === "tcp");
  assert.deepEqual([tunnel.host, tunnel.port, values.tunnelsMax], ["127.0.0.1", 5152, 5]);
  assert.equal(tunnelAddress(load(BROKER).values), null);
});

Deno.test("gatewaySettings() keeps the secret for brokers out of what is printed", () => {
  const { listing, values } = load(BROKER, "--broker-auth-secret=opensesame");
  assert.equal(values.brokerAuthSecret, "opensesame");
  assert.ok(!JSON.stringify(listing()).includes("opensesame"));
});

Deno.test("gatewaySettings() says which setting an unknown one is near to", () => {
  const [problem = ""] = problemsOf(BROKER, "--brokers-tcp-address=a:1");
  assert.match(problem, /broker-tcp-address/);
});
