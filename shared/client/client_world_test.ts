/** Servers that do what they are told, for the tests of the client. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { encodeResponseFrame, utf8Bytes } from "../protocol/mod.ts";
import { type Connection, ConnectionError, type Listener } from "../runtime/mod.ts";
import { settle, SimClock, SimNetwork } from "../testing/mod.ts";
import { CLIENT_OPTIONS_DEFAULT, type ClientOptions } from "./client_link.ts";
import { ProducerConnection, PublishError } from "./producer_connection.ts";

export const FEATURES = encodeResponseFrame(
  JSON.stringify({ version: "1.3.0", max_rdy_count: 2500 }),
);
export const OPTIONS: ClientOptions = { ...CLIENT_OPTIONS_DEFAULT, host: "server", port: 4150 };
export const BODY = utf8Bytes("a");

/** The server's end of a connection. */
export class Peer {
  text = "";
  state: "open" | "ended" = "open";
  #isReading = true;
  #readOn: () => void = () => {};

  constructor(readonly connection: Connection) {
    void this.#read();
  }

  /** Reads no more, once what it waits for now is here, until it is to go on. */
  pause(): void {
    this.#isReading = false;
  }

  goOn(): void {
    this.#isReading = true;
    this.#readOn();
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
        if (!this.#isReading) await new Promise<void>((resolve) => this.#readOn = resolve);
      }
    } catch {
      // Ended by the other side.
    }
    this.state = "ended";
  }
}

/** A network with one server, and who connects to it. */
export class World {
  readonly network: SimNetwork;
  readonly clock = new SimClock();
  readonly listener: Listener;
  /** The sizes of what was written to the server. */
  readonly writes: number[] = [];
  /** Has every write to the server fail. */
  failsWrites = false;

  /** A connection holds `bufferBytesMax` in each direction. */
  constructor(bufferBytesMax = 64 * 1024) {
    this.network = new SimNetwork({ bufferBytesMax });
    this.listener = this.network.listen("server", 4150);
    const connect = this.network.connect.bind(this.network);
    this.network.connect = async (...where) => this.#watched(await connect(...where));
  }

  /** The server's end of the next connection, which is answered with `frames`. */
  async accept(...frames: Uint8Array[]): Promise<Peer> {
    const connection = await this.listener.accept();
    ok(connection !== null);
    const peer = new Peer(connection);
    await peer.send(...frames);
    return peer;
  }

  async producer(
    options: ClientOptions = OPTIONS,
    features = FEATURES,
  ): Promise<[ProducerConnection, Peer]> {
    const peer = this.accept(features);
    const producer = await ProducerConnection.connect(this, options);
    return [producer, await peer];
  }

  async close(...peers: Peer[]): Promise<void> {
    for (const peer of peers) peer.connection.close();
    this.listener.close();
    await settle();
    equal([this.network.openEnds, this.clock.pendingTimers], [0, 0]);
  }

  #watched(connection: Connection): Connection {
    const writeAll = connection.writeAll.bind(connection);
    connection.writeAll = (bytes) => {
      if (this.failsWrites) return Promise.reject(new ConnectionError("no"));
      this.writes.push(bytes.length);
      return writeAll(bytes);
    };
    return connection;
  }
}

/** What becomes of each publish: `ok`, or the outcome. */
export function outcomes(...publishes: Promise<void>[]): Promise<string[]> {
  return Promise.all(publishes.map((publish) =>
    publish.then(() => "ok", (error) => {
      ok(error instanceof PublishError);
      return error.outcome;
    })
  ));
}
