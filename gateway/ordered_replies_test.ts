/** Replies in the order of their commands. */
import { deepStrictEqual as equal } from "node:assert/strict";
import { Outbox } from "@sluice/shared/server";
import { connectionPair, SeededRandom, settle, SimClock } from "@sluice/shared/testing";
import { OrderedReplies, type ReplySlot } from "./ordered_replies.ts";

class Stage {
  readonly replies: OrderedReplies;
  readonly #outbox: Outbox;
  readonly #far;

  constructor() {
    const [near, far] = connectionPair({ bufferBytesMax: 1 << 20 });
    this.#far = far;
    const listener = { drained: () => {}, finished: () => {}, broken: () => {} };
    this.#outbox = new Outbox(near, new SimClock(), listener, 1 << 20);
    this.replies = new OrderedReplies(this.#outbox);
  }

  /** What has gone out since the last call, a byte a reply. */
  async out(): Promise<string> {
    this.#outbox.flush();
    await settle();
    const buffer = new Uint8Array(1 << 16);
    const reading = this.#far.read(buffer);
    // Nothing may have come: the end of a marker says so.
    this.#outbox.add(frame("."));
    this.#outbox.flush();
    let text = textOf(buffer, await reading ?? 0);
    while (!text.endsWith(".")) text += textOf(buffer, await this.#far.read(buffer) ?? 0);
    return text.slice(0, -1);
  }
}

function textOf(buffer: Uint8Array, bytes: number): string {
  return new TextDecoder().decode(buffer.subarray(0, bytes));
}

function frame(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

Deno.test("a reply that is known goes out at once when nothing is before it", async () => {
  const stage = new Stage();
  stage.replies.add(frame("a"));
  equal([stage.replies.isEmpty, stage.replies.heldBytes], [true, 0]);
  equal(await stage.out(), "a");
});

Deno.test("replies wait for those before them, and go out together", async () => {
  const stage = new Stage();
  const { replies } = stage;
  const first = replies.place();
  const second = replies.place();
  replies.add(frame("c"));
  equal(replies.fill(second, frame("b")), false);
  equal([await stage.out(), replies.isEmpty], ["", false]);
  equal(replies.fill(first, frame("a")), true);
  equal([await stage.out(), replies.isEmpty, replies.heldBytes], ["abc", true, 0]);
});

Deno.test("memory of replies that wait is told, and given back", () => {
  const { replies } = new Stage();
  const first = replies.place();
  const emptyBytes = replies.heldBytes;
  const second = replies.place();
  replies.fill(second, frame("x".repeat(1000)));
  equal(replies.heldBytes, 2 * emptyBytes + 1000);
  replies.fill(first, frame("y"));
  equal(replies.heldBytes, 0);
});

Deno.test("cleared, none of them goes out, and what comes later does", async () => {
  const stage = new Stage();
  const { replies } = stage;
  replies.place();
  replies.add(frame("b"));
  replies.clear();
  equal([replies.isEmpty, replies.heldBytes], [true, 0]);
  equal(await stage.out(), "");
  replies.add(frame("c"));
  equal(await stage.out(), "c");
});

Deno.test("in whatever order places are filled, replies go out in the order of the places", async () => {
  for (let seed = 1; seed <= 10; seed++) {
    const random = new SeededRandom(seed);
    const stage = new Stage();
    const { replies } = stage;
    const open: { slot: ReplySlot; text: string }[] = [];
    let expected = "";
    let out = "";
    for (let step = 0; step < 3_000; step++) {
      const text = String.fromCharCode(97 + step % 26);
      if (open.length > 0 && random.chance(0.5)) {
        const [filled] = open.splice(random.below(Math.min(open.length, 40)), 1);
        replies.fill(filled!.slot, frame(filled!.text));
        continue;
      }
      expected += text;
      if (random.chance(0.2)) replies.add(frame(text));
      else open.push({ slot: replies.place(), text });
      if (step % 500 === 0) out += await stage.out();
    }
    for (const { slot, text } of random.shuffle(open)) replies.fill(slot, frame(text));
    out += await stage.out();
    equal(out, expected, `seed ${seed}`);
    equal([replies.isEmpty, replies.heldBytes], [true, 0]);
  }
});
