/**
 * Every flag of nsqd, in each spelling and as a key of the file: what becomes of it. A row that says
 * `means` has its value used, one that says `noted` has it explained once at the start and then
 * passed over.
 */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { configOption, loadSettings, SettingsError } from "@sluice/shared/config";
import { brokerSettings } from "./config.ts";

const DECLARATION = brokerSettings("host");

type Outcome = "means" | "noted";

interface Row {
  readonly flag: string;
  readonly value: string;
  readonly outcome: Outcome;
  /** The key of the file where it is not the flag's name. */
  readonly key?: string;
  /** As it is written in a file; the quoted value when absent. */
  readonly toml?: string;
  /** What `GET /config/:opt` answers where it is not the value. */
  readonly option?: string;
}

const ROWS: readonly Row[] = [
  { flag: "log-level", value: "warn", outcome: "means", option: "3" },
  { flag: "log-prefix", value: "[x] ", outcome: "means" },
  { flag: "verbose", value: "true", outcome: "noted", toml: "true" },
  { flag: "worker-id", value: "5", outcome: "noted", toml: "5" },
  { flag: "node-id", value: "7", outcome: "means", key: "id", toml: "7" },
  { flag: "tcp-address", value: "127.0.0.1:14150", outcome: "means" },
  { flag: "http-address", value: "127.0.0.1:14151", outcome: "means" },
  { flag: "broadcast-address", value: "b.example", outcome: "means" },
  { flag: "broadcast-tcp-port", value: "14150", outcome: "means", toml: "14150" },
  { flag: "broadcast-http-port", value: "14151", outcome: "means", toml: "14151" },
  {
    flag: "lookupd-tcp-address",
    value: "a:1,b:2",
    outcome: "means",
    key: "nsqlookupd_tcp_addresses",
    toml: '["a:1", "b:2"]',
    option: '["a:1","b:2"]',
  },
  { flag: "http-client-connect-timeout", value: "3s", outcome: "means", option: "3000000000" },
  { flag: "http-client-request-timeout", value: "3s", outcome: "means", option: "3000000000" },
  { flag: "topology-region", value: "r", outcome: "means" },
  { flag: "topology-zone", value: "z", outcome: "means" },
  { flag: "data-path", value: "/tmp/x", outcome: "means" },
  { flag: "mem-queue-size", value: "0", outcome: "noted", toml: "0" },
  { flag: "max-bytes-per-file", value: "1000", outcome: "noted", toml: "1000" },
  { flag: "sync-every", value: "1", outcome: "noted", toml: '"1"' },
  { flag: "sync-timeout", value: "1s", outcome: "noted", option: "1000000000" },
  { flag: "queue-scan-worker-pool-max", value: "2", outcome: "noted", toml: "2" },
  { flag: "queue-scan-selection-count", value: "2", outcome: "noted", toml: "2" },
  { flag: "msg-timeout", value: "30s", outcome: "means", option: "30000000000" },
  { flag: "max-msg-timeout", value: "30m", outcome: "means", option: "1800000000000" },
  { flag: "max-msg-size", value: "1000", outcome: "means", toml: "1000" },
  { flag: "max-body-size", value: "2000000", outcome: "means", toml: "2000000" },
  { flag: "max-req-timeout", value: "2h", outcome: "means", option: "7200000000000" },
  { flag: "max-heartbeat-interval", value: "5m", outcome: "means", option: "300000000000" },
  { flag: "max-rdy-count", value: "50", outcome: "means", toml: "50" },
  { flag: "max-output-buffer-size", value: "1000", outcome: "means", toml: "1000" },
  { flag: "max-output-buffer-timeout", value: "1s", outcome: "means", option: "1000000000" },
  { flag: "min-output-buffer-timeout", value: "50ms", outcome: "means", option: "50000000" },
  { flag: "output-buffer-timeout", value: "100ms", outcome: "means", option: "100000000" },
  { flag: "max-channel-consumers", value: "3", outcome: "means", toml: "3" },
  { flag: "statsd-address", value: "s:8125", outcome: "means" },
  { flag: "statsd-prefix", value: "p.%s", outcome: "means" },
  { flag: "statsd-interval", value: "10s", outcome: "means", option: "10000000000" },
  { flag: "statsd-mem-stats", value: "false", outcome: "means", toml: "false" },
  { flag: "statsd-udp-packet-size", value: "1432", outcome: "means", toml: "1432" },
  { flag: "statsd-exclude-ephemeral", value: "true", outcome: "means", toml: "true" },
  {
    flag: "e2e-processing-latency-percentile",
    value: "1.0,0.99",
    outcome: "means",
    key: "e2e_processing_latency_percentiles",
    toml: "[1.0, 0.99]",
    option: "[1,0.99]",
  },
  {
    flag: "e2e-processing-latency-window-time",
    value: "1m",
    outcome: "means",
    option: "60000000000",
  },
  {
    flag: "enable-experiment",
    value: "topology-aware-consumption",
    outcome: "noted",
    toml: '["topology-aware-consumption"]',
    option: '["topology-aware-consumption"]',
  },
];

/** Flags of TLS, compression and authorization: they are known, whatever becomes of them. */
const KNOWN: readonly (readonly [flag: string, value: string])[] = [
  ["https-address", "127.0.0.1:14152"],
  ["tls-cert", "c.pem"],
  ["tls-key", "k.pem"],
  ["tls-client-auth-policy", "require"],
  ["tls-root-ca-file", "ca.pem"],
  ["tls-required", "true"],
  ["tls-min-version", "tls1.2"],
  ["deflate", "false"],
  ["snappy", "false"],
  ["max-deflate-level", "3"],
  ["auth-http-address", "a:1"],
  ["auth-http-request-method", "post"],
];

/** What became of a command line and a file. */
function outcomeOf(args: readonly string[], file = "") {
  try {
    const { values, notices } = loadSettings(DECLARATION, { args, env: {}, readFile: () => file });
    return { values, notices, problems: [] };
  } catch (error) {
    ok(error instanceof SettingsError);
    return { values: null, notices: [], problems: error.problems };
  }
}

function check(row: Row, how: string, found: ReturnType<typeof outcomeOf>): void {
  const { values, notices, problems } = found;
  equal(problems, [], how);
  equal(notices.length, row.outcome === "noted" ? 1 : 0, how);
  ok(values !== null);
  const key = row.key ?? row.flag.replaceAll("-", "_");
  equal(configOption(DECLARATION, values, key)?.body, row.option ?? row.value, how);
}

Deno.test("every flag of nsqd is taken in each of Go's spellings", () => {
  for (const row of ROWS) {
    const { flag, value } = row;
    for (const args of [[`--${flag}=${value}`], [`-${flag}=${value}`]]) {
      check(row, args.join(" "), outcomeOf(args));
    }
    const bare = Object.values(DECLARATION.settings).find(({ name }) => name === flag)?.kind.bare;
    if (bare === undefined) {
      for (const dashes of ["-", "--"]) {
        check(row, `${dashes}${flag} ${value}`, outcomeOf([`${dashes}${flag}`, value]));
      }
    } else if (value === bare) {
      check(row, `-${flag}`, outcomeOf([`-${flag}`]));
    }
  }
});

Deno.test("every flag of nsqd is a key of its file", () => {
  for (const row of ROWS) {
    const key = row.key ?? row.flag.replaceAll("-", "_");
    const file = `${key} = ${row.toml ?? JSON.stringify(row.value)}`;
    check(row, file, outcomeOf(["-config", "nsqd.cfg"], file));
  }
});

Deno.test("a flag of nsqd that takes several values may be repeated", () => {
  const repeated = [
    ["lookupd-tcp-address", "nsqlookupd_tcp_addresses", ["a:1", "b:2,c:3"], '["a:1","b:2","c:3"]'],
    [
      "e2e-processing-latency-percentile",
      "e2e_processing_latency_percentiles",
      ["0.95", "0.99,0.5"],
      "[0.99,0.95,0.5]",
    ],
  ] as const;
  for (const [flag, key, values, option] of repeated) {
    const found = outcomeOf(values.map((value) => `-${flag}=${value}`));
    ok(found.values !== null);
    equal(configOption(DECLARATION, found.values, key)?.body, option);
  }
});

Deno.test("every other flag of nsqd is known, in the file too", () => {
  for (const [flag, value] of KNOWN) {
    const found = [
      outcomeOf([`--${flag}=${value}`]),
      outcomeOf(["--config=f"], `${flag.replaceAll("-", "_")} = "${value}"`),
    ];
    for (const { problems } of flag === "auth-http-address" ? found.slice(0, 1) : found) {
      for (const problem of problems) ok(!problem.startsWith("unknown"), problem);
    }
  }
  const rows = new Set([...ROWS.map((row) => row.flag), ...KNOWN.map(([flag]) => flag)]);
  equal(rows.size, ROWS.length + KNOWN.length, "no flag has two rows");
});

Deno.test("a file of nsqd as people have it is taken", () => {
  const found = outcomeOf(
    ["--config=/etc/nsq/nsqd.cfg"],
    `
# what stands commented out is left out
id = 5
log_level = "info"
tcp_address = "0.0.0.0:4150"
http_address = "0.0.0.0:4151"
nsqlookupd_tcp_addresses = [
    "127.0.0.1:4160",
]
mem_queue_size = 10000
max_bytes_per_file = 104857600
sync_every = 2500
sync_timeout = "2s"
msg_timeout = "60s"
max_msg_timeout = "15m"
max_msg_size = 1024768
max_req_timeout = "1h"
max_body_size = 5123840
max_heartbeat_interval = "60s"
max_rdy_count = 2500
max_output_buffer_size = 65536
max_output_buffer_timeout = "1s"
statsd_address = "127.0.0.1:8125"
statsd_prefix = "nsq.%s"
statsd_interval = "60s"
statsd_mem_stats = true
e2e_processing_latency_percentiles = [1.0, 0.99, 0.95]
e2e_processing_latency_window_time = "10m"
tls_cert = ""
tls_key = ""
tls_required = false
max_deflate_level = 6
`,
  );
  equal(found.problems, []);
  equal([found.values?.nodeId, found.values?.maxOutputBufferTimeoutMs], [5, 1000]);
  equal(found.values?.endToEndLatencyPercentiles, [1, 0.99, 0.95]);
});

Deno.test("what nsqd refuses at the start is refused", () => {
  const wrong = [
    "--node-id=1024",
    "--max-deflate-level=10",
    "--e2e-processing-latency-percentile=0",
    "--e2e-processing-latency-percentile=1.1",
    "--log-level=loud",
    "--statsd-udp-packet-size=0",
    "--no-such-flag",
    "stray",
  ];
  for (const argument of wrong) equal(outcomeOf([argument]).problems.length, 1, argument);
});
