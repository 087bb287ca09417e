import assert from "node:assert/strict";
import { parseUpOptions, planUp, PORT_OFFSET_MAX, portsOf, type UpOptions } from "./plan.ts";

function parse(...args: string[]): UpOptions | string {
  return parseUpOptions(args, "/here", "/project/.sluice");
}

function options(...args: string[]): UpOptions {
  const parsed = parse(...args);
  assert.ok(typeof parsed !== "string", `not understood: ${parsed}`);
  return parsed;
}

Deno.test("parseUpOptions() has defaults for everything", () => {
  assert.deepEqual(options(), {
    dataPath: "/project/.sluice",
    portOffset: 0,
    once: false,
    verbose: false,
    help: false,
  });
});

Deno.test("parseUpOptions() takes each option, and a relative folder from where the user stands", () => {
  assert.deepEqual(
    options("--data", "a/b/", "--port-offset=100", "--once", "--verbose", "-h"),
    { dataPath: "/here/a/b", portOffset: 100, once: true, verbose: true, help: true },
  );
  assert.equal(options("--data=/x").dataPath, "/x");
  assert.equal(options("--data=/").dataPath, "/");
});

Deno.test("parseUpOptions() says what is wrong", () => {
  for (const bad of ["-1", "1.5", "x", "", "1e3", String(PORT_OFFSET_MAX + 1)]) {
    assert.match(
      String(parse(`--port-offset=${bad}`)),
      /^--port-offset must be from 0 to 61364/,
      bad,
    );
  }
  assert.match(String(parse("--data=")), /must name a folder/);
  assert.match(String(parse("--nope")), /--nope/);
  assert.match(String(parse("extra")), /extra/);
});

Deno.test("planUp() uses nsqd's ports, moved by the offset, and never one twice", () => {
  assert.deepEqual(portsOf(planUp(options())), [4150, 4151, 4160, 4161, 4170, 4171]);
  for (const offset of [10, 9, PORT_OFFSET_MAX]) {
    const ports = portsOf(planUp(options(`--port-offset=${offset}`)));
    assert.deepEqual(ports, [4150, 4151, 4160, 4161, 4170, 4171].map((port) => port + offset));
    assert.equal(new Set(ports).size, 6);
    assert.ok(Math.max(...ports) <= 65_535);
  }
});

Deno.test("planUp() starts services with nsqd's flags, on this machine only", () => {
  const { broker, discovery, gateway } = planUp(options("--data=/d", "--port-offset=5"));
  assert.deepEqual(broker.command, [
    "run",
    "-P=broker",
    "broker/main.ts",
    "--tcp-address=127.0.0.1:4155",
    "--http-address=127.0.0.1:4156",
    "--broadcast-address=127.0.0.1",
    "--data-path=/d/broker",
    "--lookupd-tcp-address=127.0.0.1:4165",
  ]);
  assert.deepEqual(discovery.command, [
    "run",
    "-P=discovery",
    "discovery/main.ts",
    "--tcp-address=127.0.0.1:4165",
    "--http-address=127.0.0.1:4166",
    "--broadcast-address=127.0.0.1",
  ]);
  assert.deepEqual(gateway.command, [
    "run",
    "-P=gateway",
    "gateway/main.ts",
    "--tcp-address=127.0.0.1:4175",
    "--http-address=127.0.0.1:4176",
    "--broadcast-address=127.0.0.1",
    "--data-path=/d/gateway",
    "--discovery-http-address=127.0.0.1:4166",
  ]);
  assert.equal(broker.logPath, "/d/broker.log");
});
