/** Readiness of the gateway, as a table. */
import { deepStrictEqual as equal, match } from "node:assert/strict";
import { type HealthFacts, judgeHealth, type SpoolHealth, startingHealth } from "./health.ts";

const SPOOL: SpoolHealth = {
  depth: 0,
  body_bytes: 0,
  file_bytes: 0,
  oldest_age_ms: null,
  quarantined: 0,
};
const WELL: HealthFacts = {
  version: "1.3.0",
  draining: false,
  listed: 3,
  usable: 2,
  spool: SPOOL,
  spoolRefuses: null,
  lost: [],
};

type Row = readonly [
  facts: Partial<HealthFacts>,
  status: "ok" | "degraded" | "unavailable",
  accepting: boolean,
  codes: readonly string[],
];

const ROWS: readonly Row[] = [
  [{}, "ok", true, []],
  [{ spool: null }, "ok", true, []],
  [{ usable: 1 }, "ok", true, []],
  [{ draining: true }, "unavailable", false, ["draining"]],
  [{ draining: true, usable: 0 }, "unavailable", false, ["draining", "no_broker"]],
  [{ usable: 0 }, "degraded", true, ["no_broker"]],
  [{ usable: 0, listed: 0 }, "degraded", true, ["no_broker"]],
  [{ usable: 0, spool: null }, "unavailable", false, ["no_broker"]],
  [{ spoolRefuses: "full" }, "degraded", true, ["spool_full"]],
  [{ spoolRefuses: "stale" }, "degraded", true, ["spool_stale"]],
  [{ spoolRefuses: "failed" }, "degraded", true, ["spool_failed"]],
  [{ spoolRefuses: "full", usable: 0 }, "unavailable", false, ["no_broker", "spool_full"]],
  [{ spoolRefuses: "stale", usable: 0 }, "unavailable", false, ["no_broker", "spool_stale"]],
  [{ spoolRefuses: "failed", usable: 0 }, "unavailable", false, ["no_broker", "spool_failed"]],
  [{ spool: { ...SPOOL, depth: 5 } }, "degraded", true, ["backlog"]],
  [{ spool: { ...SPOOL, quarantined: 2 } }, "degraded", true, ["quarantine"]],
  [{ lost: ["http://a:4161: timeout"] }, "degraded", true, ["discovery_lost"]],
  [{ lost: ["a", "b"] }, "degraded", true, ["discovery_lost", "discovery_lost"]],
  [
    {
      draining: true,
      usable: 0,
      spoolRefuses: "full",
      spool: { ...SPOOL, depth: 1, quarantined: 1 },
      lost: ["a"],
    },
    "unavailable",
    false,
    ["draining", "no_broker", "spool_full", "backlog", "quarantine", "discovery_lost"],
  ],
];

Deno.test("judgeHealth() says what its table says", () => {
  for (const [facts, status, accepting, codes] of ROWS) {
    const health = judgeHealth({ ...WELL, ...facts });
    equal(
      [health.status, health.accepting, health.reasons.map(({ code }) => code)],
      [status, accepting, codes],
      JSON.stringify(facts),
    );
  }
});

Deno.test("judgeHealth() tells people what becomes of publishes, and how much waits", () => {
  const message = (facts: Partial<HealthFacts>) =>
    judgeHealth({ ...WELL, ...facts }).reasons.map((reason) => reason.message).join("; ");
  equal(message({ usable: 0 }), "none of 3 brokers takes publishes: publishes are spooled");
  equal(
    message({ usable: 0, listed: 0, spool: null }),
    "no broker is known: publishes are refused",
  );
  match(message({ spool: { ...SPOOL, depth: 5, quarantined: 2 } }), /^5 publishes .*; 2 publishes/);
  equal(message({ lost: ["http://a:4161: it is away"] }), "http://a:4161: it is away");
});

Deno.test("judgeHealth() passes on the version, the brokers and the spool", () => {
  const { version, brokers, spool } = judgeHealth(WELL);
  equal([version, brokers, spool], ["1.3.0", { listed: 3, usable: 2 }, SPOOL]);
  equal(judgeHealth({ ...WELL, spool: null }).spool, null);
});

Deno.test("startingHealth() is not ready, and says why", () => {
  const { status, accepting, reasons } = startingHealth();
  equal([status, accepting, reasons.map(({ code }) => code)], ["unavailable", false, ["starting"]]);
});
