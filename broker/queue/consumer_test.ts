import { deepStrictEqual as equal } from "node:assert/strict";
import { Consumer, ConsumerRing } from "./consumer.ts";

/** Consumers that can take `ready` messages, in a ring in this order. */
function ringOf(...ready: number[]): { ring: ConsumerRing; consumers: Consumer[] } {
  const ring = new ConsumerRing();
  const consumers = ready.map((count, number) => {
    const port = { writable: true, deliver() {}, channelDeleted() {} };
    const consumer = new Consumer(number, port, 1000, 0);
    consumer.ready = count;
    ring.update(consumer);
    return consumer;
  });
  return { ring, consumers };
}

/** Whose turn it is, so many times; each takes one message. */
function turns(ring: ConsumerRing, count: number): (number | null)[] {
  return Array.from({ length: count }, () => {
    const consumer = ring.current;
    if (consumer === null) return null;
    consumer.deliveries.count++;
    ring.rotate();
    ring.update(consumer);
    return consumer.number;
  });
}

Deno.test("ConsumerRing gives everybody a turn before anybody has a second", () => {
  const { ring } = ringOf(9, 9, 9);
  equal(turns(ring, 7), [0, 1, 2, 0, 1, 2, 0]);
});

Deno.test("ConsumerRing passes over who can take no more", () => {
  const { ring, consumers } = ringOf(1, 3, 2);
  equal(turns(ring, 7), [0, 1, 2, 1, 2, 1, null]);
  consumers[0]!.ready = 2;
  ring.update(consumers[0]!);
  equal(turns(ring, 2), [0, null]);
});

Deno.test("ConsumerRing puts who comes back behind all others", () => {
  const { ring, consumers } = ringOf(5, 5, 5);
  ring.remove(consumers[0]!);
  ring.update(consumers[0]!);
  equal(turns(ring, 4), [1, 2, 0, 1]);
});

Deno.test("ConsumerRing.remove() of the one whose turn it is passes the turn on", () => {
  const { ring, consumers } = ringOf(5, 5, 5);
  turns(ring, 1);
  ring.remove(consumers[1]!);
  equal(turns(ring, 4), [2, 0, 2, 0]);
  ring.remove(consumers[0]!);
  ring.remove(consumers[2]!);
  equal(ring.current, null);
  ring.remove(consumers[2]!);
  ring.rotate();
  equal(ring.current, null);
});

Deno.test("Consumer.able needs RDY above what is in flight, an open subscription, a free port", () => {
  const port = { writable: true, deliver() {}, channelDeleted() {} };
  const consumer = new Consumer(0, port, 1000, 0);
  equal(consumer.able, false);
  consumer.ready = 1;
  equal(consumer.able, true);
  port.writable = false;
  equal(consumer.able, false);
  port.writable = true;
  consumer.deliveries.count = 1;
  equal(consumer.able, false);
  consumer.ready = 2;
  equal(consumer.able, true);
  consumer.closing = true;
  equal(consumer.able, false);
});
