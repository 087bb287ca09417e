import assert from "node:assert/strict";
import { configOption, defaultValues, loadSettings, SettingsError } from "@sluice/shared/config";
import { effectiveTlsRequired, tlsVersionMin } from "@sluice/shared/server";
import { brokerSettings, CLIENT_TIMEOUT_MS, defaultNodeId } from "./config.ts";

const DECLARATION = brokerSettings("broker-0");

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

Deno.test("brokerSettings() takes nsqd's experiment with a notice, and refuses any other", () => {
  const flag = "--enable-experiment=topology-aware-consumption";
  assert.deepEqual(load(flag).notices, [
    "--enable-experiment: Sluice gives messages to consumers of all zones and regions alike; " +
    "the setting has no effect",
  ]);
  assert.deepEqual(load("--enable-experiment=").notices, []);
  const [problem = ""] = problemsOf("--enable-experiment=other");
  assert.match(problem, /^--enable-experiment: got "other", want .*topology-aware-consumption/);
});

Deno.test("brokerSettings() takes an empty tls-min-version for the default, as nsqd does", () => {
  const sources = { args: ["--config=f"], env: {}, readFile: () => 'tls_min_version = ""' };
  assert.equal(loadSettings(DECLARATION, sources).values.tlsMinVersion, "tls1.0");
  assert.equal(load("--tls-min-version=").values.tlsMinVersion, "tls1.0");
});

Deno.test("brokerSettings() refuses TLS that lacks a part, and none that is whole", () => {
  const both = ["--tls-cert=server.pem", "--tls-key=server.key"];
  const rows: [flags: string[], problem: string][] = [
    [["--tls-cert=server.pem"], "tls-cert and tls-key must be given together"],
    [["--tls-key=server.key"], "tls-cert and tls-key must be given together"],
    [["--tls-required"], "tls-required needs tls-cert and tls-key"],
    [["--tls-required=tcp-https"], "tls-required needs tls-cert and tls-key"],
    [["--tls-client-auth-policy=require"], "tls-client-auth-policy needs tls-cert and tls-key"],
    [["--tls-root-ca-file=ca.pem"], "tls-root-ca-file needs tls-cert and tls-key"],
    [
      [...both, "--tls-client-auth-policy=require-verify"],
      "tls-client-auth-policy=require-verify needs tls-root-ca-file",
    ],
    [
      [...both, "--https-address=0.0.0.0:4151"],
      "http-address and https-address must differ, both are 0.0.0.0:4151",
    ],
  ];
  for (const [flags, problem] of rows) assert.deepEqual(problemsOf(...flags), [problem]);
  const whole = ["--tls-client-auth-policy=require-verify", "--tls-root-ca-file=ca.pem"];
  assert.deepEqual(problemsOf(...both, ...whole), []);
  assert.deepEqual(problemsOf("--tls-required=false", "--https-address=0.0.0.0:4151"), []);
  assert.equal(problemsOf("--tls-client-auth-policy=maybe").length, 1);
  assert.equal(problemsOf("--tls-min-version=tls1.4").length, 1);
});

Deno.test("brokerSettings() takes nsqd's spellings of tls-required and tls-min-version", () => {
  const both = ["--tls-cert=server.pem", "--tls-key=server.key"];
  const required = [
    [[], "false"],
    [["--tls-required"], "true"],
    [["--tls-required=1"], "true"],
    [["--tls-required=T"], "true"],
    [["--tls-required=0"], "false"],
    [["--tls-required=tcp-https"], "tcp-https"],
    [["--tls-client-auth-policy=require"], "true"],
    [["--tls-client-auth-policy=require", "--tls-required=tcp-https"], "tcp-https"],
  ] as const;
  for (const [flags, expected] of required) {
    assert.equal(effectiveTlsRequired(load(...both, ...flags).values), expected, flags.join(" "));
  }
  for (const version of ["ssl3.0", "tls1.0", "tls1.1", "tls1.2"]) {
    assert.equal(tlsVersionMin(load(`--tls-min-version=${version}`).values), "TLSv1.2");
  }
  assert.equal(tlsVersionMin(load("--tls-min-version=tls1.3").values), "TLSv1.3");
});

Deno.test("brokerSettings() refuses settings that contradict each other", () => {
  const rows: [flags: string[], problem: string][] = [
    [["--msg-timeout=20m"], "msg-timeout (20m) must not exceed max-msg-timeout (15m)"],
    [["--max-msg-size=6MiB"], "max-msg-size (6MiB) must not exceed max-body-size (5MiB)"],
    [
      ["--max-body-size=9MiB", "--publish-bytes-max=8MiB"],
      "max-body-size (9MiB) must not exceed three quarters of publish-bytes-max (6MiB)",
    ],
    [
      ["--log-bytes-max=255MiB"],
      "four times log-file-bytes (256MiB) must not exceed log-bytes-max (255MiB)",
    ],
    [
      ["--min-output-buffer-timeout=1s"],
      "min-output-buffer-timeout (1s) must not exceed output-buffer-timeout (250ms)",
    ],
    [
      ["--max-output-buffer-timeout=100ms"],
      "output-buffer-timeout (250ms) must not exceed max-output-buffer-timeout (100ms)",
    ],
    [
      ["--tcp-address=:4150", "--http-address=0.0.0.0:4150"],
      "tcp-address and http-address must differ, both are 0.0.0.0:4150",
    ],
  ];
  for (const [flags, problem] of rows) assert.deepEqual(problemsOf(...flags), [problem]);
  assert.deepEqual(problemsOf("--tcp-address=:0", "--http-address=:0"), []);
  // A large message does not need the memory that a group has.
  const large = ["--max-msg-size=100MiB", "--max-body-size=128MiB", "--ring-bytes=1MiB"];
  assert.deepEqual(problemsOf(...large), []);
  for (const flag of ["--max-msg-size=101MiB", "--max-body-size=129MiB"]) {
    assert.equal(problemsOf(flag).length, 1, flag);
  }
});

Deno.test("brokerSettings() refuses what nsqd refuses at the start", () => {
  for (const flag of ["--node-id=1024", "--node-id=-1", "--max-deflate-level=10"]) {
    assert.equal(problemsOf(flag).length, 1, flag);
  }
  assert.equal(problemsOf("--e2e-processing-latency-percentile=1.5").length, 1);
  assert.equal(problemsOf("--auth-http-request-method=put").length, 1);
  assert.equal(problemsOf("--ring-bytes=48MiB").length, 1, "the ring is a power of two");
});

Deno.test("brokerSettings() takes nsqd's flags that mean nothing here, with a notice each", () => {
  const flags = [
    "--mem-queue-size=0",
    "--max-bytes-per-file=1024",
    "--sync-every=1",
    "--sync-timeout=2s",
    "--queue-scan-worker-pool-max=4",
    "--queue-scan-selection-count=20",
    "--verbose",
    "--worker-id=1",
  ];
  const { notices } = load(...flags);
  assert.equal(notices.length, flags.length);
  assert.ok(notices.includes(
    "--mem-queue-size: Sluice keeps every message in its log; the setting has no effect",
  ));
});

Deno.test("brokerSettings() has every flag of nsqd with nsqd's default", () => {
  const defaults: Readonly<Record<string, string>> = {
    "log-level": "info",
    "log-prefix": "[nsqd] ",
    "verbose": "false",
    "tcp-address": "0.0.0.0:4150",
    "http-address": "0.0.0.0:4151",
    "broadcast-address": "broker-0",
    "broadcast-tcp-port": "0",
    "broadcast-http-port": "0",
    "lookupd-tcp-address": "",
    "auth-http-address": "",
    "auth-http-request-method": "get",
    "http-client-connect-timeout": "2s",
    "http-client-request-timeout": "5s",
    "topology-region": "",
    "topology-zone": "",
    "mem-queue-size": "10000",
    "max-bytes-per-file": "100MiB",
    "sync-every": "2500",
    "sync-timeout": "2s",
    "queue-scan-worker-pool-max": "4",
    "queue-scan-selection-count": "20",
    "msg-timeout": "1m",
    "max-msg-timeout": "15m",
    "max-msg-size": "1MiB",
    "max-body-size": "5MiB",
    "max-req-timeout": "1h",
    "max-heartbeat-interval": "1m",
    "max-rdy-count": "2500",
    "max-output-buffer-size": "64KiB",
    "max-output-buffer-timeout": "30s",
    "min-output-buffer-timeout": "25ms",
    "output-buffer-timeout": "250ms",
    "max-channel-consumers": "0",
    "statsd-address": "",
    "statsd-prefix": "nsq.%s",
    "statsd-interval": "1m",
    "statsd-mem-stats": "true",
    "statsd-udp-packet-size": "508",
    "statsd-exclude-ephemeral": "false",
    "e2e-processing-latency-percentile": "",
    "e2e-processing-latency-window-time": "10m",
    "tls-cert": "",
    "tls-key": "",
    "tls-client-auth-policy": "",
    "tls-root-ca-file": "",
    "tls-required": "false",
    "tls-min-version": "tls1.0",
    "https-address": "0.0.0.0:4152",
    "snappy": "true",
    "deflate": "true",
    "max-deflate-level": "6",
    "enable-experiment": "",
  };
  const listing = new Map(load().listing().map(({ name, value }) => [name, value]));
  for (const [name, value] of Object.entries(defaults)) {
    assert.equal(listing.get(name), value, name);
  }
  for (const name of ["worker-id", "node-id", "data-path"]) {
    assert.ok(listing.has(name), name);
  }
  assert.equal(CLIENT_TIMEOUT_MS, 60_000);
});

Deno.test("brokerSettings() takes a size or auto for what is kept free of the disk", () => {
  const rows = [
    [[], "auto"],
    [["--min-free-bytes=AUTO"], "auto"],
    [["--min-free-bytes=0"], 0],
    [["--min-free-bytes=2GiB"], 2 ** 31],
  ] as const;
  for (const [args, expected] of rows) {
    assert.equal(load(...args).values.minFreeBytes, expected);
  }
  assert.throws(() => load("--min-free-bytes=some"), /want auto, or a number of bytes/);
  for (const [value, json] of [["auto", false], ["4096", true]] as const) {
    const { values } = load(`--min-free-bytes=${value}`);
    const option = configOption(DECLARATION, values, "min_free_bytes");
    assert.deepEqual(option, { body: value, json });
  }
  assert.equal(load("--log-bytes-max=256MiB").values.logBytesMax, 2 ** 28);
});

Deno.test("brokerSettings() judges what authorization is configured with", () => {
  const rows: readonly (readonly [readonly string[], number])[] = [
    [["--auth-http-address=127.0.0.1:8080", "--auth-http-address=https://auth/x"], 0],
    [["--auth-http-address=http://user:secret@auth/"], 1],
    [["--auth-http-address=ftp://auth/"], 1],
    [["--auth-http-request-method=post"], 0],
    [["--jwt-audience=a"], 1],
    [["--jwt-issuer=a", "--jwt-secret-file=/x"], 0],
  ];
  for (const [flags, problems] of rows) {
    const found = problemsOf(...flags);
    assert.equal(found.length, problems, flags.join(" "));
    assert.equal(found.join().includes("secret@"), false);
  }
  const { values } = load("--auth-http-address=a:1", "--auth-http-address=b:1");
  const option = configOption(DECLARATION, values, "auth_http_addresses");
  assert.deepEqual(option, { body: '["a:1","b:1"]', json: true });
});

Deno.test("brokerSettings() answers /config under nsqd's names", () => {
  const { values } = load("--lookupd-tcp-address=a:4160,b:4160", "--node-id=7");
  const rows: [option: string, body: string, json: boolean][] = [
    ["id", "7", true],
    ["nsqlookupd_tcp_addresses", '["a:4160","b:4160"]', true],
    ["log_level", "2", true],
    ["msg_timeout", "60000000000", true],
    ["max_msg_size", "1048576", true],
    ["tcp_address", "0.0.0.0:4150", false],
    ["data_path", ".", false],
    ["auth_http_addresses", "[]", true],
    ["e2e_processing_latency_percentiles", "[]", true],
  ];
  for (const [option, body, json] of rows) {
    assert.deepEqual(configOption(DECLARATION, values, option), { body, json }, option);
  }
  for (const option of ["node_id", "lookupd_tcp_address", "nonsense"]) {
    assert.equal(configOption(DECLARATION, values, option), undefined, option);
  }
});

Deno.test("defaultNodeId() is the CRC-32 of the MD5 of the host name, modulo 1024", () => {
  // zlib's CRC-32 of the 16 bytes that md5sum prints, worked out with other tools.
  assert.equal(defaultNodeId("broker-0"), 543);
  assert.equal(defaultNodeId(""), 812);
  assert.equal(defaultValues(DECLARATION).nodeId, 543);
});
