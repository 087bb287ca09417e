/** The checker is given made-up histories, each with one thing wrong, and must say so. */
import { deepStrictEqual as equal, match } from "node:assert/strict";
import { BACK_MS_MAX, judge, type JudgeOptions, type Verdict } from "./checker.ts";
import { bodyOf, History, type PublishRecord, type Span } from "./history.ts";

const BROKERS = ["broker-1", "broker-2"];
const OPTIONS: JudgeOptions = { brokers: BROKERS, spooledBetweenMs: null };
const FIRST_MS = 1_000_000;

/** A history of which the test says what was published and what came. */
class MadeUp {
  readonly history = new History();
  #number = 0;
  #arrivals = 0;

  publish(
    result: PublishRecord["result"] = "ok",
    more: Partial<PublishRecord> = {},
  ): PublishRecord {
    const first = this.#number;
    this.#number += more.count ?? 1;
    const publish: PublishRecord = {
      producer: "p",
      first,
      count: 1,
      topic: "orders",
      door: "http",
      gateway: "gateway-1",
      startMs: FIRST_MS,
      endMs: FIRST_MS + 10,
      deferMs: 0,
      result,
      text: "",
      spooled: null,
      ...more,
    };
    this.history.publishes.push(publish);
    return publish;
  }

  /** A message comes; a new id at `broker`, unless one is given. */
  come(number: number, broker = 1, more: { id?: string; topic?: string; attempts?: number } = {}) {
    const id = more.id ??
      broker.toString(16).padStart(4, "0") + String(++this.#arrivals).padStart(12, "0");
    const { topic = "orders", attempts = 1 } = more;
    this.history.received({ consumer: "c", topic, id, attempts, body: bodyOf("p", number, 7) });
    return id;
  }

  span(target: string, kind: Span["kind"], fromMs: number, untilMs: number): void {
    this.history.spans.push({ target, kind, fromMs, untilMs });
  }

  judge(more: Partial<JudgeOptions> = {}): Verdict {
    return judge(this.history, { ...OPTIONS, ...more });
  }
}

function countsOf({ counts }: Verdict): Record<string, number> {
  return Object.fromEntries(counts);
}

Deno.test("a history in which all is well has no problems", () => {
  const made = new MadeUp();
  made.publish("ok", { count: 3 });
  for (const number of [0, 1, 2]) made.come(number);
  made.publish("unknown", { text: "the connection has ended" });
  made.publish("unknown");
  made.come(4);
  made.publish("refused");
  made.span("gateway-1", "down", FIRST_MS + 5, FIRST_MS + 6);
  const verdict = made.judge();
  equal([verdict.problems, [...verdict.excused]], [[], [["its gateway was away", 3]]]);
});

Deno.test("a confirmed message that never came is lost, and so is one of a batch", () => {
  const made = new MadeUp();
  made.publish();
  made.publish("ok", { count: 3 });
  made.come(1);
  made.come(3);
  const verdict = made.judge();
  equal(countsOf(verdict), { lost: 2 });
  match(verdict.problems[0]!, /^lost: p\.0 of p 0 on orders by gateway-1 at .*, ok after 10 ms$/);
  match(verdict.problems[1]!, /^lost: p\.2 of p 1-3 on orders/);
});

Deno.test("a message in quarantine is not lost, and is a problem all the same", () => {
  const made = new MadeUp();
  made.publish("ok", { count: 2 });
  made.history.aside("gateway-1", "ambiguous: it was away", bodyOf("p", 0, 3) + bodyOf("p", 1, 3));
  equal(countsOf(made.judge()), { quarantined: 2 });
});

Deno.test("a publish that comes under two ids is stored twice; the same id again is not", () => {
  const made = new MadeUp();
  made.publish();
  made.publish();
  const id = made.come(0);
  made.come(0, 1, { id, attempts: 2 });
  made.come(1, 1);
  made.come(1, 2);
  const verdict = made.judge();
  equal(countsOf(verdict), { "stored twice": 1 });
  match(verdict.problems[0]!, /p\.1 .* at broker-1, .*; .* at broker-2, /);
});

Deno.test("what an unknown publish has made two of is stored twice as well", () => {
  const made = new MadeUp();
  made.publish("unknown");
  made.span("gateway-1", "down", FIRST_MS, FIRST_MS);
  made.come(0, 1);
  made.come(0, 1);
  equal(countsOf(made.judge()), { "stored twice": 1 });
});

Deno.test("what nobody has published is invented: a number, a body, bytes of a body, a topic", () => {
  const made = new MadeUp();
  made.come(5);
  const received = { consumer: "c", topic: "orders", id: "0001000000000099", attempts: 1 };
  made.publish();
  made.history.received({ ...received, body: "something else" });
  made.history.received({ ...received, body: bodyOf("p", 0, 9).slice(0, -1) });
  made.history.received({ ...received, body: bodyOf("p", 0, 9).replace("....", "..x.") });
  made.history.received({ ...received, body: bodyOf("p", 0, 9) });
  made.publish();
  made.come(1, 1, { topic: "others" });
  equal(countsOf(made.judge()), { invented: 5 });
});

Deno.test("a publish that was refused for sure and came all the same is a problem", () => {
  const made = new MadeUp();
  made.publish("refused");
  made.come(0);
  made.span("gateway-1", "down", FIRST_MS, FIRST_MS);
  equal(countsOf(made.judge()), { "refused, yet stored": 1 });
});

Deno.test("a publish that was cut off by an orderly stop and came all the same is a problem", () => {
  const made = new MadeUp();
  made.publish("unknown", { door: "client" });
  made.publish("unknown", { door: "client", endMs: FIRST_MS + 100 });
  made.publish("unknown", { door: "nsqjs" });
  made.come(0);
  made.come(1);
  made.span("gateway-1", "down", FIRST_MS, FIRST_MS + 200);
  made.span("gateway-1", "stopping", FIRST_MS, FIRST_MS + 20);
  equal(countsOf(made.judge()), { "cut off, yet stored": 1 });
});

Deno.test("a deferred message that comes before it is due is early", () => {
  const made = new MadeUp();
  made.publish("ok", { deferMs: 1, startMs: Date.now() - 10, endMs: Date.now() });
  made.publish("ok", { deferMs: 60_000, startMs: Date.now(), endMs: Date.now() });
  made.come(0);
  made.come(1);
  equal(countsOf(made.judge()), { early: 1 });
});

Deno.test("a publish that fails while its gateway is up is a problem, and so is a connection", () => {
  const made = new MadeUp();
  made.publish("refused", { text: "429" });
  made.publish("unknown", { text: "reset" });
  made.publish("refused", { count: 0, text: "cannot connect" });
  made.span("gateway-1", "down", FIRST_MS - 10, FIRST_MS - 1);
  made.span("gateway-1", "down", FIRST_MS + 11, Infinity);
  made.span("gateway-2", "down", 0, Infinity);
  for (const broker of BROKERS) made.span(broker, "away", 0, Infinity);
  const verdict = made.judge();
  equal(countsOf(verdict), { failed: 3 });
  match(verdict.problems[2]!, /p connecting .*: cannot connect$/);
});

Deno.test("a publish may fail for want of room only if the spool is limited and all brokers are away", () => {
  const tries = [
    { limited: "gateway-1", away: BROKERS, untilMs: FIRST_MS, problems: 0 },
    { limited: "gateway-1", away: BROKERS, untilMs: FIRST_MS - BACK_MS_MAX, problems: 0 },
    { limited: "gateway-1", away: BROKERS, untilMs: FIRST_MS - BACK_MS_MAX - 1, problems: 1 },
    { limited: "gateway-1", away: ["broker-1"], untilMs: FIRST_MS, problems: 1 },
    { limited: "gateway-2", away: BROKERS, untilMs: FIRST_MS, problems: 1 },
  ];
  for (const { limited, away, untilMs, problems } of tries) {
    const made = new MadeUp();
    made.publish("refused", { text: "E_THROTTLED" });
    made.span(limited, "spool limited", FIRST_MS, FIRST_MS + 1);
    for (const broker of away) made.span(broker, "away", 0, untilMs);
    equal(made.judge().counts.get("failed") ?? 0, problems);
  }
  const made = new MadeUp();
  made.publish("unknown", { text: "504 AMBIGUOUS" });
  made.span("gateway-1", "spool limited", FIRST_MS, FIRST_MS + 1);
  made.span("broker-1", "away", 0, FIRST_MS);
  equal([...made.judge().excused.keys()], ["ambiguous with a limited spool"]);
});

Deno.test("a producer that is never told is a problem", () => {
  const made = new MadeUp();
  made.publish(null);
  equal(countsOf(made.judge()), { "no answer": 1 });
});

Deno.test("what was spooled and comes in another order is out of order, by broker", () => {
  const made = new MadeUp();
  for (let number = 0; number < 6; number++) {
    made.publish("ok", { spooled: true, startMs: FIRST_MS + number * 10 });
  }
  for (const number of [0, 2, 1, 4]) made.come(number, 1);
  for (const number of [3, 5]) made.come(number, 2);
  const between = { spooledBetweenMs: [FIRST_MS, FIRST_MS + 1_000] } as const;
  equal(countsOf(made.judge()), {});
  const verdict = made.judge(between);
  equal([countsOf(verdict), verdict.ordered], [{ "out of order": 1 }, 6]);
  match(
    verdict.problems[0]!,
    /^out of order: p gateway-1 orders broker-1 c: p\.2 came before p\.1$/,
  );
});

Deno.test("order is not looked at of what was redelivered, deferred, sent elsewhere or at another time", () => {
  const made = new MadeUp();
  made.publish("ok", { spooled: true });
  made.publish("ok", { spooled: true });
  made.publish("ok", { spooled: true, startMs: FIRST_MS - 1 });
  made.publish("ok", { spooled: false });
  made.publish("ok", { spooled: true, deferMs: 1 });
  made.come(4);
  made.come(3);
  made.come(2);
  made.come(1);
  made.come(0, 1, { attempts: 2 });
  const verdict = made.judge({ spooledBetweenMs: [FIRST_MS, FIRST_MS + 1_000] });
  equal([countsOf(verdict), verdict.ordered], [{}, 1]);
});
