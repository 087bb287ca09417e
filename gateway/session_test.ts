/** NSQ connections of producers, in a simulated world. */
import { deepStrictEqual as equal, match, ok } from "node:assert/strict";
import {
  encodeDpub,
  encodeIdentify,
  encodeMpub,
  encodePub,
  encodeSpub,
  encodeSub,
  FrameDecoder,
  FrameEvent,
  HEARTBEAT_TEXT,
  IDENTIFY_OPTIONS_DEFAULT,
  MAGIC_V2,
  NOP_COMMAND,
  utf8Bytes,
} from "@sluice/shared/protocol";
import type { Connection } from "@sluice/shared/runtime";
import { TcpServer } from "@sluice/shared/server";
import { Logger } from "@sluice/shared/telemetry";
import { settle } from "@sluice/shared/testing";
import { BrokerWorld, SPOOL_PRODUCER } from "./fake_broker_test.ts";
import { Publisher } from "./publisher.ts";
import { Receiving } from "./receiving.ts";
import { Session, type SessionOptions } from "./session.ts";

class Client {
  frames: string[] = [];
  isOver = false;

  constructor(readonly connection: Connection) {
    void this.#read();
  }

  async send(...parts: Uint8Array[]): Promise<void> {
    for (const part of parts) await this.connection.writeAll(part);
    await settle();
  }

  /** What came since the last call, without heartbeats. */
  take(): string[] {
    const frames = this.frames.filter((text) => text !== HEARTBEAT_TEXT);
    this.frames = [];
    return frames;
  }

  async #read(): Promise<void> {
    const decoder = new FrameDecoder(2 ** 20);
    const buffer = new Uint8Array(65_536);
    try {
      for (;;) {
        const bytes = await this.connection.read(buffer);
        if (bytes === null) break;
        decoder.feed(buffer, 0, bytes);
        while (decoder.next() === FrameEvent.FRAME) {
          this.frames.push(decoder.text());
          if (decoder.text() === HEARTBEAT_TEXT) void this.connection.writeAll(NOP_COMMAND);
        }
      }
    } catch {
      // Reset.
    }
    this.isOver = true;
    this.connection.close();
  }
}

class Stage {
  readonly world: BrokerWorld;
  readonly publisher: Publisher;
  readonly server: TcpServer<Session>;
  readonly receiving = new Receiving(16 * 2 ** 20);

  constructor(brokers = 2, options: Partial<SessionOptions> = {}, bytesMax = 2 ** 24) {
    this.world = new BrokerWorld(brokers);
    const { clock, network, pool } = this.world;
    this.publisher = new Publisher({
      spoolProducer: SPOOL_PRODUCER,
      timeoutMs: 10_000,
      spoolAfterMs: 200,
      bytesMax,
    }, { pool, spool: null, clock });
    pool.onUsable = () => this.publisher.brokersChanged();
    const logger = new Logger({ sink: () => {}, clock });
    this.server = new TcpServer(network.listen("gateway", 4150), {
      clock,
      connectionsMax: 10,
      open: (connection, onClose) =>
        new Session(
          connection,
          {
            identify: {
              ...IDENTIFY_OPTIONS_DEFAULT,
              version: "1.3.0",
              producers: false,
              outcomes: true,
            },
            messageBytesMax: 3 * 2 ** 20,
            bodyBytesMax: 8 * 2 ** 20,
            deferMsMax: 60_000,
            connectionBytesMax: 2 ** 24,
            closeMsMax: 15_000,
            tls: null,
            authorization: null,
            ...options,
          },
          { publisher: this.publisher, receiving: this.receiving, clock, logger },
          onClose,
        ),
    });
  }

  async client(): Promise<Client> {
    await settle();
    const client = new Client(await this.world.network.connect("gateway", 4150, 1000));
    await client.send(MAGIC_V2);
    return client;
  }

  async close(...clients: Client[]): Promise<void> {
    for (const { connection } of clients) connection.close();
    this.world.close();
    const closing = this.server.close();
    this.publisher.expireAll();
    await this.world.clock.run(12_000);
    await closing;
    this.publisher.close();
    await this.world.clock.run(5_000);
    equal([this.world.network.openEnds, this.world.clock.pendingTimers], [0, 0]);
    equal([this.publisher.heldBytes, this.receiving.usedBytes], [0, 0]);
  }
}

function pub(text: string): Uint8Array {
  return encodePub("t", utf8Bytes(text));
}

Deno.test("PUB, MPUB and DPUB are confirmed and stored; IDENTIFY offers no numbers of publishes", async () => {
  const stage = new Stage();
  const client = await stage.client();
  await client.send(
    encodeIdentify({ feature_negotiation: true, sluice_producer: "00".repeat(16) }),
  );
  const [reply = ""] = client.take();
  equal(JSON.parse(reply).sluice_producer, undefined);
  await client.send(
    pub("a"),
    encodeMpub("t", [utf8Bytes("b"), utf8Bytes("c")]),
    encodeDpub("t", 1000, utf8Bytes("d")),
  );
  equal(client.take(), ["OK", "OK", "OK"]);
  equal(stage.world.brokers.flatMap((broker) => broker.bodies("t")).sort(), ["a", "b", "c", "d"]);
  await client.send(encodeSpub("t", 1, utf8Bytes("x")));
  equal(client.take(), ["E_INVALID invalid command SPUB"]);
  await stage.close(client);
});

Deno.test("replies keep the order of their commands, whichever broker is slow", async () => {
  const stage = new Stage(2, {});
  const client = await stage.client();
  const [slow, fast] = stage.world.brokers;
  let asked = 0;
  slow!.deed = () => asked++ === 0 ? "stored, silent" : "ok";
  for (let at = 0; at < 10; at++) await client.send(pub(`m${at}`));
  ok(fast!.bodies("t").length > 0, "others are stored meanwhile");
  const early = client.take().length;
  ok(early < 10 && early + asked <= 10);
  slow!.speak();
  await settle();
  equal(client.take().length + early, 10);
  await stage.close(client);
});

Deno.test("SUB ends in an error that names discovery, and consumers' commands in nsqd's", async () => {
  for (
    const [command, expected] of [
      [encodeSub("t", "c"), /^E_SUB_FAILED SUB failed .*gateway for producers.*nsqlookupd/],
      [utf8Bytes("RDY 1\n"), /^E_INVALID cannot RDY in current state/],
      [utf8Bytes("FIN 0123456789abcdef\n"), /^E_INVALID cannot FIN in current state/],
      [utf8Bytes("NOPE\n"), /^E_INVALID invalid command NOPE/],
      [encodePub("t", new Uint8Array(3 * 2 ** 20 + 1)), /^E_BAD_MESSAGE PUB message too big/],
      [utf8Bytes("PUB not/valid\n"), /^E_BAD_TOPIC PUB topic name/],
      [utf8Bytes("DPUB t 60001\n"), /^E_INVALID DPUB timeout 60001 out of range/],
      [utf8Bytes("AUTH\n\0\0\0\x01a"), /^E_AUTH_DISABLED/],
    ] as const
  ) {
    const stage = new Stage();
    const client = await stage.client();
    await client.send(command).catch(() => {});
    await settle();
    const frames = client.take();
    equal(frames.length, 1, `${frames}`);
    match(frames[0]!, expected);
    await stage.world.clock.run(2_000);
    ok(client.isOver);
    await stage.close(client);
  }
});

Deno.test("an error of a publish is in its place, and those behind it that were taken are still answered", async () => {
  const stage = new Stage(1);
  const client = await stage.client();
  let asked = 0;
  stage.world.brokers[0]!.deed = () => asked++ === 1 ? "bad message" : "ok";
  await client.send(pub("a"), pub("b"), pub("c"));
  await stage.world.clock.run(1_000);
  equal(client.take(), ["OK", "E_BAD_MESSAGE PUB message too big 3 > 2", "OK"]);
  ok(client.isOver);
  equal(stage.world.brokers[0]!.bodies("t"), ["a", "c"]);
  await stage.close(client);
});

const OUTCOMES = encodeIdentify({ feature_negotiation: true, sluice_outcomes: true });

Deno.test("who asks for outcomes is told of everything that was taken, and that nothing else was", async () => {
  const stage = new Stage(1);
  const client = await stage.client();
  await client.send(OUTCOMES);
  equal(JSON.parse(client.take()[0] ?? "").sluice_outcomes, true);
  let asked = 0;
  stage.world.brokers[0]!.deed = () => asked++ === 1 ? "bad message" : "ok";
  await client.send(pub("a"), pub("b"), pub("c"));
  await stage.world.clock.run(1_000);
  equal(client.take(), [
    "OK",
    "E_BAD_MESSAGE PUB message too big 3 > 2",
    "OK",
    "E_CLOSING the gateway takes no more",
  ]);
  equal(stage.world.brokers[0]!.bodies("t"), ["a", "c"]);
  await stage.close(client);
});

Deno.test("stopped, it answers what was taken and says that it was all, to those who asked", async () => {
  for (const isUrgent of [null, true, false]) {
    const stage = new Stage(1);
    const [asks, stock] = [await stage.client(), await stage.client()];
    await asks.send(OUTCOMES);
    asks.take();
    const [broker] = stage.world.brokers;
    broker!.deed = () => "stored, silent";
    await asks.send(pub("a"));
    await stock.send(pub("b"));
    for (const session of [...stage.server.sessions]) {
      if (isUrgent === null) session.end();
      else session.drain(isUrgent);
    }
    broker!.deed = () => "ok";
    broker!.speak();
    await stage.world.clock.run(1_000);
    equal([asks.take(), stock.take()], [["OK", "E_CLOSING the gateway takes no more"], ["OK"]]);
    await stage.close(asks, stock);
  }
});

Deno.test("a batch that no broker stores in one piece goes in several, and is answered once", async () => {
  const stage = new Stage(1);
  const client = await stage.client();
  const large = new Uint8Array(2 ** 20 + 1).fill(0x61);
  const middle = new Uint8Array(2 ** 20).fill(0x62);
  await client.send(
    encodeMpub("t", [utf8Bytes("x"), large, middle, middle, middle, middle, utf8Bytes("y")]),
  );
  await stage.world.clock.run(500);
  equal(client.take(), ["OK"]);
  const lengths = stage.world.brokers[0]!.bodies("t").map((text) => text.length).sort();
  equal(lengths, [1, 1, ...Array(4).fill(2 ** 20), 2 ** 20 + 1].sort());
  await stage.close(client);
});

Deno.test("a connection, and all of them, are not read from while too much has no outcome", async () => {
  for (
    const [options, bytesMax] of [[{ connectionBytesMax: 2_000 }, 2 ** 24], [{}, 2_000]] as const
  ) {
    const stage = new Stage(1, options, bytesMax);
    const client = await stage.client();
    const [broker] = stage.world.brokers;
    broker!.deed = () => "stored, silent";
    for (let at = 0; at < 20; at++) await client.send(pub("x".repeat(100)));
    ok(stage.publisher.heldBytes <= 2_500, `${stage.publisher.heldBytes} bytes are held`);
    equal(client.take(), []);
    broker!.deed = () => "ok";
    broker!.speak();
    await stage.world.clock.run(5_000);
    equal(client.take().length, 20);
    await stage.close(client);
  }
});

Deno.test("too many bytes being received at once are refused, and the others go on", async () => {
  const stage = new Stage(1);
  const client = await stage.client();
  const other = await stage.client();
  ok(stage.receiving.take(16 * 2 ** 20 - 10));
  const command = pub("x".repeat(1000));
  await client.send(command.subarray(0, 100));
  equal(client.take(), ["E_THROTTLED PUB too many bytes are being received"]);
  await other.send(pub("small"));
  equal(other.take(), ["OK"]);
  stage.receiving.giveBack(16 * 2 ** 20 - 10);
  await stage.close(client, other);
});

Deno.test("drained, a connection ends when nothing of its client is under way, and not before", async () => {
  const stage = new Stage(1);
  const idle = await stage.client();
  const busy = await stage.client();
  const half = await stage.client();
  const [broker] = stage.world.brokers;
  broker!.deed = () => "stored, silent";
  await stage.world.clock.run(100);
  await busy.send(pub("a"));
  await half.send(pub("half").subarray(0, 9));
  for (const session of [...stage.server.sessions]) session.drain(false);
  await stage.world.clock.run(200);
  equal([idle.isOver, busy.isOver, half.isOver], [true, false, false]);
  broker!.deed = () => "ok";
  broker!.speak();
  await settle();
  equal([busy.take(), busy.isOver], [["OK"], false]);
  await half.send(pub("half").subarray(9));
  await stage.world.clock.run(200);
  equal([busy.isOver, half.take(), half.isOver], [true, ["OK"], true]);
  await stage.close(idle, busy, half);
});

Deno.test("drained urgently, a connection ends with its last answer", async () => {
  const stage = new Stage(1);
  const client = await stage.client();
  const [broker] = stage.world.brokers;
  broker!.deed = () => "stored, silent";
  await client.send(pub("a"));
  for (const session of [...stage.server.sessions]) session.drain(true);
  await settle();
  equal(client.isOver, false);
  broker!.speak();
  await settle();
  equal([client.take(), client.isOver], [["OK"], true]);
  await stage.close(client);
});

Deno.test("a client that is silent for two heartbeats is closed", async () => {
  const stage = new Stage(1);
  await settle();
  const connection = await stage.world.network.connect("gateway", 4150, 1000);
  await connection.writeAll(MAGIC_V2);
  await connection.writeAll(encodeIdentify({ heartbeat_interval: 1000 }));
  await stage.world.clock.run(4_000);
  equal(stage.server.sessions.size, 0);
  connection.close();
  await stage.close();
});
