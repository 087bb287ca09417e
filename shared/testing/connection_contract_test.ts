/** What every {@linkcode Network} and its connections do, over TCP and in memory. */
import { Buffer } from "node:buffer";
import { deepEqual, equal, notEqual, ok, rejects, throws } from "node:assert/strict";
import {
  AddressInUseError,
  type Connection,
  ConnectionError,
  type Listener,
  type Network,
} from "../runtime/mod.ts";
import { SystemClock, SystemNetwork } from "../runtime/system.ts";
import { settle, SimNetwork } from "./mod.ts";

const HOST = "127.0.0.1";
const TIMEOUT_MS = 10_000;
/** More than both socket buffers of a loopback connection hold. */
const LARGE_BYTES = 32 * 1024 * 1024;

interface Subject {
  readonly name: string;
  readonly make: () => Network;
  readonly listen: (network: Network, port: number) => Listener | Promise<Listener>;
}

const SUBJECTS: readonly Subject[] = [
  {
    name: "SystemNetwork",
    make: () => new SystemNetwork(new SystemClock()),
    listen: (network, port) => network.listen(HOST, port),
  },
  {
    name: "SystemNetwork, upgradable,",
    make: () => new SystemNetwork(new SystemClock()),
    listen: (network, port) => network.listenUpgradable(HOST, port),
  },
  {
    name: "SimNetwork",
    make: () => new SimNetwork(),
    listen: (network, port) => network.listen(HOST, port),
  },
];

function contract(
  promise: string,
  use: (
    network: Network,
    listener: Listener,
    listen: (port: number) => Promise<Listener>,
  ) => Promise<void>,
): void {
  for (const subject of SUBJECTS) {
    Deno.test(`${subject.name} ${promise}`, async () => {
      const network = subject.make();
      // Both kinds reject: what throws at once does so inside.
      const listen = async (port: number) => await subject.listen(network, port);
      const listener = await listen(0);
      try {
        await use(network, listener, listen);
      } finally {
        listener.close();
      }
      if (network instanceof SimNetwork) equal(network.openEnds, 0);
    });
  }
}

function connected(
  promise: string,
  use: (near: Connection, far: Connection) => Promise<void>,
): void {
  contract(promise, async (network, listener) => {
    const near = await network.connect(HOST, listener.port, TIMEOUT_MS);
    const far = await listener.accept();
    ok(far !== null);
    try {
      await use(near, far);
    } finally {
      near.close();
      far.close();
    }
  });
}

/** Reads exactly `count` bytes; fails at an earlier end. */
async function readExactly(connection: Connection, count: number): Promise<Uint8Array> {
  const bytes = new Uint8Array(count);
  for (let filled = 0; filled < count;) {
    const read = await connection.read(bytes.subarray(filled));
    ok(read !== null && read > 0, "the stream goes on");
    filled += read;
  }
  return bytes;
}

contract("listen() picks a free port and names it", (_network, listener) => {
  equal(listener.hostname, HOST);
  ok(listener.port > 0 && listener.port < 65536);
  return Promise.resolve();
});

contract(
  "listening on a taken port fails with AddressInUseError",
  async (_network, listener, listen) => {
    await rejects(listen(listener.port), (error) => {
      ok(error instanceof AddressInUseError);
      equal(error.port, listener.port);
      return true;
    });
  },
);

contract("listen() throws AddressInUseError at once", (network, listener) => {
  throws(() => network.listen(HOST, listener.port), AddressInUseError);
  return Promise.resolve();
});

contract(
  "listening works again on the port of a closed listener",
  async (_network, listener, listen) => {
    listener.close();
    (await listen(listener.port)).close();
  },
);

contract("accept() resolves with null once the listener is closed", async (_network, listener) => {
  const waiting = listener.accept();
  listener.close();
  listener.close();
  equal(await waiting, null);
  equal(await listener.accept(), null);
});

contract(
  "connect() rejects with ConnectionError when nobody listens",
  async (network, listener) => {
    listener.close();
    await rejects(network.connect(HOST, listener.port, TIMEOUT_MS), ConnectionError);
  },
);

contract("connections keep apart", async (network, listener) => {
  const first = await network.connect(HOST, listener.port, TIMEOUT_MS);
  const firstPeer = await listener.accept();
  const second = await network.connect(HOST, listener.port, TIMEOUT_MS);
  const secondPeer = await listener.accept();
  ok(firstPeer !== null && secondPeer !== null);
  notEqual(first.localAddress, second.localAddress);
  await Promise.all([first.writeAll(Uint8Array.of(1)), second.writeAll(Uint8Array.of(2))]);
  deepEqual(await readExactly(firstPeer, 1), Uint8Array.of(1));
  deepEqual(await readExactly(secondPeer, 1), Uint8Array.of(2));
  for (const connection of [first, firstPeer, second, secondPeer]) connection.close();
});

connected("addresses are host:port, and one end's local is the other's remote", (near, far) => {
  equal(near.localAddress, far.remoteAddress);
  equal(near.remoteAddress, far.localAddress);
  ok(/^127\.0\.0\.1:\d+$/.test(near.remoteAddress));
  return Promise.resolve();
});

connected("read() resolves with what is there, both ways", async (near, far) => {
  await near.writeAll(Uint8Array.of(1, 2, 3));
  const into = new Uint8Array(10);
  equal(await far.read(into), 3);
  deepEqual(into.subarray(0, 3), Uint8Array.of(1, 2, 3));
  const waiting = near.read(into);
  await far.writeAll(Uint8Array.of(4));
  equal(await waiting, 1);
  equal(into[0], 4);
});

connected("writeAll() writes all of a large buffer, in order", async (near, far) => {
  const bytes = new Uint8Array(LARGE_BYTES);
  for (let index = 0; index < bytes.length; index += 4096) bytes[index] = index / 4096;
  const writing = near.writeAll(bytes);
  const received = await readExactly(far, bytes.length);
  await writing;
  ok(Buffer.from(received.buffer).equals(bytes));
});

connected("writeAll() of no bytes resolves", async (near) => {
  await near.writeAll(new Uint8Array(0));
});

connected(
  "writeAll() waits for a peer that does not read, and close() rejects it",
  async (near) => {
    let settled = false;
    const writing = near.writeAll(new Uint8Array(LARGE_BYTES)).finally(() => {
      settled = true;
    });
    await settle();
    equal(settled, false);
    near.close();
    await rejects(writing, ConnectionError);
  },
);

connected("close() rejects a pending read, and everything after it", async (near) => {
  const reading = near.read(new Uint8Array(1));
  near.close();
  near.close();
  await rejects(reading, ConnectionError);
  await rejects(near.read(new Uint8Array(1)), ConnectionError);
  await rejects(near.writeAll(Uint8Array.of(1)), ConnectionError);
});

connected("close() lets the peer read what was sent, then the end", async (near, far) => {
  await near.writeAll(Uint8Array.of(1, 2));
  near.close();
  deepEqual(await readExactly(far, 2), Uint8Array.of(1, 2));
  equal(await far.read(new Uint8Array(1)), null);
  equal(await far.read(new Uint8Array(1)), null);
});

connected("closeWrite() ends one direction; the other goes on", async (near, far) => {
  await near.writeAll(Uint8Array.of(1, 2));
  near.closeWrite();
  deepEqual(await readExactly(far, 2), Uint8Array.of(1, 2));
  equal(await far.read(new Uint8Array(1)), null);
  await far.writeAll(Uint8Array.of(3));
  deepEqual(await readExactly(near, 1), Uint8Array.of(3));
  await rejects(near.writeAll(Uint8Array.of(1)), ConnectionError);
});

connected("closeWrite() twice and after close() does nothing", (near) => {
  near.closeWrite();
  near.closeWrite();
  near.close();
  near.closeWrite();
  return Promise.resolve();
});

connected(
  "closeWrite() lets what was sent arrive although bytes stay unread",
  async (near, far) => {
    await far.writeAll(new Uint8Array(64 * 1024));
    await near.writeAll(Uint8Array.of(7));
    near.closeWrite();
    deepEqual(await readExactly(far, 1), Uint8Array.of(7));
    equal(await far.read(new Uint8Array(1)), null);
  },
);

connected("writing to a peer that closed fails with ConnectionError", async (near, far) => {
  far.close();
  await rejects(async () => {
    for (;;) await near.writeAll(new Uint8Array(64 * 1024));
  }, ConnectionError);
});
