/** What follows an IDENTIFY that asks for TLS or compression, in a simulated world. */
import { deepStrictEqual as equal, ok, rejects } from "node:assert/strict";
import {
  encodeIdentify,
  encodeSub,
  MAGIC_V2,
  MESSAGE_BODY_OFFSET,
  readInt32,
  SnappyDecoder,
  SnappyEncoder,
  utf8Bytes,
} from "@sluice/shared/protocol";
import { type Connection, ConnectionError, type Listener } from "@sluice/shared/runtime";
import { settle, SimClock, tlsSettings } from "@sluice/shared/testing";
import {
  HANDSHAKE_FAIR_MS,
  Handshakes,
  LayeredConnection,
  type TlsDoor,
  UPGRADE_MS_MAX,
} from "@sluice/shared/server";
import { clientStats } from "./stats.ts";
import { pub, World, type WorldOptions } from "./world_test.ts";

/** A client that reads no more than a frame, so that it can change layers in between. */
class Peer {
  readonly connection: LayeredConnection;

  private constructor(connection: Connection) {
    this.connection = new LayeredConnection(connection);
  }

  static async connect(world: World, ...first: (string | Uint8Array)[]): Promise<Peer> {
    const peer = new Peer(await world.network.connect("127.0.0.1", 4150, 1000));
    await peer.send(MAGIC_V2, ...first);
    return peer;
  }

  /** Sends all in one write. */
  async send(...parts: (string | Uint8Array)[]): Promise<void> {
    const bytes = parts.flatMap((part) => [...(typeof part === "string" ? utf8Bytes(part) : part)]);
    await this.connection.writeAll(new Uint8Array(bytes));
    await settle();
  }

  /** The text of the next frame, the body of a message, or `end`. */
  async next(): Promise<string> {
    const header = await this.#read(8);
    if (header === null) return "end";
    const data = await this.#read(readInt32(header, 0) - 4);
    ok(data !== null);
    const isMessage = readInt32(header, 4) === 2;
    return new TextDecoder().decode(isMessage ? data.subarray(MESSAGE_BODY_OFFSET) : data);
  }

  async #read(bytes: number): Promise<Uint8Array | null> {
    const buffer = new Uint8Array(bytes);
    for (let filled = 0; filled < bytes;) {
      const count = await this.connection.read(buffer.subarray(filled));
      if (count === null) return null;
      filled += count;
    }
    return buffer;
  }

  compress(): void {
    this.connection.compress("snappy", new SnappyEncoder(), new SnappyDecoder());
  }
}

/** Stands for TLS: bytes stay as they are, and a handshake ends when the test says so. */
class FakeTls {
  readonly door: TlsDoor;
  asked = 0;
  answer: Promise<void> = Promise.resolve();

  constructor(required = false, handshakes = new Handshakes(new SimClock())) {
    this.door = { settings: tlsSettings, required, handshakes };
  }

  world(options: WorldOptions = {}): WorldOptions {
    return {
      ...options,
      identify: { tls: true, ...options.identify },
      session: { tls: this.door },
      listener: (inner) => this.#listener(inner),
    };
  }

  #listener(inner: Listener): Listener {
    return {
      hostname: inner.hostname,
      port: inner.port,
      accept: async () => {
        const connection = await inner.accept();
        return connection === null ? null : this.#upgradable(connection);
      },
      close: () => inner.close(),
    };
  }

  #upgradable(inner: Connection): Connection {
    const closed = Promise.withResolvers<never>();
    closed.promise.catch(() => {});
    const plain: Connection = {
      remoteAddress: inner.remoteAddress,
      localAddress: inner.localAddress,
      read: (into) => inner.read(into),
      writeAll: (bytes) => inner.writeAll(bytes),
      closeWrite: () => inner.closeWrite(),
      close: () => {
        inner.close();
        closed.reject(new ConnectionError("closed"));
      },
    };
    const tls = { version: "TLS1.3", cipherSuite: "SUITE", commonName: "test.local" };
    return {
      ...plain,
      startTls: async () => {
        this.asked++;
        try {
          await Promise.race([this.answer, closed.promise]);
        } catch (error) {
          inner.close();
          throw error;
        }
        return { ...plain, tls };
      },
    };
  }
}

function identify(fields: Record<string, unknown>): Uint8Array {
  return encodeIdentify({ feature_negotiation: true, ...fields });
}

const SNAPPY = identify({ snappy: true });
const TLS = identify({ tls_v1: true });

Deno.test("a client that negotiates snappy publishes and consumes in it", async () => {
  await World.use({}, async (world) => {
    const peer = await Peer.connect(world, SNAPPY);
    const reply = JSON.parse(await peer.next());
    equal([reply.snappy, reply.deflate, reply.tls_v1], [true, false, false]);
    peer.compress();
    equal(await peer.next(), "OK");
    await peer.send(encodeSub("t", "c"), "RDY 5\n", pub("t", "x".repeat(900)), pub("t", "two"));
    const frames = [await peer.next(), await peer.next(), await peer.next()];
    frames.push(await peer.next(), await peer.next());
    equal(frames.toSorted(), ["OK", "OK", "OK", "two", "x".repeat(900)]);
    const stats = [...world.server.sessions].map(clientStats)[0]!;
    equal([stats.snappy, stats.deflate, stats.tls], [true, false, false]);
    // Asking for nothing more is fine and takes nothing away.
    await peer.send("CLS\n");
    equal(await peer.next(), "CLOSE_WAIT");
    peer.connection.close();
  });
});

Deno.test("TLS comes before compression, with an OK after each, and statistics tell", async () => {
  const tls = new FakeTls();
  await World.use(tls.world(), async (world) => {
    const peer = await Peer.connect(world, identify({ tls_v1: true, snappy: true }));
    equal(JSON.parse(await peer.next()).tls_v1, true);
    equal(await peer.next(), "OK");
    peer.compress();
    equal(await peer.next(), "OK");
    const session = [...world.server.sessions][0]!;
    const stats = clientStats(session);
    equal(
      [stats.tls, stats.tls_version, stats.tls_cipher_suite, stats.snappy],
      [true, "TLS1.3", "SUITE", true],
    );
    equal(stats.tls_negotiated_protocol_is_mutual, true);
    equal(session.connection.tlsState?.commonName, "test.local");
    peer.connection.close();
  });
});

Deno.test("without feature negotiation nothing is upgraded, whatever is asked for", async () => {
  const tls = new FakeTls(true);
  await World.use(tls.world(), async (world) => {
    const peer = await Peer.connect(world, encodeIdentify({ tls_v1: true, snappy: true }));
    equal(await peer.next(), "OK");
    await peer.send("NOP\n");
    equal(await peer.next(), "E_INVALID cannot NOP in current state (TLS required)");
    equal(await peer.next(), "end");
    peer.connection.close();
    equal(tls.asked, 0);
  });
});

Deno.test("an upgrade waits until what was answered before is durable and written", async () => {
  const tls = new FakeTls();
  await World.use(tls.world(), async (world) => {
    const release = world.disk.hold();
    const peer = await Peer.connect(world, pub("t", "before"), TLS);
    equal(tls.asked, 0);
    release();
    equal(await peer.next(), "OK");
    ok((await peer.next()).startsWith("{"));
    equal(await peer.next(), "OK");
    equal(tls.asked, 1);
    peer.connection.close();
  });
});

Deno.test("no heartbeat is sent between the reply and the last OK", async () => {
  const tls = new FakeTls();
  let handshake = () => {};
  tls.answer = new Promise((resolve) => handshake = resolve);
  await World.use(tls.world(), async (world) => {
    const peer = await Peer.connect(world, identify({ tls_v1: true, heartbeat_interval: 1000 }));
    await world.clock.run(4_000);
    handshake();
    ok((await peer.next()).startsWith("{"));
    equal(await peer.next(), "OK");
    await world.clock.run(999);
    await peer.send("ASDF\n");
    equal(await peer.next(), "E_INVALID invalid command ASDF");
    peer.connection.close();
    const other = await Peer.connect(world, identify({ tls_v1: true, heartbeat_interval: 1000 }));
    await other.next();
    await other.next();
    await world.clock.run(1_000);
    equal(await other.next(), "_heartbeat_");
    other.connection.close();
  });
});

for (const [name, fields] of [["TLS", { tls_v1: true }], ["snappy", { snappy: true }]] as const) {
  Deno.test(`commands sent in clear behind an IDENTIFY for ${name} are refused`, async () => {
    const tls = new FakeTls();
    await World.use(tls.world(), async (world) => {
      const peer = await Peer.connect(world, identify(fields), pub("t", "injected"));
      equal(
        await peer.next(),
        "E_IDENTIFY_FAILED IDENTIFY failed more was sent before the upgrade",
      );
      equal(await peer.next(), "end");
      equal([tls.asked, world.broker.topics.size], [0, 0]);
      peer.connection.close();
    });
  });
}

Deno.test("where TLS is required every command but IDENTIFY is refused before it", async () => {
  const tls = new FakeTls(true);
  await World.use(tls.world(), async (world) => {
    for (const line of ["PUB t", "SUB t c", "NOP", "AUTH", "ASDF", "CLS", "FIN x", ""]) {
      const peer = await Peer.connect(world, `${line}\n`);
      const verb = line.split(" ")[0];
      equal(await peer.next(), `E_INVALID cannot ${verb} in current state (TLS required)`);
      equal(await peer.next(), "end");
      peer.connection.close();
    }
    const peer = await Peer.connect(world, identify({}));
    equal(JSON.parse(await peer.next()).tls_v1, false);
    await peer.send(TLS);
    await peer.next();
    equal(await peer.next(), "OK");
    await peer.send(pub("t", "secret"));
    equal(await peer.next(), "OK");
    peer.connection.close();
  });
});

Deno.test("a handshake that fails costs its own connection only", async () => {
  const tls = new FakeTls();
  const failed = Promise.reject(new ConnectionError("no"));
  failed.catch(() => {});
  tls.answer = failed;
  const lines: string[] = [];
  await World.use(tls.world({ log: (line) => lines.push(line) }), async (world) => {
    const peer = await Peer.connect(world, TLS);
    ok((await peer.next()).startsWith("{"));
    equal(await peer.next(), "end");
    peer.connection.close();
    const { message, reason, error } = JSON.parse(lines.at(-1) ?? "{}");
    equal([message, reason, error], ["Connection closed", "tls_failure", "no"]);
    equal(tls.door.handshakes.failedCount, 1);
    tls.answer = Promise.resolve();
    const other = await Peer.connect(world, TLS);
    await other.next();
    equal(await other.next(), "OK");
    other.connection.close();
  });
});

Deno.test("an upgrade that takes too long ends the connection", async () => {
  const tls = new FakeTls();
  tls.answer = new Promise(() => {});
  const lines: string[] = [];
  await World.use(tls.world({ log: (line) => lines.push(line) }), async (world) => {
    const peer = await Peer.connect(world, TLS);
    await peer.next();
    await world.clock.run(UPGRADE_MS_MAX);
    equal(await peer.next(), "end");
    equal(JSON.parse(lines.at(-1) ?? "{}").reason, "tls_failure");
    equal(world.server.sessions.size, 0);
    peer.connection.close();
  });
});

Deno.test("a client that goes away in its upgrade leaves nothing behind", async () => {
  const tls = new FakeTls();
  tls.answer = new Promise(() => {});
  await World.use(tls.world(), async (world) => {
    const peer = await Peer.connect(world, TLS);
    await peer.next();
    peer.connection.close();
    await settle();
    // Nothing is read in an upgrade, so it is noticed when the time is over.
    await world.clock.run(UPGRADE_MS_MAX);
    equal(world.server.sessions.size, 0);
  });
});

Deno.test("closing the server ends a connection in the middle of its upgrade", async () => {
  const tls = new FakeTls();
  tls.answer = new Promise(() => {});
  await World.use(tls.world(), async (world) => {
    const peer = await Peer.connect(world, TLS);
    await peer.next();
    await world.clock.runUntil(world.server.close(), 1_000);
    equal(await peer.next(), "end");
    peer.connection.close();
  });
});

Deno.test("an upgraded connection takes an IDENTIFY without upgrades, and no second upgrade", async () => {
  await World.use({}, async (world) => {
    const peer = await Peer.connect(world, SNAPPY);
    await peer.next();
    peer.compress();
    equal(await peer.next(), "OK");
    await peer.send(identify({ client_id: "again" }));
    equal(JSON.parse(await peer.next()).snappy, false);
    const stats = [...world.server.sessions].map(clientStats)[0]!;
    equal([stats.client_id, stats.snappy], ["again", true]);
    await peer.send(SNAPPY);
    equal(
      await peer.next(),
      "E_IDENTIFY_FAILED IDENTIFY failed the connection is upgraded already",
    );
    peer.connection.close();
  });
});

Deno.test("snappy that is broken ends the connection, and what was in flight goes back", async () => {
  await World.use({}, async (world) => {
    const plain = await world.network.connect("127.0.0.1", 4150, 1000);
    await plain.writeAll(new Uint8Array([...MAGIC_V2, ...SNAPPY]));
    await settle();
    await plain.read(new Uint8Array(4096));
    const encoder = new SnappyEncoder();
    await plain.writeAll(
      encoder.encode(
        new Uint8Array([
          ...encodeSub("t", "c"),
          ...utf8Bytes("RDY 1\n"),
          ...pub("t", "back"),
        ]),
      ),
    );
    await settle();
    equal(world.counts("t", "c"), [0, 1, 0]);
    const broken = encoder.encode(utf8Bytes("NOP\n")).slice();
    broken[4]! ^= 1;
    await plain.writeAll(broken);
    await settle();
    equal(world.counts("t", "c"), [1, 0, 0]);
    equal(world.server.sessions.size, 0);
    plain.close();
  });
});

Deno.test("a client that uses up its buffer in snappy is waited for, and gets all", async () => {
  await World.use({ bufferBytesMax: 500 }, async (world) => {
    const peer = await Peer.connect(world, SNAPPY);
    await peer.next();
    peer.compress();
    equal(await peer.next(), "OK");
    await peer.send(encodeSub("t", "c"), "RDY 100\n");
    const bodies = Array.from({ length: 50 }, (_, number) => String(number % 10).repeat(500));
    const sending = (async () => {
      for (const body of bodies) await peer.send(pub("t", body));
    })();
    const received: string[] = [];
    while (received.length < bodies.length) {
      const frame = await peer.next();
      if (frame !== "OK") received.push(frame);
    }
    await sending;
    equal(received, bodies);
    peer.connection.close();
  });
});

Deno.test("Handshakes run so many at a time, in the order they came, failed ones as well", async () => {
  const handshakes = new Handshakes(new SimClock(), 2);
  const started: number[] = [];
  const ends: PromiseWithResolvers<void>[] = [];
  const all = [0, 1, 2, 3].map((number) =>
    handshakes.run(() => {
      started.push(number);
      ends[number] = Promise.withResolvers();
      return ends[number].promise;
    }, () => {})
  );
  await settle();
  equal(started, [0, 1]);
  ends[1]!.reject(new Error("failed"));
  await rejects(all[1]!, /failed/);
  await settle();
  equal(started, [0, 1, 2]);
  ends[0]!.resolve();
  ends[2]!.resolve();
  await settle();
  equal(started, [0, 1, 2, 3]);
  ends[3]!.resolve();
  await Promise.all([all[0], all[2], all[3]]);
  equal(handshakes.failedCount, 1);
  await handshakes.run(() => Promise.resolve(), () => {});
});

Deno.test("silent handshakes end when others wait, the oldest first, and no sooner", async () => {
  const clock = new SimClock();
  const handshakes = new Handshakes(clock, 2);
  const start = (name: string) => {
    const { promise, reject } = Promise.withResolvers<void>();
    const drop = () => {
      order.push(name);
      reject(new Error("dropped"));
    };
    return handshakes.run(() => promise, drop).catch(() => {});
  };
  const order: string[] = [];
  const first = start("first");
  await clock.run(100);
  const second = start("second");
  await clock.run(10 * HANDSHAKE_FAIR_MS);
  equal(order, [], "nobody waits");
  let isHonestDone = false;
  const honest = handshakes.run(() => Promise.resolve(), () => {}).then(() => isHonestDone = true);
  await clock.run(0);
  equal([order, isHonestDone], [["first"], true]);
  // A new one has its fair time, though others wait.
  const third = start("third");
  const waiting = [handshakes.run(() => Promise.resolve(), () => {})];
  await clock.run(HANDSHAKE_FAIR_MS - 1);
  equal(order, ["first", "second"]);
  await Promise.all([first, second, honest, ...waiting]);
  const fourth = start("fourth");
  const last = handshakes.run(() => Promise.resolve(), () => {});
  await clock.run(1);
  equal(order, ["first", "second", "third"]);
  await Promise.all([third, last]);
  equal(clock.pendingTimers, 0);
  await clock.run(HANDSHAKE_FAIR_MS);
  equal(order, ["first", "second", "third"], "nobody waits any more");
  void fourth;
});
