/** Every reason, alone and together. */
import { deepStrictEqual as equal } from "node:assert/strict";
import { type HealthFacts, judgeHealth, probedHealth, recoveringHealth } from "./health.ts";

const WELL: HealthFacts = {
  version: "1",
  stopping: false,
  drainingSinceMs: null,
  deliveryFrozen: false,
  slowSinceMs: null,
  failure: null,
  pressure: null,
  stalled: null,
  openedMs: 0,
  damagedPlaces: 0,
  scrubbedPlaces: 0,
  orphanRecords: 0,
  damagedMessages: 0,
};
const OPENED = "1970-01-01T00:00:00.000Z";
const LATER = "1970-01-01T00:00:01.500Z";

Deno.test("a broker with nothing to say against it is ok", () => {
  equal(judgeHealth(WELL), {
    status: "ok",
    accepting: true,
    delivering: true,
    reasons: [],
    version: "1",
  });
});

const ROWS: readonly [Partial<HealthFacts>, string, boolean, boolean, object][] = [
  [{ stopping: true }, "unavailable", false, false, {
    code: "stopping",
    message: "the broker is stopping",
  }],
  [{ drainingSinceMs: 1500 }, "degraded", false, true, {
    code: "draining",
    message: "publishes are refused by request",
    since: LATER,
  }],
  [{ slowSinceMs: 1500 }, "degraded", false, true, {
    code: "storage_slow",
    message: "the disk has not answered a write of the log for too long",
    since: LATER,
  }],
  [{ failure: { message: "EIO", sinceMs: 1500 } }, "unavailable", false, false, {
    code: "storage_fault",
    message: "EIO",
    since: LATER,
  }],
  [{ stalled: "no space" }, "degraded", false, true, { code: "log_stalled", message: "no space" }],
  [{ pressure: { message: "the disk is nearly full", sinceMs: 1500 } }, "degraded", false, true, {
    code: "disk_pressure",
    message: "the disk is nearly full",
    since: LATER,
  }],
  [{ damagedPlaces: 1 }, "degraded", true, true, {
    code: "damaged",
    message: "1 damaged place in the log",
    since: OPENED,
  }],
  [{ damagedMessages: 2 }, "degraded", true, true, {
    code: "damaged",
    message: "2 messages passed over",
  }],
  [{ scrubbedPlaces: 1 }, "degraded", true, true, {
    code: "damaged",
    message: "1 place found by scrubbing",
  }],
  [{ damagedPlaces: 3, orphanRecords: 1, damagedMessages: 1 }, "degraded", true, true, {
    code: "damaged",
    message:
      "3 damaged places in the log, 1 record of a lost topic or channel, 1 message passed over",
    since: OPENED,
  }],
];

for (const [facts, status, accepting, delivering, reason] of ROWS) {
  Deno.test(`a broker with ${JSON.stringify(facts)} is ${status} and says why`, () => {
    const health = judgeHealth({ ...WELL, ...facts });
    equal(health, { status, accepting, delivering, reasons: [reason], version: "1" });
  });
}

Deno.test("the worst reason decides, and all are told", () => {
  const health = judgeHealth({
    ...WELL,
    stopping: true,
    drainingSinceMs: 0,
    slowSinceMs: 0,
    failure: { message: "EIO", sinceMs: 0 },
    stalled: "no space",
    pressure: { message: "the disk is full", sinceMs: 0 },
    damagedMessages: 1,
  });
  equal([health.status, health.accepting, health.delivering], ["unavailable", false, false]);
  equal(
    health.reasons.map(({ code }) => code),
    [
      "stopping",
      "storage_fault",
      "draining",
      "storage_slow",
      "log_stalled",
      "disk_pressure",
      "damaged",
    ],
  );
});

Deno.test("a broker that drains and delivers nothing is of no use to anybody", () => {
  const health = judgeHealth({ ...WELL, drainingSinceMs: 0, deliveryFrozen: true });
  equal([health.status, health.accepting, health.delivering], ["unavailable", false, false]);
  equal(health.reasons.map(({ code }) => code), ["delivery_frozen", "draining"]);
});

Deno.test("a probe that went well changes nothing and tells its duration in ms", () => {
  const health = judgeHealth({ ...WELL, damagedMessages: 1 });
  equal(probedHealth(health, 1.23456, null), { ...health, write_probe: { duration_ms: 1.235 } });
});

for (const code of ["write_probe_failed", "write_probe_slow"] as const) {
  Deno.test(`${code} is unavailable and takes no publish, whatever else holds`, () => {
    const health = judgeHealth({ ...WELL, damagedMessages: 1 });
    const failure = { code, message: "no answer" };
    equal(probedHealth(health, 2000, failure), {
      ...health,
      status: "unavailable",
      accepting: false,
      reasons: [...health.reasons, failure],
      write_probe: { duration_ms: 2000 },
    });
  });
}

Deno.test("a start under way is unavailable and tells how far it is, once it knows", () => {
  const facts = { version: "1", sinceMs: 1500, replayedBytes: 0, totalBytes: null };
  const early = {
    status: "unavailable",
    accepting: false,
    delivering: false,
    reasons: [{ code: "recovering", message: "the broker reads its log", since: LATER }],
    version: "1",
  };
  equal(recoveringHealth(facts), early);
  equal(recoveringHealth({ ...facts, replayedBytes: 5, totalBytes: 9 }), {
    ...early,
    recovery: { replayed_bytes: 5, total_bytes: 9 },
  });
});
