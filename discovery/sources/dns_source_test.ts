import { deepStrictEqual as equal } from "node:assert/strict";
import { NameResolutionError, type NameResolver } from "@sluice/shared/runtime";
import { SystemClock, SystemNameResolver } from "@sluice/shared/runtime/system";
import { NameServerFixture, SimClock } from "@sluice/shared/testing";
import { type DnsName, DnsSource, EMPTY_HOLD_MS, parseDnsName, showDnsName } from "./dns_source.ts";
import { SourceView } from "./source.ts";

const INTERVAL_MS = 5_000;
const NAME: DnsName = { kind: "address", name: "brokers.test", port: 4151 };

/** A resolver whose answer a test sets, and a source that asks it in simulated time. */
class DnsStage {
  readonly clock = new SimClock();
  answer: string[] | Error = [];
  asked = 0;
  readonly source: DnsSource;
  readonly view: SourceView;
  readonly broken: unknown[] = [];

  constructor(answer: string[] | Error) {
    this.answer = answer;
    const resolver: NameResolver = {
      addresses: () => {
        this.asked += 1;
        return this.answer instanceof Error
          ? Promise.reject(this.answer)
          : Promise.resolve(this.answer);
      },
      services: () => Promise.reject(new Error("nobody asks for services")),
    };
    this.source = new DnsSource({
      name: NAME,
      resolver,
      clock: this.clock,
      intervalMs: INTERVAL_MS,
      onBroken: (error) => this.broken.push(error),
    });
    this.view = new SourceView(this.source, this.clock, () => {});
    this.source.start(this.view);
  }

  get shown(): string {
    const { state } = this.view.status();
    return `${state}: ${[...this.view.endpoints.keys()].join(" ")}`;
  }
}

Deno.test("DnsSource lists what a name stands for, and looks again after each interval", async () => {
  const stage = new DnsStage(["10.0.0.1", "fd00::1"]);
  await stage.clock.run(1);
  equal(stage.shown, "current: 10.0.0.1:4151 [fd00::1]:4151");
  const { version } = stage.view.status();
  stage.answer = ["fd00::1", "10.0.0.1"];
  await stage.clock.run(INTERVAL_MS);
  equal([stage.asked, stage.view.status().version], [2, version]);
  stage.answer = ["10.0.0.2"];
  await stage.clock.run(INTERVAL_MS);
  equal(stage.shown, "current: 10.0.0.2:4151");
  await stage.source.stop();
  equal([stage.clock.pendingTimers, stage.broken], [0, []]);
});

Deno.test("DnsSource that gets no answer keeps what it had, is stale, and comes back", async () => {
  const stage = new DnsStage(new NameResolutionError("Cannot look up brokers.test: timed out"));
  await stage.clock.run(1);
  equal([stage.shown, stage.view.status().reason], [
    "failed: ",
    "Cannot look up brokers.test: timed out",
  ]);
  stage.answer = ["10.0.0.1"];
  await stage.clock.run(INTERVAL_MS);
  equal(stage.shown, "current: 10.0.0.1:4151");
  stage.answer = new NameResolutionError("Cannot look up brokers.test: timed out");
  await stage.clock.run(10 * EMPTY_HOLD_MS);
  equal(stage.shown, "stale: 10.0.0.1:4151");
  stage.answer = ["10.0.0.1"];
  await stage.clock.run(INTERVAL_MS);
  equal(stage.shown, "current: 10.0.0.1:4151");
  await stage.source.stop();
});

Deno.test("DnsSource takes an empty answer for trouble at first, and for nobody only when it lasts", async () => {
  const stage = new DnsStage(["10.0.0.1"]);
  await stage.clock.run(1);
  stage.answer = [];
  await stage.clock.run(EMPTY_HOLD_MS - INTERVAL_MS);
  equal(stage.shown, "stale: 10.0.0.1:4151");
  stage.answer = ["10.0.0.1"];
  await stage.clock.run(INTERVAL_MS);
  stage.answer = [];
  await stage.clock.run(EMPTY_HOLD_MS);
  equal(stage.shown, "stale: 10.0.0.1:4151");
  await stage.clock.run(2 * INTERVAL_MS);
  equal(stage.shown, "current: ");
  await stage.source.stop();
});

Deno.test("DnsSource passes on a mistake of ours", async () => {
  const stage = new DnsStage(new TypeError("a mistake"));
  await stage.clock.run(1);
  equal(stage.broken.length, 1);
  await stage.source.stop();
});

Deno.test("DnsSource finds brokers by a real name server: addresses with a port, services with theirs", async () => {
  const server = await NameServerFixture.start();
  server.records = {
    "brokers.test": { A: ["127.0.0.1"], AAAA: ["::1"] },
    "_nsqd._tcp.brokers.test": { SRV: [{ host: "b0.test", port: 5151 }] },
  };
  const resolver = new SystemNameResolver({ ipAddress: "127.0.0.1", port: server.port });
  const clock = new SystemClock();
  const listed = async (text: string) => {
    const name = parseDnsName(text)!;
    const { promise, resolve, reject } = Promise.withResolvers<string[]>();
    const source = new DnsSource({ name, resolver, clock, intervalMs: 60_000, onBroken: reject });
    source.start({
      listed: (endpoints) => resolve(endpoints.map(({ host, port }) => `${host} ${port}`)),
      changed: () => reject(new Error("it only lists")),
      failed: (reason) => reject(new Error(reason)),
    });
    try {
      return await promise;
    } finally {
      await source.stop();
    }
  };
  try {
    equal(await listed("brokers.test:5000"), ["127.0.0.1 5000", "::1 5000"]);
    equal(await listed("_nsqd._tcp.brokers.test"), ["b0.test 5151"]);
  } finally {
    await server.close();
  }
});

Deno.test("parseDnsName() takes names with and without a port, and services, and nothing else", () => {
  const rows: readonly (readonly [string, string | undefined])[] = [
    ["brokers", "brokers:4151"],
    ["brokers.internal:80", "brokers.internal:80"],
    ["brokers.internal.", "brokers.internal.:4151"],
    ["_nsqd._tcp.brokers", "_nsqd._tcp.brokers"],
    ["_nsqd._tcp.brokers:4151", undefined],
    ["", undefined],
    [".", undefined],
    ["a..b", undefined],
    ["a b", undefined],
    ["a:0", undefined],
    ["a:65536", undefined],
    ["a:", undefined],
    ["http://a", undefined],
    ["a".repeat(64), undefined],
    [Array.from({ length: 64 }, () => "aaa").join("."), undefined],
  ];
  for (const [given, shown] of rows) {
    const name = parseDnsName(given);
    equal(name === undefined ? undefined : showDnsName(name), shown, given);
  }
});
