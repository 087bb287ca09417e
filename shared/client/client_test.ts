/** The client against servers that do what they are told. */
import { deepStrictEqual as equal, ok, rejects } from "node:assert/strict";
import {
  encodeErrorFrame,
  encodeMessageFrame,
  encodePub,
  encodeResponseFrame,
  HEARTBEAT_FRAME,
  OK_FRAME,
  ProtocolError,
  utf8Bytes,
} from "../protocol/mod.ts";
import { settle } from "../testing/mod.ts";
import { BODY, FEATURES, OPTIONS, outcomes, World } from "./client_world_test.ts";
import { ConsumerConnection, type Delivery } from "./consumer_connection.ts";
import { ProducerConnection } from "./producer_connection.ts";

Deno.test("connect() negotiates, and gives up a server that refuses, is none, or says nothing", async () => {
  const world = new World();
  const [producer, peer] = await world.producer();
  equal(producer.features.max_rdy_count, 2500);
  ok(/^ {2}V2IDENTIFY\n[^]{4}\{.*"feature_negotiation":true.*\}$/.test(peer.text));
  producer.close();
  for (
    const [frame, message] of [
      [encodeErrorFrame(new ProtocolError("E_BAD_BODY", "no")), /refuses IDENTIFY: E_BAD_BODY no/],
      [utf8Bytes("HTTP/1.1 400 Bad Request"), /is no NSQ server/],
      [encodeResponseFrame("{"), /is not JSON/],
    ] as const
  ) {
    const other = world.accept(frame);
    await rejects(ProducerConnection.connect(world, OPTIONS), { name: "ConnectionError", message });
    (await other).connection.close();
  }
  const silent = world.accept();
  const connecting = ProducerConnection.connect(world, OPTIONS);
  const refused = rejects(connecting, { name: "ConnectionError" });
  await world.clock.run(OPTIONS.connectTimeoutMs);
  await refused;
  await world.close(peer, await silent);
});

Deno.test("publishes go out at once and are confirmed in their order; heartbeats are answered", async () => {
  const world = new World();
  const [producer, peer] = await world.producer();
  peer.take();
  const order: number[] = [];
  for (const number of [1, 2, 3]) {
    void producer.publish(encodePub("t", utf8Bytes(`${number}`))).then(() => order.push(number));
  }
  await settle();
  equal(peer.take().match(/PUB t/g)?.length, 3);
  equal([producer.outstandingCount, producer.outstandingBytes > 0], [3, true]);
  await peer.send(OK_FRAME, HEARTBEAT_FRAME, OK_FRAME);
  equal(order, [1, 2]);
  equal(peer.take(), "NOP\n");
  await peer.send(OK_FRAME);
  equal([order, producer.outstandingCount, producer.outstandingBytes], [[1, 2, 3], 0, 0]);
  producer.close();
  await world.close(peer);
});

Deno.test("publishOnce() numbers its publishes where the server knows sequences, and only there", async () => {
  const world = new World();
  const producerId = new Uint8Array(16).fill(0xab);
  const options = { ...OPTIONS, producerId };
  const named = encodeResponseFrame(JSON.stringify({ sluice_producer: "ab".repeat(16) }));
  const knowing = world.accept(named);
  const producer = await ProducerConnection.connect(world, options);
  const peer = await knowing;
  ok(peer.text.includes(`"sluice_producer":"${"ab".repeat(16)}"`), peer.text);
  equal(producer.deduplicates, true);
  peer.take();
  const publishes = outcomes(
    producer.publishOnce("t", 7, BODY),
    producer.publishOnce("t", 8, BODY, 50),
    producer.publishOnce("t", 9, BODY),
  );
  await settle();
  equal(peer.take(), "SPUB t 7\n\0\0\0\x01aSPUB t 8 50\n\0\0\0\x01aSPUB t 9\n\0\0\0\x01a");
  // What was refused as too old may be stored: its sequence was used before. What is behind it is not.
  await peer.send(OK_FRAME, encodeErrorFrame(new ProtocolError("E_SEQUENCE_TOO_OLD", "SPUB")));
  equal(await publishes, ["ok", "unknown", "refused"]);
  const plain = world.accept(FEATURES);
  const other = await ProducerConnection.connect(world, options);
  equal(other.deduplicates, false);
  equal(await outcomes(other.publishOnce("t", 7, BODY)), ["refused"]);
  other.close();
  await world.close(peer, await plain);
});

Deno.test("a subscription hands over messages and sends what becomes of them", async () => {
  const world = new World();
  const got: Delivery[] = [];
  const notes: string[] = [];
  const handler = {
    message: (delivery: Delivery) => got.push(delivery),
    failed: (text: string) => notes.push(text),
    ended: (error: Error | null) => notes.push(`ended: ${error?.message}`),
  };
  const accepted = world.accept(FEATURES, OK_FRAME);
  const consumer = await ConsumerConnection.subscribe(world, OPTIONS, "t", "c", handler);
  const peer = await accepted;
  equal(peer.take(), "SUB t c\n");
  consumer.ready(5);
  const head = { timestampMs: 1_700_000_000_123, attempts: 2, nodeId: 7, sequence: 9 };
  await peer.send(encodeMessageFrame(head, utf8Bytes("hello")));
  const [{ id, timestampMs, attempts, body }] = got as [Delivery];
  equal([timestampMs, attempts, new TextDecoder().decode(body)], [head.timestampMs, 2, "hello"]);
  consumer.touch(id);
  consumer.requeue(id, 1500);
  consumer.finish(id);
  consumer.stop();
  await settle();
  const text = new TextDecoder().decode(id);
  equal(peer.take(), `RDY 5\nTOUCH ${text}\nREQ ${text} 1500\nFIN ${text}\nCLS\n`);
  await peer.send(encodeErrorFrame(new ProtocolError("E_FIN_FAILED", "FIN x failed")));
  equal([notes.splice(0), consumer.isOpen], [["E_FIN_FAILED FIN x failed"], true]);
  await peer.send(encodeErrorFrame(new ProtocolError("E_INVALID", "no")));
  equal(notes, ["ended: server:4150 ends the subscription: E_INVALID no"]);
  equal(consumer.isOpen, false);
  await world.close(peer);
});

Deno.test("subscribe() rejects when the server refuses or goes away", async () => {
  const world = new World();
  const handler = { message() {}, ended: () => ok(false, "it never began") };
  const refusal = encodeErrorFrame(new ProtocolError("E_BAD_TOPIC", "no"));
  const refusing = world.accept(FEATURES, refusal);
  await rejects(ConsumerConnection.subscribe(world, OPTIONS, "t", "c", handler), /E_BAD_TOPIC no/);
  const leaving = world.accept(FEATURES).then((peer) => {
    peer.connection.close();
    return peer;
  });
  await rejects(ConsumerConnection.subscribe(world, OPTIONS, "t", "c", handler), {
    name: "ConnectionError",
  });
  await world.close(await refusing, await leaving);
});

Deno.test("a subscription ends with E_CLOSING, before its OK too", async () => {
  const world = new World();
  const ends: string[] = [];
  const handler = {
    message() {},
    failed: (text: string) => ok(false, text),
    ended: (error: Error | null) => ends.push(String(error?.message)),
  };
  const closing = encodeErrorFrame(new ProtocolError("E_CLOSING", "the broker stops"));
  const accepted = world.accept(FEATURES, OK_FRAME);
  const consumer = await ConsumerConnection.subscribe(world, OPTIONS, "t", "c", handler);
  const peer = await accepted;
  await peer.send(closing);
  equal(ends, ["server:4150 ends the subscription: E_CLOSING the broker stops"]);
  equal(consumer.isOpen, false);
  const stopping = world.accept(FEATURES, closing);
  await rejects(ConsumerConnection.subscribe(world, OPTIONS, "t", "c", handler), /E_CLOSING/);
  await world.close(peer, await stopping);
});

Deno.test("connect() authorizes itself where that is required, or where the server does not say", async () => {
  const features = (required: boolean) =>
    encodeResponseFrame(JSON.stringify({ version: "1.3.0", auth_required: required }));
  const identity = encodeResponseFrame('{"identity":"joe","identity_url":"","permission_count":1}');
  const secret = utf8Bytes("a very long secret");
  const sent = "AUTH\n\0\0\0\x12a very long secret";
  for (
    const [frames, authSecret, expected] of [
      [[features(true), identity], secret, sent],
      [[features(true), HEARTBEAT_FRAME, identity], secret, `${sent}NOP\n`],
      [[features(false)], secret, ""],
      [[FEATURES], secret, ""],
      [[OK_FRAME, identity], secret, sent],
      [[OK_FRAME], undefined, ""],
    ] as const
  ) {
    const world = new World();
    const peer = world.accept(...frames);
    const producer = await ProducerConnection.connect(world, {
      ...OPTIONS,
      ...(authSecret === undefined ? {} : { authSecret }),
    });
    await settle();
    equal((await peer).take(), expected);
    // Nothing of it is left to be taken for an answer.
    const publish = outcomes(producer.publish(encodePub("t", BODY)));
    await settle();
    await (await peer).send(OK_FRAME);
    equal(await publish, ["ok"]);
    producer.close();
    await world.close(await peer);
  }
});

Deno.test("connect() rejects without a secret, with one that is refused, and with one that is not answered", async () => {
  const world = new World();
  const required = encodeResponseFrame(JSON.stringify({ auth_required: true }));
  const authSecret = utf8Bytes("hidden");
  const without = world.accept(required);
  await rejects(ProducerConnection.connect(world, OPTIONS), {
    name: "ConnectionError",
    message: "The server requires authorization, and there is no secret for it",
  });
  equal((await without).take(), "");
  const refusing = world.accept(
    required,
    encodeErrorFrame(new ProtocolError("E_UNAUTHORIZED", "AUTH no authorizations found")),
  );
  await rejects(ProducerConnection.connect(world, { ...OPTIONS, authSecret }), {
    name: "ConnectionError",
    message: "The server refuses AUTH: E_UNAUTHORIZED AUTH no authorizations found",
  });
  const silent = world.accept(required);
  const connecting = ProducerConnection.connect(world, { ...OPTIONS, authSecret });
  const refused = rejects(connecting, (error: Error) => {
    ok(!String(error.stack).includes("hidden"));
    return error.name === "ConnectionError";
  });
  await world.clock.run(OPTIONS.connectTimeoutMs);
  await refused;
  await world.close(await without, await refusing, await silent);
});
