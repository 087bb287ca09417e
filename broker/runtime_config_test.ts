import { deepStrictEqual as equal } from "node:assert/strict";
import { loadSettings, showAddress } from "@sluice/shared/config";
import { showLogLevels } from "@sluice/shared/telemetry";
import { brokerSettings } from "./config.ts";
import { RuntimeConfig } from "./runtime_config.ts";

function newConfig(...args: string[]) {
  const declaration = brokerSettings("host");
  const { values } = loadSettings(declaration, { args, env: {}, readFile: () => "" });
  const changes: string[] = [];
  const config = new RuntimeConfig(declaration, values, {
    logLevel: (levels) => changes.push(showLogLevels(levels)),
    lookupdTcpAddresses: (addresses) => changes.push(addresses.map(showAddress).join()),
  });
  return { config, changes };
}

Deno.test("RuntimeConfig.get() answers as nsqd does, by the name in the file", () => {
  const { config } = newConfig("--lookupd-tcp-address=a:1");
  const cases: [option: string, body: string, json: boolean][] = [
    ["nsqlookupd_tcp_addresses", '["a:1"]', true],
    ["broadcast_address", "host", false],
    ["log_level", "2", true],
    ["msg_timeout", "60000000000", true],
    ["max_msg_size", "1048576", true],
    ["e2e_processing_latency_percentiles", "[]", true],
    ["statsd_address", "", false],
  ];
  for (const [option, body, json] of cases) equal(config.get(option), { body, json }, option);
  for (const option of ["nope", "node_id", "config", "version", "lookupd_tcp_address"]) {
    equal(config.get(option), undefined, option);
  }
});

Deno.test("RuntimeConfig.change() changes the log level and the discovery services", () => {
  const { config, changes } = newConfig();
  equal(config.change("log_level", "debug"), null);
  equal(config.change("log_level", "WARN,storage=debug"), null);
  equal(config.get("log_level")?.body, "3", "the number of the level for all, as in nsqd");
  equal(config.change("log_level", "FATAL"), null);
  equal(config.get("log_level")?.body, "5");
  equal(config.change("nsqlookupd_tcp_addresses", '["b:1", "c:2"]'), null);
  equal(config.get("nsqlookupd_tcp_addresses")?.body, '["b:1","c:2"]');
  equal(config.change("nsqlookupd_tcp_addresses", "[]"), null);
  equal(changes, ["debug", "warn,storage=debug", "fatal", "b:1,c:2", ""]);
});

Deno.test("RuntimeConfig.text() gives what change() takes back", () => {
  const { config } = newConfig();
  equal(config.change("log_level", "warn,storage=debug"), null);
  equal(config.text("log_level"), "warn,storage=debug");
  equal(config.change("log_level", config.text("log_level") ?? ""), null);
  equal([config.text("max_msg_size"), config.text("nope")], ["1MiB", undefined]);
});

Deno.test("RuntimeConfig.change() refuses other options and other values, and changes nothing", () => {
  const { config, changes } = newConfig("--lookupd-tcp-address=a:1");
  for (const word of ["bad", '"info"', " info", "", "nope=info", "info,storage=bad"]) {
    equal(config.change("log_level", word), "INVALID_VALUE", word);
  }
  for (const text of ["x", "[1]", '"a:1"', "null", '["bad"]', '["/a/path"]', "{}"]) {
    equal(config.change("nsqlookupd_tcp_addresses", text), "INVALID_VALUE", text);
  }
  for (const option of ["msg_timeout", "lookupd_tcp_address", "nope"]) {
    equal(config.change(option, "1"), "INVALID_OPTION", option);
  }
  equal([changes, config.get("nsqlookupd_tcp_addresses")?.body], [[], '["a:1"]']);
});
