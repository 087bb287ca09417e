/** What becomes of each publish, however the connection ends: `refused` only where that is certain. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import {
  encodeErrorFrame,
  encodePub,
  encodeResponseFrame,
  type ErrorCode,
  HEARTBEAT_FRAME,
  OK_FRAME,
  ProtocolError,
  utf8Bytes,
} from "../protocol/mod.ts";
import { settle } from "../testing/mod.ts";
import { BODY, OPTIONS, outcomes, type Peer, World } from "./client_world_test.ts";
import { type ProducerConnection, PublishError } from "./producer_connection.ts";

const PUB = encodePub("t", BODY);
const CLOSING = new ProtocolError("E_CLOSING", "the broker stops");
/** More than a connection of a test holds and its peer reads while it pauses. */
const LARGE = encodePub("t", new Uint8Array(200_000));

/** Notes what becomes of publishes, in the order in which they are told. */
class Notes {
  readonly outcomes: string[] = [];
  readonly errors = new Set<PublishError>();

  send(producer: ProducerConnection, ...commands: Uint8Array[]): void {
    for (const command of commands) {
      producer.send((outcome) => {
        this.outcomes.push(outcome === "confirmed" ? outcome : outcome.outcome);
        if (outcome !== "confirmed") this.errors.add(outcome);
      }, command);
    }
  }
}

Deno.test("an error refuses its publish and all behind it, and nothing is unknown", async () => {
  const world = new World();
  const [producer, peer] = await world.producer();
  const publishes = outcomes(...[1, 2, 3].map(() => producer.publish(encodePub("t", BODY))));
  await settle();
  await peer.send(OK_FRAME, encodeErrorFrame(new ProtocolError("E_THROTTLED", "PUB full")));
  equal(await publishes, ["ok", "refused", "refused"]);
  equal(producer.isOpen, false);
  equal(await outcomes(producer.publish(encodePub("t", BODY))), ["refused"]);
  await world.close(peer);
});

Deno.test("what a server could not store, or did not answer, is unknown", async () => {
  const world = new World();
  for (const code of ["E_PUB_FAILED", "E_MPUB_FAILED", "E_DPUB_FAILED"] as const) {
    const [producer, peer] = await world.producer();
    const publishes = outcomes(...[1, 2].map(() => producer.publish(encodePub("t", BODY))));
    await settle();
    await peer.send(encodeErrorFrame(new ProtocolError(code, "the log cannot be written")));
    equal(await publishes, ["unknown", "unknown"]);
    peer.connection.close();
  }
  const ends: (string | undefined)[] = [];
  for (const close of [(peer: Peer) => peer.connection.close(), null]) {
    const [producer, peer] = await world.producer();
    producer.onEnd = (error) => ends.push(error?.name);
    const publishes = outcomes(producer.publish(encodePub("t", BODY)));
    await settle();
    if (close === null) producer.close();
    else close(peer);
    equal(await publishes, ["unknown"]);
    peer.connection.close();
  }
  equal(ends, ["ConnectionError", undefined]);
  await world.close();
});

Deno.test("a server that is silent for two heartbeat intervals is given up", async () => {
  const world = new World();
  const [producer, peer] = await world.producer();
  const publish = outcomes(producer.publish(encodePub("t", BODY)));
  await world.clock.run(2 * OPTIONS.heartbeatIntervalMs - 1);
  equal(producer.isOpen, true);
  await world.clock.run(OPTIONS.heartbeatIntervalMs);
  equal([producer.isOpen, await publish], [false, ["unknown"]]);
  await world.close(peer);
});

Deno.test("what an error says of its publish, and of those behind it, is known by its code", async () => {
  const table: [ErrorCode | "E_NEW", string, string][] = [
    ["E_THROTTLED", "refused", "refused"],
    ["E_BAD_TOPIC", "refused", "refused"],
    ["E_BAD_MESSAGE", "refused", "refused"],
    ["E_BAD_BODY", "refused", "refused"],
    ["E_UNAUTHORIZED", "refused", "refused"],
    ["E_AUTH_FIRST", "refused", "refused"],
    ["E_AUTH_FAILED", "refused", "refused"],
    ["E_INVALID", "refused", "refused"],
    ["E_SEQUENCE_TOO_OLD", "unknown", "refused"],
    ["E_PUB_FAILED", "unknown", "unknown"],
    ["E_MPUB_FAILED", "unknown", "unknown"],
    ["E_DPUB_FAILED", "unknown", "unknown"],
    // After a soft one a server reads on, and what an unknown one means nobody knows.
    ["E_FIN_FAILED", "unknown", "unknown"],
    ["E_NEW", "unknown", "unknown"],
  ];
  const world = new World();
  for (const [code, itself, behind] of table) {
    const [producer, peer] = await world.producer();
    const notes = new Notes();
    notes.send(producer, PUB, PUB, PUB);
    await settle();
    await peer.send(OK_FRAME, encodeErrorFrame({ text: `${code} x` } as ProtocolError));
    equal(notes.outcomes, ["confirmed", itself, behind], code);
    equal([...notes.errors][0]!.serverText, `${code} x`);
    equal(producer.isOpen, false);
    peer.connection.close();
  }
  await world.close();
});

Deno.test("E_CLOSING refuses all that was not answered before it, in the words of the server", async () => {
  const world = new World();
  const [producer, peer] = await world.producer();
  const ends: (Error | null)[] = [];
  producer.onEnd = (error) => ends.push(error);
  const notes = new Notes();
  notes.send(producer, PUB, PUB, PUB);
  await settle();
  await peer.send(OK_FRAME, encodeErrorFrame(CLOSING));
  equal(notes.outcomes, ["confirmed", "refused", "refused"]);
  const [error, ...others] = notes.errors;
  equal([error?.serverText, others], ["E_CLOSING the broker stops", []]);
  equal(error?.message, "server:4150 ends with: E_CLOSING the broker stops");
  equal([ends.length, ends[0]?.name], [1, "ConnectionError"]);
  await world.close(peer);
});

Deno.test("a server of outcomes answers what is behind an error, and E_CLOSING refuses the rest", async () => {
  const features = encodeResponseFrame(JSON.stringify({ version: "1", sluice_outcomes: true }));
  const closing = encodeErrorFrame(CLOSING);
  for (const [end, rest] of [[closing, "refused"], [null, "unknown"]] as const) {
    const world = new World();
    const [producer, peer] = await world.producer(OPTIONS, features);
    ok(peer.text.includes('"sluice_outcomes":true'));
    equal(producer.answersEach, true);
    const notes = new Notes();
    notes.send(producer, PUB, PUB, PUB, PUB, PUB);
    await settle();
    await peer.send(OK_FRAME, encodeErrorFrame(new ProtocolError("E_BAD_MESSAGE", "PUB bad")));
    equal(notes.outcomes, ["confirmed", "refused"]);
    // Behind an error nothing more is taken.
    equal([producer.isOpen, await outcomes(producer.publish(PUB))], [false, ["refused"]]);
    await peer.send(OK_FRAME);
    if (end !== null) await peer.send(end);
    peer.connection.close();
    await settle();
    equal(notes.outcomes, ["confirmed", "refused", "confirmed", rest, rest]);
    await world.close(peer);
  }
});

Deno.test("E_CLOSING while nothing waits answers no later publish: that is refused", async () => {
  const world = new World();
  const [idle, idlePeer] = await world.producer();
  await idlePeer.send(encodeErrorFrame(CLOSING));
  equal(idle.isOpen, false);
  equal(await outcomes(idle.publish(PUB)), ["refused"]);
  // Sent while the frame was on its way: it is the one thing that the frame speaks of.
  const [busy, busyPeer] = await world.producer();
  const sending = busyPeer.send(encodeErrorFrame(CLOSING));
  const publishes = outcomes(busy.publish(PUB), busy.publish(PUB));
  await sending;
  equal(await publishes, ["refused", "refused"]);
  await world.close(idlePeer, busyPeer);
});

Deno.test("who publishes again from within an outcome is refused at once", async () => {
  const world = new World();
  for (const end of [(peer: Peer) => peer.send(encodeErrorFrame(CLOSING)), null]) {
    const [producer, peer] = await world.producer();
    const told: string[] = [];
    producer.send(() => {
      producer.send(
        (again) => told.push(again instanceof PublishError ? again.outcome : again),
        PUB,
      );
      told.push("first");
    }, PUB);
    await settle();
    if (end === null) producer.close();
    else await end(peer);
    equal([told, producer.outstandingBytes], [["refused", "first"], 0]);
    peer.connection.close();
  }
  await world.close();
});

Deno.test("a publish of which no byte was given to the system is refused when the connection ends", async () => {
  const ends: [string, (world: World, producer: ProducerConnection, peer: Peer) => unknown][] = [
    ["closed by us", (_world, producer) => producer.close()],
    ["closed by the server", (_world, _producer, peer) => peer.connection.close()],
    ["silent", (world) => world.clock.run(3 * OPTIONS.heartbeatIntervalMs)],
    ["a frame too large", (_world, _producer, peer) => peer.send(new Uint8Array([127, 0, 0, 0]))],
    [
      "an error that knows nothing",
      (_world, _producer, peer) =>
        peer.send(encodeErrorFrame(new ProtocolError("E_PUB_FAILED", "PUB failed"))),
    ],
  ];
  for (const [how, end] of ends) {
    const world = new World();
    const [producer, peer] = await world.producer();
    const notes = new Notes();
    peer.pause();
    // The first two are in one write, the third is in the middle of its own.
    notes.send(producer, PUB, PUB, LARGE, PUB, LARGE, PUB);
    await settle();
    equal(producer.outstandingCount, 6);
    await end(world, producer, peer);
    await settle();
    const expected = ["unknown", "unknown", "unknown", "refused", "refused", "refused"];
    equal(notes.outcomes, expected, how);
    equal(producer.outstandingBytes, 0);
    await world.close(peer);
  }
});

Deno.test("a connection that ends before anything was written refuses all", async () => {
  const world = new World();
  const [producer, peer] = await world.producer();
  const notes = new Notes();
  notes.send(producer, PUB, LARGE);
  producer.close();
  await settle();
  equal(notes.outcomes, ["refused", "refused"]);
  await world.close(peer);
});

Deno.test("after a failed write nothing more is written, and the connection is given up", async () => {
  const world = new World();
  const [producer, peer] = await world.producer();
  const notes = new Notes();
  peer.take();
  world.failsWrites = true;
  notes.send(producer, PUB);
  await settle();
  world.failsWrites = false;
  notes.send(producer, PUB);
  await settle();
  equal([peer.take(), producer.isOpen], ["", true]);
  await world.clock.run(OPTIONS.heartbeatIntervalMs);
  equal([notes.outcomes, producer.isOpen], [["unknown", "refused"], false]);
  await world.close(peer);
});

Deno.test("an answer that nothing was asked for confirms nothing and ends the connection", async () => {
  const world = new World();
  const [early, earlyPeer] = await world.producer();
  await earlyPeer.send(OK_FRAME);
  equal(early.isOpen, false);
  const [late, latePeer] = await world.producer();
  const notes = new Notes();
  notes.send(late, PUB, PUB);
  await settle();
  await latePeer.send(OK_FRAME, encodeResponseFrame("CLOSE_WAIT"));
  equal([notes.outcomes, late.isOpen], [["confirmed", "unknown"], false]);
  const [unsent, unsentPeer] = await world.producer();
  unsentPeer.pause();
  notes.outcomes.length = 0;
  notes.send(unsent, LARGE, PUB);
  await settle();
  await unsentPeer.send(OK_FRAME, OK_FRAME);
  equal([notes.outcomes, unsent.isOpen], [["confirmed", "refused"], false]);
  await world.close(earlyPeer, latePeer, unsentPeer);
});

Deno.test("parts arrive as one command, many small ones in one write, large ones as they are", async () => {
  const world = new World();
  const [producer, peer] = await world.producer();
  peer.take();
  world.writes.length = 0;
  const body = (size: number, letter: string) => new Uint8Array(size).fill(letter.charCodeAt(0));
  const head = (size: number) => encodePub("t", body(size, "x")).subarray(0, "PUB t\n".length + 4);
  const sizes = [...Array.from({ length: 1000 }, () => 20), 300_000, 40_000, 40_000, 7];
  const publishes = sizes.map((size) => producer.publish(head(size), body(size, "a")));
  equal(producer.outstandingBytes, sizes.reduce((sum, size) => sum + size + 10, 0));
  await settle();
  const text = peer.take();
  equal(text, sizes.map((size) => latin1(head(size)) + "a".repeat(size)).join(""));
  equal(world.writes, [30_010, 300_000, 40_020, 40_017]);
  await peer.send(...sizes.map(() => OK_FRAME));
  equal(await outcomes(...publishes), sizes.map(() => "ok"));
  // What is used over and over stays right, over more publishes than are kept.
  for (let round = 0; round < 30; round++) {
    const again = Array.from(
      { length: 100 },
      (_, index) => producer.publish(head(5), utf8Bytes(String(10_000 + round * 100 + index))),
    );
    await settle();
    const bodies = peer.take().match(/\d{5}/g)!.map(Number);
    equal([bodies[0], bodies.at(-1), bodies.length], [
      10_000 + round * 100,
      10_099 + round * 100,
      100,
    ]);
    await peer.send(HEARTBEAT_FRAME, ...again.map(() => OK_FRAME));
    equal((await outcomes(...again)).every((outcome) => outcome === "ok"), true);
    equal(peer.take(), "NOP\n");
  }
  ok(producer.isOpen);
  producer.close();
  await world.close(peer);
});

function latin1(bytes: Uint8Array): string {
  return new TextDecoder("latin1").decode(bytes);
}
