/** The gateway put together, in a simulated world. */
import { deepStrictEqual as equal, match, ok, rejects } from "node:assert/strict";
import {
  encodeAuth,
  encodeIdentify,
  encodePub,
  MAGIC_V2,
  utf8Bytes,
} from "@sluice/shared/protocol";
import { DiskError } from "@sluice/shared/runtime";
import { ListenError, TlsFilesError } from "@sluice/shared/server";
import { settle, tlsPair } from "@sluice/shared/testing";
import { Machine } from "./machine_test.ts";

function pub(text: string): Uint8Array {
  return encodePub("t", utf8Bytes(text));
}

Deno.test("a gateway takes publishes over NSQ and HTTP, and a broker gets them", async () => {
  const machine = new Machine();
  const gateway = await machine.ready();
  equal(await machine.health(), [200, "ok", []]);
  const client = await machine.connect(pub("by tcp"));
  equal(client.take(), ["OK"]);
  equal(await machine.ask("POST", "/pub?topic=t", "by http"), "OK");
  equal(machine.bodies, ["by tcp", "by http"]);
  await machine.stop(gateway, client);
});

Deno.test("a gateway tells its addresses, its figures and its brokers over HTTP", async () => {
  const machine = new Machine();
  const gateway = await machine.ready("--broadcast-address=gateway.example");
  await machine.ask("POST", "/pub?topic=t", "a");
  match(
    await machine.ask("GET", "/info"),
    /"broadcast_address":"gateway.example","hostname":"host","http_port":4151,"tcp_port":4150,/,
  );
  match(await machine.ask("GET", "/stats"), /\n {2}broker:4150 +usable .* confirmed: 1\n/);
  const metrics = await machine.ask("GET", "/metrics");
  for (
    const line of [
      /^sluice_gateway_publishes_total\{outcome="confirmed"\} 1$/m,
      /^sluice_gateway_brokers\{state="usable"\} 1$/m,
      /^sluice_gateway_ready 1$/m,
      /^sluice_gateway_accept_failures_total\{protocol="http"\} 3$/m,
      /^sluice_gateway_receiving_bytes 0$/m,
      /^sluice_process_resident_bytes 5$/m,
      /^sluice_http_requests_total\{method="POST",route="\/pub",status="2xx"\} 1$/m,
      /^sluice_http_requests_total\{method="GET",route="\/info",status="2xx"\} 1$/m,
    ]
  ) {
    match(metrics, line);
  }
  await machine.stop(gateway);
});

Deno.test("without a spool a gateway without brokers refuses, and is not ready", async () => {
  const machine = new Machine();
  machine.broker.down();
  const gateway = await machine.ready("--publish-timeout=1s");
  equal(await machine.health(), [503, "unavailable", ["no_broker"]]);
  ok(machine.lines.some((line) => line.includes("no --data-path for a spool")));
  const asking = machine.fetch("POST", "/pub?topic=t", "a");
  await machine.clock.run(1_100);
  equal((await asking).status, 429);
  machine.broker.up();
  await machine.clock.run(3_000);
  equal(await machine.health(), [200, "ok", []]);
  equal(await machine.ask("POST", "/pub?topic=t", "b"), "OK");
  equal(machine.bodies, ["b"]);
  await machine.stop(gateway);
});

Deno.test("with a spool it is ready without brokers, and brokers get what is spooled when they are back", async () => {
  const machine = new Machine();
  machine.broker.down();
  const gateway = await machine.ready("--data-path=/data");
  equal(await machine.health(), [200, "degraded", ["no_broker"]]);
  const client = await machine.connect(pub("a"));
  await machine.clock.run(300);
  equal(client.take(), ["OK"]);
  const response = await machine.fetch("POST", "/pub?topic=t", "b");
  equal([response.status, response.headers.get("sluice-spooled")], [200, "true"]);
  await response.body?.cancel();
  equal(await machine.health(), [200, "degraded", ["no_broker", "backlog"]]);
  machine.broker.up();
  await machine.clock.run(5_000);
  equal(machine.bodies, ["a", "b"]);
  equal(await machine.health(), [200, "ok", []]);
  await machine.stop(gateway, client);
});

Deno.test("what is in the spool goes on at the next start, in order and before what comes then", async () => {
  const machine = new Machine();
  machine.broker.down();
  const first = await machine.ready("--data-path=/data");
  const texts = Array.from({ length: 50 }, (_, at) => `m${at}`);
  const asking = Promise.all(texts.map((text) => machine.ask("POST", "/pub?topic=t", text)));
  await machine.clock.run(500);
  equal(new Set(await asking), new Set(["OK"]));
  await machine.stop(first);
  ok(machine.lines.some((line) => line.includes("Publishes are left in the spool")));
  machine.lines.length = 0;
  machine.broker.up();
  const second = await machine.ready("--data-path=/data");
  ok(machine.lines.some((line) => /Opened the spool .*publishes=50/.test(line)));
  equal(await machine.ask("POST", "/pub?topic=t", "late"), "OK");
  await machine.clock.run(5_000);
  equal(machine.bodies, [...texts, "late"]);
  await machine.stop(second);
});

Deno.test("HTTP is up while the spool is read: alive, not ready, and NSQ is not there yet", async () => {
  const machine = new Machine();
  machine.broker.down();
  const first = await machine.ready("--data-path=/data");
  const asking = machine.ask("POST", "/pub?topic=t", "kept");
  await machine.clock.run(300);
  equal(await asking, "OK");
  await machine.stop(first);
  let release: () => void = () => {};
  machine.disk.gate = new Promise((resolve) => release = resolve);
  const starting = machine.start("--data-path=/data");
  await settle();
  equal(await machine.ask("GET", "/ping"), "OK");
  equal(await machine.health(), [503, "unavailable", ["starting"]]);
  await rejects(machine.network.connect("127.0.0.1", 4150, 1000));
  const early = machine.fetch("POST", "/pub?topic=t", "early");
  await machine.clock.run(1_000);
  equal([(await early).status, (await early).headers.get("retry-after")], [503, "1"]);
  await (await early).body?.cancel();
  const patient = machine.ask("POST", "/pub?topic=t", "patient");
  release();
  const second = await machine.clock.runUntil(starting, 1_000);
  machine.broker.up();
  await machine.clock.run(5_000);
  equal([await patient, machine.bodies], ["OK", ["kept", "patient"]]);
  await machine.stop(second);
});

Deno.test("stopping answers what a broker is still to answer, and refuses nothing that it took", async () => {
  const machine = new Machine();
  const gateway = await machine.ready();
  machine.broker.deed = () => "stored, silent";
  const client = await machine.connect(pub("a"));
  const asking = machine.ask("POST", "/pub?topic=t", "b");
  await settle();
  const stopping = gateway.stop();
  await machine.clock.run(1_000);
  equal([client.take(), client.isOver], [[], false]);
  equal((await machine.health())[2], ["draining"]);
  machine.broker.deed = () => "ok";
  machine.broker.speak();
  await machine.clock.runUntil(stopping, 20_000);
  equal([client.take(), await asking], [["OK"], "OK"]);
  equal(machine.bodies, ["a", "b"]);
  await machine.checkClean();
});

Deno.test("stopping spools after half of its time what has no answer, for the broker that may have it", async () => {
  const machine = new Machine();
  const flags = ["--data-path=/data", "--publish-timeout=1h", "--broker-dedup-window=3h"];
  const first = await machine.ready(...flags);
  machine.broker.deed = () => "stored, no answer";
  const client = await machine.connect(pub("maybe"));
  await settle();
  machine.broker.down();
  const asking = machine.fetch("POST", "/pub?topic=u", "never");
  const stopping = first.stop();
  await machine.clock.run(12_400);
  equal(client.take(), []);
  await machine.clock.runUntil(stopping, 20_000);
  equal([client.take(), client.isOver], [["OK"], true]);
  equal((await asking).headers.get("sluice-spooled"), "true");
  await (await asking).body?.cancel();
  await machine.checkClean();
  machine.broker.deed = () => "ok";
  machine.broker.up();
  const second = await machine.ready(...flags);
  await machine.clock.run(5_000);
  equal([machine.bodies, machine.broker.bodies("u")], [["maybe"], ["never"]]);
  equal(machine.broker.repeats, 1);
  await machine.stop(second);
});

Deno.test("stopping without a spool tells what is not known, and what was not stored", async () => {
  const machine = new Machine();
  const gateway = await machine.ready(
    "--publish-timeout=1h",
    "--broker-dedup-window=3h",
    "--shutdown-timeout=16s",
  );
  machine.broker.deed = () => "stored, no answer";
  const maybe = await machine.connect(pub("maybe"));
  machine.broker.down();
  await settle();
  const never = await machine.connect(pub("never"));
  await machine.clock.runUntil(gateway.stop(), 40_000);
  match(maybe.take()[0] ?? "", /^E_AMBIGUOUS PUB /);
  match(never.take()[0] ?? "", /^E_THROTTLED PUB /);
  await machine.checkClean();
});

Deno.test("for drain-delay publishes are taken while health says draining", async () => {
  const machine = new Machine();
  const gateway = await machine.ready("--drain-delay=5s");
  const client = await machine.connect();
  const stopping = gateway.stop();
  await machine.clock.run(4_000);
  equal(await machine.health(), [503, "unavailable", ["draining"]]);
  await client.send(pub("a"));
  const late = await machine.connect(pub("b"));
  const response = await machine.fetch("POST", "/pub?topic=t", "c");
  equal([response.status, response.headers.get("connection")], [200, "close"]);
  await response.body?.cancel();
  equal([client.take(), late.take()], [["OK"], ["OK"]]);
  await machine.clock.runUntil(stopping, 30_000);
  equal([machine.bodies, client.isOver, late.isOver], [["a", "b", "c"], true, true]);
  await rejects(machine.network.connect("127.0.0.1", 4150, 1000));
  await machine.checkClean();
});

Deno.test("HTTP requests that do not end are cut off in time to stop", async () => {
  const machine = new Machine();
  const gateway = await machine.ready("--shutdown-timeout=10s");
  const { signal } = machine.http!;
  machine.httpBusy = new Promise((resolve) => signal!.addEventListener("abort", () => resolve()));
  const stopping = gateway.stop();
  await machine.clock.run(6_999);
  equal(signal?.aborted, false);
  await machine.clock.runUntil(stopping, 1_000);
  equal(signal?.aborted, true);
  await machine.checkClean();
});

Deno.test("a folder that another gateway holds is refused, and everything is given back", async () => {
  const machine = new Machine();
  const gateway = await machine.ready("--data-path=/data");
  await rejects(
    machine.start("--data-path=/data", "--tcp-address=127.0.0.1:5150"),
    (error: unknown) => error instanceof DiskError && error.kind === "locked",
  );
  equal(machine.http?.signal?.aborted, true);
  await machine.stop(gateway);
});

Deno.test("a taken address is refused with the flag to change, and everything is given back", async () => {
  const machine = new Machine();
  const inUse = (flag: string) => (error: unknown) => {
    ok(error instanceof ListenError);
    match(error.message, new RegExp(`is in use\\. Choose another address with ${flag}$`));
    return true;
  };
  const tunnel = "--tunnel-tcp-address=127.0.0.1:4152";
  for (
    const [port, flag] of [[4150, "--tcp-address"], [4152, "--tunnel-tcp-address"]] as const
  ) {
    const listener = machine.network.listen("127.0.0.1", port);
    await rejects(
      machine.clock.runUntil(machine.start("--data-path=/data", tunnel), 1_000),
      inUse(flag),
    );
    await machine.checkClean();
    listener.close();
  }
  machine.httpTaken = true;
  await rejects(machine.start("--data-path=/data"), inUse("--http-address"));
  await machine.checkClean();
  machine.httpTaken = false;
  await machine.stop(await machine.ready("--data-path=/data", tunnel));
});

Deno.test("a tunnel leads to a broker, and ends when the gateway stops", async () => {
  const machine = new Machine();
  const listener = machine.network.listen("other", 4150);
  const gateway = await machine.ready(
    "--broker-tcp-address=other:4150",
    "--tunnel-tcp-address=127.0.0.1:4152",
  );
  equal(gateway.tunnelPort, 4152);
  const live = await listener.accept();
  const consumer = await machine.network.connect("127.0.0.1", 4152, 1000);
  await consumer.writeAll(MAGIC_V2);
  const passed = await listener.accept();
  const buffer = new Uint8Array(10);
  equal(await passed!.read(buffer), 4);
  await machine.clock.runUntil(gateway.stop(), 30_000);
  equal(await consumer.read(buffer), null);
  for (const connection of [live, passed, consumer]) connection!.close();
  listener.close();
  await machine.checkClean();
});

Deno.test("a publish of an unknown discovery is spooled; health says that discovery is lost", async () => {
  const machine = new Machine();
  const gateway = await machine.ready(
    "--discovery-http-address=discovery:4161",
    "--data-path=/data",
  );
  await machine.clock.run(60_000);
  const [status, word, codes] = await machine.health();
  equal([status, word], [200, "degraded"]);
  ok(codes.includes("no_broker") && codes.includes("discovery_lost"), `${codes}`);
  equal(await machine.ask("POST", "/pub?topic=t", "a"), "OK");
  await machine.stop(gateway);
});

Deno.test("a publish is authorized over NSQ by AUTH and over HTTP by bearer token", async () => {
  const machine = new Machine();
  machine.askHttp = ({ url }) => {
    const allowed = { topic: "^t$", channels: [".*"], permissions: ["publish"] };
    const known = { ttl: 60, identity: "joe", authorizations: [allowed] };
    const text = JSON.stringify(url.includes("opensesame") ? known : { ttl: 1 });
    return Promise.resolve({ status: 200, body: utf8Bytes(text) });
  };
  const gateway = await machine.ready("--auth-http-address=auth:1");
  const client = await machine.connect(
    encodeIdentify({ feature_negotiation: true }),
    encodeAuth(utf8Bytes("opensesame")),
    pub("a"),
  );
  const [identified = "", ...rest] = client.take();
  equal(JSON.parse(identified).auth_required, true);
  equal(rest, ['{"identity":"joe","identity_url":"","permission_count":1}', "OK"]);
  const denied = await machine.connect(pub("b"));
  match(denied.take()[0] ?? "", /^E_AUTH_FIRST/);
  match(await machine.ask("POST", "/pub?topic=t", "c"), /AUTH_REQUIRED/);
  match(await machine.ask("POST", "/pub?topic=other", "c", "opensesame"), /FORBIDDEN/);
  equal(await machine.ask("POST", "/pub?topic=t", "c", "opensesame"), "OK");
  equal(machine.bodies, ["a", "c"]);
  await machine.stop(gateway, client, denied);
  ok(!machine.lines.some((line) => line.includes("opensesame")));
});

Deno.test("a gateway with a certificate serves HTTPS and offers TLS; files that do not fit are refused", async () => {
  const machine = new Machine();
  const flags = ["--tls-cert=cert", "--tls-key=key", "--https-address=127.0.0.1:4152"];
  await rejects(machine.start(...flags), TlsFilesError);
  await machine.checkClean();
  const { cert, key } = tlsPair("server");
  machine.files.set("cert", cert);
  machine.files.set("key", key);
  const gateway = await machine.ready(...flags, "--tls-required");
  ok(machine.https !== null);
  equal(
    await machine.ask("GET", "/ping"),
    '{"message": "TLS_REQUIRED", "https_port": 4152}',
  );
  const client = await machine.connect(pub("in clear"));
  match(client.take()[0] ?? "", /^E_INVALID cannot PUB in current state \(TLS required\)/);
  await machine.stop(gateway, client);
});

Deno.test("a spool that cannot be written is told; publishes go on to brokers", async () => {
  const machine = new Machine();
  machine.broker.down();
  const gateway = await machine.ready("--data-path=/data");
  await machine.clock.run(500);
  machine.simDisk.failNext({ operation: "sync", kind: "io" });
  const asking = machine.fetch("POST", "/pub?topic=t", "a");
  await machine.clock.run(500);
  equal((await asking).status, 504, "whether it is in the spool shows at the next start");
  await (await asking).body?.cancel();
  const [status, , codes] = await machine.health();
  ok(status === 503 && codes.includes("spool_failed"), `${codes}`);
  machine.broker.up();
  await machine.clock.run(3_000);
  equal(await machine.ask("POST", "/pub?topic=u", "b"), "OK");
  equal(machine.broken, []);
  await machine.clock.runUntil(gateway.stop().catch(() => {}), 40_000);
  await machine.checkClean();
});
