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
import type { Connection, Listener } from "../runtime/mod.ts";
import { settle, SimClock, SimNetwork } from "../testing/mod.ts";
import { CLIENT_OPTIONS_DEFAULT, type ClientOptions } from "./client_link.ts";
import { ConsumerConnection, type Delivery } from "./consumer_connection.ts";
import { ProducerConnection, PublishError } from "./producer_connection.ts";

const FEATURES = encodeResponseFrame(JSON.stringify({ version: "1.3.0", max_rdy_count: 2500 }));
const OPTIONS: ClientOptions = { ...CLIENT_OPTIONS_DEFAULT, host: "server", port: 4150 };
const BODY = utf8Bytes("a");

/** The server's end of a connection. */
class Peer {
  text = "";
  state: "open" | "ended" = "open";

  constructor(readonly connection: Connection) {
    void this.#read();
  }

  /** What has come since the last call, without magic and IDENTIFY. */
  take(): string {
    const text = this.text.replace(/^ {2}V2IDENTIFY\n[^]{4}\{.*?\}/, "");
    this.text = "";
    return text;
  }

  async send(...frames: Uint8Array[]): Promise<void> {
    for (const frame of frames) await this.connection.writeAll(frame);
    await settle();
  }

  async #read(): Promise<void> {
    const buffer = new Uint8Array(4096);
    try {
      for (;;) {
        const bytes = await this.connection.read(buffer);
        if (bytes === null) break;
        this.text += new TextDecoder("latin1").decode(buffer.subarray(0, bytes));
      }
    } catch {
      // Ended by the other side.
    }
    this.state = "ended";
  }
}

class World {
  readonly network = new SimNetwork();
  readonly clock = new SimClock();
  readonly listener: Listener = this.network.listen("server", 4150);

  /** The server's end of the next connection, which is answered with `frames`. */
  async accept(...frames: Uint8Array[]): Promise<Peer> {
    const connection = await this.listener.accept();
    ok(connection !== null);
    const peer = new Peer(connection);
    await peer.send(...frames);
    return peer;
  }

  async producer(): Promise<[ProducerConnection, Peer]> {
    const peer = this.accept(FEATURES);
    const producer = await ProducerConnection.connect(this, OPTIONS);
    return [producer, await peer];
  }

  async close(...peers: Peer[]): Promise<void> {
    for (const peer of peers) peer.connection.close();
    this.listener.close();
    await settle();
    equal([this.network.openEnds, this.clock.pendingTimers], [0, 0]);
  }
}

/** What becomes of each publish: `ok`, or the outcome. */
function outcomes(...publishes: Promise<void>[]): Promise<string[]> {
  return Promise.all(publishes.map((publish) =>
    publish.then(() => "ok", (error) => {
      ok(error instanceof PublishError);
      return error.outcome;
    })
  ));
}

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
