import { deepEqual, equal, throws } from "node:assert/strict";
import { SeededRandom } from "@sluice/shared/testing";
import { FREE_LANE, PINNED_LANE } from "./records.ts";
import { SpoolState } from "./spool_state.ts";
import type { PublishFacts, TrackedEntry } from "./tracked_entry.ts";

const FILE_BYTES = 1000;

function fileOf(position: number): number {
  return Math.floor(position / FILE_BYTES) * FILE_BYTES;
}

function facts(id: number, number: number, topic = "t", lane = FREE_LANE): PublishFacts {
  return { lane, number, id, topic, bodyBytes: 10, messageCount: 1, spooledWallMs: 1000 + id };
}

/** A state with one entry in hand. */
function withOne(lane = FREE_LANE): { state: SpoolState; entry: TrackedEntry } {
  const state = new SpoolState(1);
  if (lane === PINNED_LANE) {
    const entry = state.published(facts(8, 0, "t", lane), "one", 0)!;
    state.pick(entry);
    return { state, entry };
  }
  state.announce("t");
  state.published(facts(8, 0), null, 0);
  const entry = state.handOut(facts(8, 0), 0);
  state.scanned(1);
  return { state, entry };
}

/** Where an entry can be found. */
function placeOf(state: SpoolState, entry: TrackedEntry): string {
  if (entry.isSettled) return "settled";
  if (entry.inHand) return entry.broker === null ? "in hand" : `in hand, of ${entry.broker}`;
  if (state.quarantinedById(entry.id) === entry) return "quarantine";
  if (state.firstReturned === entry) return "returned";
  for (const broker of state.assignedBrokers()) {
    if (state.firstAssigned(broker) === entry) return `waits for ${broker}`;
  }
  return "nowhere";
}

type Step = "assign" | "put back" | "pick" | "quarantine" | "retry" | "settle" | "other";

function take(state: SpoolState, entry: TrackedEntry, step: Step): void {
  switch (step) {
    case "assign":
      return state.assign(entry, "one", 5);
    case "other":
      return state.assign(entry, "two", 6);
    case "put back":
      return state.putBack(entry);
    case "pick":
      return state.pick(entry);
    case "quarantine":
      return state.quarantine(entry, "poison");
    case "retry":
      return state.retry(entry);
    case "settle":
      return state.settle(entry);
  }
}

const TABLE: [Step[], place: string, isBacklog: boolean, count: number][] = [
  [[], "in hand", true, 1],
  [["assign"], "in hand, of one", true, 1],
  [["assign", "other"], "in hand, of two", true, 1],
  [["put back"], "returned", true, 1],
  [["put back", "pick"], "in hand", true, 1],
  [["assign", "put back"], "waits for one", true, 1],
  [["assign", "put back", "pick", "other"], "in hand, of two", true, 1],
  [["assign", "put back", "pick", "other", "put back"], "waits for two", true, 1],
  [["quarantine"], "quarantine", false, 0],
  [["assign", "quarantine"], "quarantine", false, 0],
  [["assign", "put back", "quarantine"], "quarantine", false, 0],
  [["quarantine", "retry"], "returned", true, 1],
  [["assign", "quarantine", "retry"], "waits for one", true, 1],
  [["assign", "quarantine", "retry", "pick", "quarantine"], "quarantine", false, 0],
  [["settle"], "settled", false, 0],
  [["assign", "settle"], "settled", false, 0],
  [["put back", "settle"], "settled", false, 0],
  [["quarantine", "settle"], "settled", false, 0],
  [["assign", "quarantine", "retry", "settle"], "settled", false, 0],
];

for (const [steps, place, isBacklog, count] of TABLE) {
  Deno.test(`an entry in hand, then ${steps.join(", ") || "nothing"}: ${place}`, () => {
    const { state, entry } = withOne();
    for (const step of steps) take(state, entry, step);
    equal(placeOf(state, entry), place);
    equal(state.hasBacklog("t"), isBacklog);
    deepEqual([state.count, state.bodyBytes], [count, 10 * count]);
    equal(state.oldestWallMs, count === 0 ? null : 1008);
    equal(state.heldCount, entry.inHand ? 1 : 0);
    equal(state.quarantinedCount, place === "quarantine" ? 1 : 0);
    equal(state.looseCount, place === "settled" || place === "quarantine" ? 0 : 1);
    equal(state.isBacklog(0), place === "settled");
    deepEqual([...state.owed], [[0, { count: 1, bodyBytes: 10 }]], "until that is on disk");
    if (entry.isSettled) {
      state.freed(0, 10);
      equal(state.owed.size, 0);
    }
  });
}

Deno.test("a pinned entry is a broker's from the start, and no backlog", () => {
  const { state, entry } = withOne(PINNED_LANE);
  deepEqual([state.hasBacklog("t"), state.count, state.pinnedCount, state.looseCount], [
    false,
    1,
    1,
    0,
  ]);
  state.putBack(entry);
  equal(placeOf(state, entry), "waits for one");
  equal(state.hasAssignedBefore("one", 1008), false);
  equal(state.hasAssignedBefore("one", 1009), true);
  state.pick(entry);
  equal(state.hasAssignedBefore("one", 1009), false);
  state.quarantine(entry, "poison");
  deepEqual([state.count, state.pinnedCount, state.quarantinedCount], [0, 1, 1]);
  state.retry(entry);
  equal(placeOf(state, entry), "waits for one");
  state.settle(entry);
  deepEqual([state.count, state.pinnedCount], [0, 0]);
});

Deno.test("what is not in hand is not assigned, and nothing is settled twice", () => {
  const { state, entry } = withOne();
  state.putBack(entry);
  throws(() => state.assign(entry, "one", 1));
  state.settle(entry);
  throws(() => state.settle(entry));
});

Deno.test("hasAssignedBefore() follows what leaves a queue", () => {
  const state = new SpoolState(1);
  const entries = [1, 2, 3].map((number) => {
    return state.published(facts(8 * number, number, "t", PINNED_LANE), "one", 0)!;
  });
  equal(state.hasAssignedBefore("one", 1009), true);
  state.pick(entries[0]!);
  equal(state.hasAssignedBefore("one", 1009), false);
  equal(state.hasAssignedBefore("one", 1017), true);
  equal(state.hasAssignedBefore("two", 10_000), false);
});

/** A log that begins at 5000, and what it says of an entry whose publish stood before that. */
const GONE: [string, (state: SpoolState) => void, dropped: number, place: string | null][] = [
  [
    "assigned, and settled behind it",
    (state) => {
      assignGone(state);
      state.replaySettled(FREE_LANE, 3, 4);
    },
    0,
    null,
  ],
  [
    "settled before it is named again",
    (state) => {
      state.replaySettled(FREE_LANE, 0, 10);
      equal(state.replayNamed({ lane: FREE_LANE, number: 3, id: 800 }), null);
    },
    0,
    null,
  ],
  [
    "pinned and settled, of which only an assignment is left",
    (state) => {
      equal(state.replayNamed({ lane: PINNED_LANE, number: 3, id: 800 }), null);
    },
    0,
    null,
  ],
  ["assigned, its settling damaged", assignGone, 1, null],
  [
    "assigned and kept",
    (state) => {
      assignGone(state);
      state.replayKept(facts(800, 3), 6000).broker = "two";
    },
    0,
    "waits for two",
  ],
  [
    "kept, then settled",
    (state) => {
      state.replayKept(facts(800, 3), 6000).broker = "two";
      state.replaySettled(FREE_LANE, 3, 4);
    },
    0,
    null,
  ],
  [
    "kept in quarantine, then tried again",
    (state) => {
      state.replayKept(facts(800, 3), 6000).reason = "poison";
      state.replayNamed({ lane: FREE_LANE, number: 3, id: 800 })!.reason = null;
    },
    0,
    "returned",
  ],
  [
    "kept in quarantine",
    (state) => {
      state.replayKept(facts(800, 3), 6000).reason = "poison";
    },
    0,
    "quarantine",
  ],
];

function assignGone(state: SpoolState): void {
  state.replayNamed({ lane: FREE_LANE, number: 3, id: 800 })!.broker = "one";
}

for (const [name, happen, dropped, place] of GONE) {
  Deno.test(`an entry whose publish went with its file, ${name}: ${place ?? "settled"}`, () => {
    const state = new SpoolState(1);
    happen(state);
    equal(state.replayed(5000, fileOf), dropped);
    const entry = state.find(FREE_LANE, 3);
    equal(entry === null ? null : placeOf(state, entry), place);
    const isCounted = place !== null && place !== "quarantine";
    deepEqual([state.count, state.hasBacklog("t")], [isCounted ? 1 : 0, isCounted]);
    deepEqual([...state.owed.keys()], place === null ? [] : [6000]);
  });
}

/** What the model knows of one publish. */
interface Model {
  readonly facts: PublishFacts;
  entry: TrackedEntry | null;
  place: "backlog" | "hand" | "waiting" | "quarantine" | "settled";
  broker: string | null;
}

Deno.test("SpoolState counts and orders as a list would", () => {
  for (let seed = 0; seed < 200; seed++) {
    const random = new SeededRandom(seed);
    const state = new SpoolState(1);
    const models: Model[] = [];
    let scanned = 0;
    let id = 0;
    const some = (place: Model["place"]) => {
      const found = models.filter((model) => model.place === place);
      return found.length === 0 ? null : random.pick(found);
    };
    for (let step = 0; step < 120; step++) {
      const topic = random.pick(["a", "b"]);
      const lane = random.chance(0.2) ? PINNED_LANE : FREE_LANE;
      switch (random.below(8)) {
        case 0:
        case 1: {
          id += 8 * random.between(1, 40);
          const published = facts(id, state.nextNumber[lane], topic, lane);
          if (lane === FREE_LANE) state.announce(topic);
          const broker = lane === FREE_LANE ? null : random.pick(["one", "two"]);
          const entry = state.published(published, broker, fileOf(id));
          models.push({ facts: published, entry, place: entry ? "waiting" : "backlog", broker });
          break;
        }
        case 2: {
          const next = models.find(({ facts, place }) =>
            place === "backlog" && facts.number >= scanned
          );
          if (next === undefined) break;
          next.entry = state.handOut(next.facts, fileOf(next.facts.id));
          scanned = next.facts.number + 1;
          state.scanned(scanned);
          next.place = "hand";
          break;
        }
        case 3: {
          const model = some("hand");
          if (model === null) break;
          model.broker = random.pick(["one", "two"]);
          state.assign(model.entry!, model.broker, step);
          break;
        }
        case 4: {
          const model = some("hand");
          if (model === null) break;
          state.putBack(model.entry!);
          model.place = "waiting";
          break;
        }
        case 5: {
          const broker = random.pick([null, "one", "two"]);
          const first = broker === null ? state.firstReturned : state.firstAssigned(broker);
          const expected = models.filter((model) =>
            model.place === "waiting" && model.broker === broker
          ).sort((a, b) =>
            a.facts.id - b.facts.id
          )[0];
          equal(first, expected?.entry ?? null, `seed ${seed}`);
          if (expected === undefined) break;
          state.pick(expected.entry!);
          expected.place = "hand";
          break;
        }
        case 6: {
          const model = some(random.pick(["hand", "waiting", "quarantine"]));
          if (model === null) break;
          state.settle(model.entry!);
          state.freed(model.entry!.fileStart, 10);
          model.place = "settled";
          break;
        }
        case 7: {
          const model = some(random.pick(["hand", "waiting"]));
          const back = some("quarantine");
          if (model !== null) {
            state.quarantine(model.entry!, "poison");
            model.place = "quarantine";
          } else if (back !== null) {
            state.retry(back.entry!);
            back.place = "waiting";
          }
        }
      }
      check(state, models, `seed ${seed}, step ${step}`);
    }
  }
});

function check(state: SpoolState, models: readonly Model[], label: string): void {
  const owed = models.filter(({ place }) => place !== "settled");
  const counted = owed.filter(({ place }) => place !== "quarantine");
  equal(state.count, counted.length, label);
  equal(state.bodyBytes, 10 * counted.length, label);
  equal(state.heldCount, models.filter(({ place }) => place === "hand").length, label);
  equal(state.pinnedCount, owed.filter(({ facts }) => facts.lane === PINNED_LANE).length, label);
  const quarantined = owed.filter(({ place }) => place === "quarantine").map(({ facts }) =>
    facts.id
  );
  deepEqual(
    state.quarantined(0, 1000).map(({ id }) => id),
    quarantined.sort((a, b) => a - b),
    label,
  );
  for (const topic of ["a", "b"]) {
    const free = counted.filter(({ facts }) => facts.lane === FREE_LANE && facts.topic === topic);
    equal(state.hasBacklog(topic), free.length > 0, label);
  }
  const oldest = Math.min(...counted.map(({ facts }) => facts.spooledWallMs));
  equal(state.oldestWallMs, counted.length === 0 ? null : oldest, label);
  const files = new Map<number, number>();
  for (const { facts, place } of owed) {
    if (place === "backlog") continue;
    files.set(fileOf(facts.id), (files.get(fileOf(facts.id)) ?? 0) + 1);
  }
  deepEqual(
    [...state.owed].map(([start, { count }]) => [start, count]).sort(byFirst),
    [...files].sort(byFirst),
    label,
  );
}

function byFirst(a: number[], b: number[]): number {
  return a[0]! - b[0]!;
}
