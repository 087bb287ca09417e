import { deepEqual, equal } from "node:assert/strict";
import { ackModeOf, changedPolicy, isAckMode } from "./topic_policy.ts";

Deno.test("a mode that is not known counts as durable, an absent one as the broker's", () => {
  deepEqual([{}, { ack_mode: "nsq_relaxed" }, { ack_mode: "later" }].map(ackModeOf), [
    null,
    "nsq_relaxed",
    "durable",
  ]);
  equal(isAckMode("Durable"), false);
});

Deno.test("changedPolicy() keeps what it does not know and what is not named; null takes a name out", () => {
  const policy = { ack_mode: "write_ack", later: { x: 1 } };
  deepEqual(changedPolicy(policy, { ack_mode: null }), { later: { x: 1 } });
  deepEqual(changedPolicy(policy, { other: 2 }), { ...policy, other: 2 });
  deepEqual(changedPolicy(policy, { ack_mode: "durable" }), { ...policy, ack_mode: "durable" });
});
