import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { connectionPair, settle, SimClock, type SimConnection } from "@sluice/shared/testing";
import { Outbox, type OutboxListener } from "./outbox.ts";

interface Fixture {
  readonly outbox: Outbox;
  readonly near: SimConnection;
  readonly far: SimConnection;
  readonly clock: SimClock;
  /** Calls of the listener, with what `hasRoom` said at that time. */
  readonly calls: string[];
}

/** An outbox over a connection that holds 10 bytes. */
function fixture(messageBytesMax = 100): Fixture {
  const [near, far] = connectionPair({ bufferBytesMax: 10 });
  const clock = new SimClock();
  const calls: string[] = [];
  const listener: OutboxListener = {
    drained: () => calls.push(`drained ${outbox.hasRoom}`),
    finished: () => calls.push("finished"),
    broken: () => calls.push("broken"),
  };
  const outbox = new Outbox(near, clock, listener, messageBytesMax);
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
