import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { randomBelow } from "@sluice/shared/runtime";
import { SeededRandom } from "@sluice/shared/testing";
import { PublishLimiter, TokenBucket } from "./token_bucket.ts";

Deno.test("TokenBucket begins full, and fills by its rate up to one second's worth", () => {
  const bucket = new TokenBucket(10, 5.9);
  equal([bucket.isFull(5.9), bucket.waitMs(5.9)], [true, 0]);
  bucket.take(10, 5.9);
  equal([bucket.isFull(6), bucket.waitMs(5.99)], [false, 1]);
  equal(bucket.waitMs(6.5), 0, "a part of a token is enough to begin");
  bucket.take(1, 6.5);
  equal(bucket.waitMs(7), 99);
  equal(bucket.isFull(1_005), false);
  equal(bucket.isFull(1_105), true);
  bucket.take(10, 1e12);
  equal(bucket.waitMs(1e12), 1, "and never holds more");
});

Deno.test("TokenBucket takes a batch of any size once, and then nothing until it is made up for", () => {
  const bucket = new TokenBucket(100, 0);
  bucket.take(1_000, 0);
  const waitMs = bucket.waitMs(0);
  equal(waitMs, 9_001);
  equal([bucket.waitMs(waitMs - 1), bucket.waitMs(waitMs)], [1, 0]);
});

Deno.test("TokenBucket keeps its rate to the token over a day, at any rate and with any batch", () => {
  const seed = 20261130;
  const random = new SeededRandom(seed);
  for (const rate of [1, 7, 999, 1_000_003, 10_000_000_000]) {
    const bucket = new TokenBucket(rate, 0);
    let nowMs = 0;
    let taken = 0;
    let last = 0;
    while (nowMs < 86_400_000) {
      const waitMs = bucket.waitMs(nowMs);
      if (waitMs > 0) {
        nowMs += waitMs;
        continue;
      }
      last = 1 + randomBelow(random, Math.min(2 ** 31, rate * 60));
      bucket.take(last, nowMs);
      taken += last;
    }
    const allowed = rate + Math.floor((nowMs / 1000) * rate);
    ok(taken <= allowed + last, `seed ${seed}, rate ${rate}: ${taken} of ${allowed}`);
    ok(taken >= allowed - rate - last, `seed ${seed}, rate ${rate}: ${taken} of ${allowed}`);
  }
});

Deno.test("PublishLimiter waits for the slower of both bounds, and without one for nothing", () => {
  const limiter = new PublishLimiter({ messages: 10, bytes: 1_000 }, 0);
  for (let at = 0; at < 10; at++) limiter.published(10, 0);
  equal(limiter.waitMs(0), 1);
  limiter.published(2_000, 0);
  equal(limiter.waitMs(0), 1_101);
  const none = new PublishLimiter({ messages: 0, bytes: 0 }, 0);
  none.published(1e9, 0);
  equal(none.waitMs(0), 0);
});
