import { deepEqual, equal, ok, rejects } from "node:assert/strict";
import { ConnectionError } from "../runtime/mod.ts";
import { connectionPair, SeededRandom, settle } from "./mod.ts";

Deno.test("connectionPair() bounds what a direction holds: the writer waits for the reader", async () => {
  const [near, far] = connectionPair({ bufferBytesMax: 4 });
  let written = false;
  const writing = near.writeAll(Uint8Array.of(1, 2, 3, 4, 5, 6)).then(() => {
    written = true;
  });
  await settle();
  equal(written, false);
  equal(near.unreadByPeerBytes, 4);
  const into = new Uint8Array(1);
  equal(await far.read(into), 1);
  await settle();
  equal(written, false);
  equal(await far.read(into), 1);
  await writing;
  equal(near.unreadByPeerBytes, 4);
});

Deno.test("connectionPair() takes exactly what it holds without a reader", async () => {
  const [near] = connectionPair({ bufferBytesMax: 4 });
  await near.writeAll(Uint8Array.of(1, 2, 3));
  await near.writeAll(Uint8Array.of(4));
  equal(near.unreadByPeerBytes, 4);
});

Deno.test("connectionPair() carries every byte in order, whatever the sizes", async () => {
  for (let seed = 0; seed < 50; seed++) {
    const random = new SeededRandom(seed);
    const [near, far] = connectionPair({ bufferBytesMax: random.between(1, 40) });
    const sent = random.bytes(2_000);
    const write = async () => {
      for (let position = 0; position < sent.length;) {
        const length = random.between(0, 60);
        await near.writeAll(sent.subarray(position, position + length));
        position += length;
      }
      near.closeWrite();
    };
    const received: number[] = [];
    const read = async () => {
      const into = new Uint8Array(50);
      for (;;) {
        const count = await far.read(into.subarray(0, random.between(1, 50)));
        if (count === null) return;
        ok(count > 0);
        received.push(...into.subarray(0, count));
      }
    };
    await Promise.all([write(), read()]);
    deepEqual(Uint8Array.from(received), sent, `seed ${seed}`);
  }
});

Deno.test("closeWrite() ends one direction and leaves the other open", async () => {
  const [near, far] = connectionPair();
  await near.writeAll(Uint8Array.of(1));
  near.closeWrite();
  await rejects(near.writeAll(Uint8Array.of(2)), ConnectionError);
  const into = new Uint8Array(4);
  equal(await far.read(into), 1);
  equal(await far.read(into), null);
  await far.writeAll(Uint8Array.of(3));
  equal(await near.read(into), 1);
  equal(into[0], 3);
});

Deno.test("reset() fails both ends and loses what was not read", async () => {
  const [near, far] = connectionPair();
  const reading = near.read(new Uint8Array(1));
  await near.writeAll(Uint8Array.of(1));
  near.reset();
  await rejects(reading, /Cannot read: the connection was reset/);
  await rejects(far.read(new Uint8Array(1)), /Cannot read: the connection was reset by the peer/);
  await rejects(far.writeAll(Uint8Array.of(1)), ConnectionError);
});

Deno.test("close() of the reading end rejects the peer's waiting write", async () => {
  const [near, far] = connectionPair({ bufferBytesMax: 1 });
  const writing = near.writeAll(Uint8Array.of(1, 2));
  far.close();
  await rejects(writing, /Cannot write: the peer closed the connection/);
  equal(far.closed, true);
  equal(near.closed, false);
  equal(await near.read(new Uint8Array(1)), null);
});

Deno.test("close() lets the peer read what went through of a write that was cut off", async () => {
  const [near, far] = connectionPair({ bufferBytesMax: 2 });
  const writing = near.writeAll(Uint8Array.of(1, 2, 3));
  near.close();
  await rejects(writing, ConnectionError);
  const into = new Uint8Array(4);
  equal(await far.read(into), 2);
  deepEqual(into.subarray(0, 2), Uint8Array.of(1, 2));
  equal(await far.read(into), null);
});

Deno.test("connectionPair() uses the addresses it is given", () => {
  const [near, far] = connectionPair({ addresses: ["a:1", "b:2"] });
  deepEqual([near.localAddress, near.remoteAddress], ["a:1", "b:2"]);
  deepEqual([far.localAddress, far.remoteAddress], ["b:2", "a:1"]);
});
