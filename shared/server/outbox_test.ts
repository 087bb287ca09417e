import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { connectionPair, settle, SimClock, type SimConnection } from "../testing/mod.ts";
import { type BodySource, Outbox, type OutboxListener } from "./outbox.ts";
import { LARGE_BUFFER_BYTES, LARGE_BUFFERS_MAX, OutboxBuffers } from "./outbox_buffers.ts";

interface Fixture {
  readonly outbox: Outbox;
  readonly near: SimConnection;
  readonly far: SimConnection;
  readonly clock: SimClock;
  /** Calls of the listener, with what `hasRoom` said at that time. */
  readonly calls: string[];
}

/** An outbox over a connection that holds 10 bytes. */
function fixture(messageBytesMax = 100, buffers: OutboxBuffers | null = null): Fixture {
  const [near, far] = connectionPair({ bufferBytesMax: 10 });
  const clock = new SimClock();
  const calls: string[] = [];
  const listener: OutboxListener = {
    drained: () => calls.push(`drained ${outbox.hasRoom}`),
    finished: () => calls.push("finished"),
    broken: () => calls.push("broken"),
  };
  const outbox = new Outbox(near, clock, listener, messageBytesMax, buffers);
  return { outbox, near, far, clock, calls };
}

async function readAll(connection: SimConnection, count: number): Promise<number[]> {
  const bytes: number[] = [];
  const buffer = new Uint8Array(700);
  while (bytes.length < count) {
    const read = await connection.read(buffer.subarray(0, count - bytes.length));
    ok(read !== null);
    bytes.push(...buffer.subarray(0, read));
  }
  return bytes;
}

Deno.test("Outbox writes everything in order, one write at a time", async () => {
  const { outbox, far, calls } = fixture();
  const expected: number[] = [];
  const reading = readAll(far, 600);
  for (let part = 0; part < 60; part++) {
    const frame = new Uint8Array(10).fill(part);
    expected.push(...frame);
    outbox.add(frame);
    if (part % 7 === 0) outbox.flush();
    if (part % 11 === 0) await settle();
  }
  outbox.flush();
  equal(await reading, expected);
  await settle();
  equal([outbox.waitingBytes, outbox.pendingSinceMs], [0, null]);
  ok(calls.every((call) => call === "drained true"));
});

Deno.test("Outbox has no room for messages once so many bytes gather behind a stuck write", async () => {
  const { outbox, far, calls } = fixture(100);
  outbox.add(new Uint8Array(50));
  outbox.flush();
  await settle();
  equal([outbox.hasRoom, outbox.waitingBytes], [true, 50]);
  outbox.add(new Uint8Array(100));
  equal([outbox.hasRoom, outbox.waitingBytes], [false, 150]);
  await readAll(far, 50);
  await settle();
  // The second buffer is being written and the first is free again.
  equal([outbox.hasRoom, calls], [true, ["drained true"]]);
  await readAll(far, 100);
  await settle();
  equal([outbox.waitingBytes, calls], [0, ["drained true", "drained true"]]);
});

Deno.test("Outbox says since when a write is pending, at time zero too", async () => {
  const { outbox, far, clock } = fixture();
  equal(outbox.pendingSinceMs, null);
  outbox.add(new Uint8Array(15));
  outbox.flush();
  clock.advance(500);
  outbox.add(new Uint8Array(15));
  outbox.flush();
  equal(outbox.pendingSinceMs, 0);
  await readAll(far, 15);
  await settle();
  equal(outbox.pendingSinceMs, 500);
  await readAll(far, 15);
  await settle();
  equal(outbox.pendingSinceMs, null);
});

Deno.test("Outbox.endAfterFlush() tells once everything is written", async () => {
  const { outbox, far, calls } = fixture();
  outbox.add(new Uint8Array(15));
  outbox.flush();
  outbox.add(new Uint8Array(15));
  outbox.endAfterFlush();
  await settle();
  equal(calls, []);
  await readAll(far, 30);
  await settle();
  equal(calls.filter((call) => call === "finished"), ["finished"]);
});

Deno.test("Outbox.endAfterFlush() with nothing to write tells at once", () => {
  const { outbox, calls } = fixture();
  outbox.endAfterFlush();
  equal(calls, ["finished"]);
});

Deno.test("Outbox drops what waits when the connection breaks", async () => {
  const { outbox, near, calls } = fixture();
  outbox.add(new Uint8Array(15));
  outbox.flush();
  outbox.add(new Uint8Array(15));
  near.reset();
  await settle();
  equal([outbox.waitingBytes, outbox.hasRoom, calls], [0, false, ["broken"]]);
  outbox.flush();
  await settle();
  equal(calls, ["broken"]);
});

Deno.test("Outbox keeps no large buffer while nothing waits", async () => {
  const { outbox, far } = fixture(1_000_000);
  for (let round = 0; round < 3; round++) {
    outbox.add(new Uint8Array(100_000));
    outbox.flush();
    outbox.add(new Uint8Array(50_000));
    await readAll(far, 150_000);
    await settle();
    ok(outbox.buffer.length <= 16 * 1024, String(outbox.buffer.length));
  }
});

/** Pieces of a body that come when the test says so. */
class TestBody implements BodySource {
  closed = 0;
  asked = 0;
  #give: (piece: Uint8Array | null) => void = () => {};
  #fail: (error: Error) => void = () => {};

  next(): Promise<Uint8Array | null> {
    this.asked++;
    return new Promise((resolve, reject) => {
      this.#give = resolve;
      this.#fail = reject;
    });
  }

  close(): void {
    this.closed++;
    this.#fail(new Error("closed"));
  }

  async give(piece: number[] | null): Promise<void> {
    this.#give(piece === null ? null : Uint8Array.from(piece));
    await settle();
  }

  async fail(): Promise<void> {
    this.#fail(new Error("damaged"));
    await settle();
  }
}

Deno.test("Outbox.stream() writes a body in its place, piece by piece, and has no room meanwhile", async () => {
  const { outbox, far, calls } = fixture();
  const body = new TestBody();
  outbox.add(Uint8Array.of(1, 2));
  outbox.stream(body);
  outbox.add(Uint8Array.of(8));
  outbox.flush();
  outbox.add(Uint8Array.of(9));
  equal([outbox.hasRoom, outbox.isStreaming, outbox.waitingBytes], [false, true, 4]);
  await settle();
  outbox.flush();
  equal(
    [outbox.pendingSinceMs, body.asked],
    [null, 1],
    "a body that is not there is not the peer's fault",
  );
  await body.give([3, 4, 5]);
  equal([body.asked, outbox.hasRoom, calls], [2, false, []]);
  await body.give([6, 7]);
  await body.give(null);
  equal(await readAll(far, 9), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
  await settle();
  equal([outbox.hasRoom, outbox.isStreaming, outbox.waitingBytes, body.closed], [
    true,
    false,
    0,
    1,
  ]);
  ok(calls.includes("drained true"));
});

Deno.test("Outbox asks for the next piece of a body only when the peer has taken the one before", async () => {
  const { outbox, far, clock } = fixture();
  const body = new TestBody();
  outbox.stream(body);
  outbox.flush();
  await settle();
  await clock.run(5);
  await body.give(Array.from({ length: 25 }, () => 1));
  equal([body.asked, outbox.pendingSinceMs], [1, 5]);
  const reading = readAll(far, 25);
  await settle();
  equal([body.asked, outbox.pendingSinceMs], [2, null]);
  await body.give(null);
  equal((await reading).length, 25);
});

Deno.test("Outbox breaks the connection when a body fails, and closes the body when it is closed", async () => {
  const failing = fixture();
  const body = new TestBody();
  failing.outbox.stream(body);
  failing.outbox.add(Uint8Array.of(9));
  failing.outbox.flush();
  await settle();
  await body.fail();
  equal([failing.calls, failing.outbox.hasRoom, body.closed], [["broken"], false, 1]);
  const closing = fixture();
  const other = new TestBody();
  closing.outbox.stream(other);
  closing.outbox.flush();
  await settle();
  closing.outbox.close();
  await settle();
  ok(other.closed >= 1);
  equal(closing.calls, ["broken"]);
});

Deno.test("Outbox.endAfterFlush() waits for a body and what follows it", async () => {
  const { outbox, far, calls } = fixture();
  const body = new TestBody();
  outbox.stream(body);
  outbox.add(Uint8Array.of(2));
  outbox.endAfterFlush();
  await settle();
  equal(calls.length, 0);
  await body.give([1]);
  await body.give(null);
  equal(await readAll(far, 2), [1, 2]);
  await settle();
  ok(calls.includes("finished"));
});

Deno.test("Outbox lets another one have its large buffer once all is written, and not before", async () => {
  const buffers = new OutboxBuffers();
  const [one, other] = [fixture(100, buffers), fixture(100, buffers)];
  const bytes = 20_000;
  const reading = readAll(one.far, 2 * bytes);
  one.outbox.add(new Uint8Array(bytes).fill(1));
  const written = one.outbox.buffer;
  equal(written.length, LARGE_BUFFER_BYTES);
  one.outbox.flush();
  one.outbox.add(new Uint8Array(bytes).fill(2));
  const gathered = one.outbox.buffer;
  other.outbox.add(new Uint8Array(bytes).fill(3));
  ok(![written, gathered].includes(other.outbox.buffer), "both are in use");
  one.outbox.flush();
  const expected = [...new Uint8Array(bytes).fill(1), ...new Uint8Array(bytes).fill(2)];
  equal(await reading, expected);
  await settle();
  equal(one.outbox.buffer.length, 0);
  ok(
    [buffers.take(), buffers.take()].every((buffer) => [written, gathered].includes(buffer)),
  );
});

Deno.test("the large buffers that nobody uses are of one size and bounded", () => {
  const buffers = new OutboxBuffers();
  const given = Array.from({ length: 2 * LARGE_BUFFERS_MAX }, () => buffers.take());
  buffers.give(new Uint8Array(LARGE_BUFFER_BYTES / 2));
  for (const buffer of given) buffers.give(buffer);
  const taken = Array.from({ length: 2 * LARGE_BUFFERS_MAX }, () => buffers.take());
  equal(taken.filter((buffer) => given.includes(buffer)).length, LARGE_BUFFERS_MAX);
});
