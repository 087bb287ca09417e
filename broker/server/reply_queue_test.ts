import { deepStrictEqual as equal } from "node:assert/strict";
import { OK_FRAME, utf8Bytes } from "@sluice/shared/protocol";
import { connectionPair, SimClock } from "@sluice/shared/testing";
import { Outbox } from "@sluice/shared/server";
import { ReplyQueue } from "./reply_queue.ts";

function fixture(): { replies: ReplyQueue; sent: () => string } {
  const [near] = connectionPair();
  const listener = { drained() {}, finished() {}, broken() {} };
  const outbox = new Outbox(near, new SimClock(), listener, 1000);
  const replies = new ReplyQueue(outbox);
  const ok = new TextDecoder().decode(OK_FRAME);
  return {
    replies,
    sent: () => {
      const text = new TextDecoder().decode(outbox.buffer.subarray(0, outbox.waitingBytes));
      return text.replaceAll(ok, "+");
    },
  };
}

Deno.test("ReplyQueue sends a frame at once when nothing is held", () => {
  const { replies, sent } = fixture();
  replies.frame(utf8Bytes("a"), 0);
  equal([sent(), replies.isEmpty, replies.heldBytes], ["a", true, 0]);
});

Deno.test("ReplyQueue holds every reply behind one that has to wait, in order", () => {
  const { replies, sent } = fixture();
  replies.ok(0, 100);
  replies.ok(0, 150);
  replies.frame(utf8Bytes("a"), 0);
  replies.ok(160, 200);
  replies.frame(utf8Bytes("b"), 250);
  replies.ok(260, 300);
  equal([sent(), replies.release(149)], ["", false]);
  equal([replies.release(150), sent()], [true, "++a"]);
  equal([replies.release(249), sent()], [true, "++a+"]);
  equal([replies.release(250), sent(), replies.isEmpty], [true, "++a+b", false]);
  equal([replies.release(1000), sent(), replies.isEmpty], [true, "++a+b+", true]);
  equal(replies.heldBytes, 0);
});

Deno.test("ReplyQueue lets the OK of a relaxed publish go once it is written, and nothing past one that is not durable", () => {
  const { replies, sent } = fixture();
  replies.ok(0, 100, true);
  replies.ok(0, 150);
  replies.ok(0, 200, true);
  replies.frame(utf8Bytes("a"), 0);
  equal([replies.release(0, 99), sent()], [false, ""]);
  equal([replies.release(0, 1000), sent()], [true, "+"]);
  equal([replies.release(149, 1000), sent()], [false, "+"]);
  equal([replies.release(150, 1000), sent(), replies.isEmpty], [true, "+++a", true]);
});

Deno.test("ReplyQueue counts the memory it holds; OKs of one group take it once", () => {
  const { replies } = fixture();
  for (let index = 0; index < 1000; index++) replies.ok(5, 10 + index);
  const group = replies.heldBytes;
  replies.ok(6, 5000);
  equal(replies.heldBytes, 2 * group);
  replies.frame(new Uint8Array(1000), 0);
  equal(replies.heldBytes, 3 * group + 1000);
  replies.release(2000);
  equal(replies.heldBytes, 2 * group + 1000);
  replies.clear();
  equal([replies.heldBytes, replies.isEmpty, replies.release(9999)], [0, true, false]);
});
