import { deepStrictEqual as equal } from "node:assert/strict";
import fc from "fast-check";
import { DeliveryList, InFlightTable } from "./in_flight.ts";

interface Delivery {
  readonly sequence: number;
  readonly offset: number;
  readonly owner: number;
  readonly attempts: number;
  readonly deliveredMs: number;
  deadlineMs: number;
}

const OWNERS = 3;

/** A table beside a map that does the same in the simplest way. */
class Pair {
  readonly table = new InFlightTable();
  readonly lists = Array.from({ length: OWNERS }, () => new DeliveryList());
  readonly model = new Map<number, Delivery>();

  insert(sequence: number, owner: number, nowMs: number, deadlineMs: number): void {
    if (this.model.has(sequence)) return;
    const delivery = {
      sequence,
      offset: sequence * 3,
      owner,
      attempts: (sequence % 7) + 1,
      deliveredMs: nowMs,
      deadlineMs,
    };
    const { offset, attempts } = delivery;
    this.table.insert(sequence, offset, owner, this.list(owner), attempts, nowMs, deadlineMs);
    this.model.set(sequence, delivery);
  }

  remove(sequence: number): void {
    const slot = this.table.find(sequence);
    const delivery = this.model.get(sequence);
    equal(slot >= 0, delivery !== undefined);
    if (delivery === undefined) return;
    this.table.remove(slot, this.list(delivery.owner));
    this.model.delete(sequence);
  }

  extend(sequence: number, deadlineMs: number): void {
    const delivery = this.model.get(sequence);
    if (delivery === undefined) return;
    this.table.extend(this.table.find(sequence), this.list(delivery.owner), deadlineMs);
    delivery.deadlineMs = deadlineMs;
  }

  check(): void {
    const { table, model } = this;
    equal(table.size, model.size);
    for (const delivery of model.values()) {
      const slot = table.find(delivery.sequence);
      equal({
        sequence: delivery.sequence,
        offset: table.offset(slot),
        owner: table.owner(slot),
        attempts: table.attempts(slot),
        deliveredMs: table.deliveredMs(slot),
        deadlineMs: table.deadlineMs(slot),
      }, delivery);
    }
    this.lists.forEach((list, owner) => {
      const deadlines = this.#emptied(list, owner);
      equal(deadlines, [...deadlines].sort((a, b) => a - b));
    });
  }

  list(owner: number): DeliveryList {
    return this.lists[owner]!;
  }

  /** Deadlines of a list from its head on; what is taken out to see it is put back as it was. */
  #emptied(list: DeliveryList, owner: number): number[] {
    const { table } = this;
    const owned = [...this.model.values()].filter((delivery) => delivery.owner === owner);
    equal(list.count, owned.length);
    const taken: number[] = [];
    const deadlines: number[] = [];
    while (list.head >= 0) {
      const slot = list.head;
      const found = owned.find((delivery) => table.find(delivery.sequence) === slot);
      taken.push(found?.sequence ?? -1);
      deadlines.push(table.deadlineMs(slot));
      table.remove(slot, list);
    }
    equal(list.count, 0);
    equal([...taken].sort((a, b) => a - b), owned.map((it) => it.sequence).sort((a, b) => a - b));
    for (const sequence of taken) {
      const { offset, attempts, deliveredMs, deadlineMs } = this.model.get(sequence)!;
      table.insert(sequence, offset, owner, list, attempts, deliveredMs, deadlineMs);
    }
    return deadlines;
  }
}

const sequences = fc.oneof(fc.nat(40), fc.nat(40).map((n) => n * 2 ** 32), fc.maxSafeNat());
const step = fc.oneof(
  { weight: 5, arbitrary: fc.tuple(fc.constant("insert"), sequences, fc.nat(), fc.nat(100)) },
  { weight: 3, arbitrary: fc.tuple(fc.constant("remove"), sequences, fc.nat(), fc.nat(100)) },
  { weight: 2, arbitrary: fc.tuple(fc.constant("extend"), sequences, fc.nat(), fc.nat(200)) },
);

Deno.test("InFlightTable does what a map would, with each list in the order of deadlines", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
      const pair = new Pair();
      for (const [kind, sequence, number, ms] of steps) {
        const known = [...pair.model.keys()];
        const one = known.length > 0 && number % 4 > 0 ? known[number % known.length]! : sequence;
        if (kind === "insert") pair.insert(sequence, number % OWNERS, ms, ms + (number % 50));
        else if (kind === "remove") pair.remove(one);
        else pair.extend(one, ms);
      }
      pair.check();
    }),
    { numRuns: 150 },
  );
});

Deno.test("InFlightTable finds everything while it grows and shrinks by thousands", () => {
  const table = new InFlightTable();
  const list = new DeliveryList();
  for (let round = 0; round < 3; round++) {
    for (let sequence = 0; sequence < 5000; sequence++) {
      table.insert(sequence, sequence, 1, list, 1, 0, 60_000);
    }
    for (let sequence = 0; sequence < 5000; sequence += 2) table.remove(table.find(sequence), list);
    for (let sequence = 0; sequence < 5000; sequence++) {
      equal(table.find(sequence) >= 0, sequence % 2 === 1);
    }
    for (let sequence = 1; sequence < 5000; sequence += 2) table.remove(table.find(sequence), list);
    equal([table.size, list.count, list.head, list.tail], [0, 0, -1, -1]);
  }
});

Deno.test("InFlightTable puts equal deadlines in the order of their delivery", () => {
  const table = new InFlightTable();
  const list = new DeliveryList();
  for (const sequence of [5, 3, 9]) table.insert(sequence, sequence, 0, list, 1, 0, 10);
  const order: number[] = [];
  while (list.head >= 0) {
    order.push(table.offset(list.head));
    table.remove(list.head, list);
  }
  equal(order, [5, 3, 9]);
});

Deno.test("InFlightTable.find() says -1 for what is no sequence at all", () => {
  const table = new InFlightTable();
  equal(table.find(-1), -1);
  table.insert(0, 0, 0, new DeliveryList(), 1, 0, 1);
  equal([table.find(-1), table.find(2 ** 48)], [-1, -1]);
});
