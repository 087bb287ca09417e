/**
 * A broker with its TCP door in a simulated world, and clients that speak NSQ to it. Has no tests of
 * its own.
 */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import {
  FrameDecoder,
  FrameEvent,
  IDENTIFY_OPTIONS_DEFAULT,
  type IdentifyOptions,
  MAGIC_V2,
  MESSAGE_BODY_OFFSET,
  MESSAGE_ID_OFFSET,
  readAttempts,
  utf8Bytes,
} from "@sluice/shared/protocol";
import {
  type Connection,
  ConnectionError,
  type DiskFile,
  type Listener,
} from "@sluice/shared/runtime";
import { Logger } from "@sluice/shared/telemetry";
import {
  DiskFileWrapper,
  DiskWrapper,
  SeededRandom,
  settle,
  SimClock,
  SimDisk,
  SimNetwork,
} from "@sluice/shared/testing";
import { Broker, type BrokerOptions } from "../broker.ts";
import type { TcpServer } from "@sluice/shared/server";
import { brokerTcp, type Session, type SessionOptions } from "./session.ts";

/** A disk whose syncs of the log can be held back, or made to fail. */
export class HeldDisk extends DiskWrapper {
  syncs = 0;
  #failing = false;
  #held: Promise<void> | null = null;
  #release: () => void = () => {};
  #heldReads: Promise<void> | null = null;
  #releaseReads: () => void = () => {};

  /** Syncs of the log wait from now on; call what is returned to let them go on. */
  hold(): () => void {
    this.#held = new Promise((resolve) => this.#release = resolve);
    return () => {
      this.#held = null;
      this.#release();
    };
  }

  failSyncs(): void {
    this.#failing = true;
  }

  /** Reads of the log wait from now on; call what is returned to let them go on. */
  holdReads(): () => void {
    this.#heldReads = new Promise((resolve) => this.#releaseReads = resolve);
    return () => {
      this.#heldReads = null;
      this.#releaseReads();
    };
  }

  override wrapFile(file: DiskFile, path: string): DiskFile {
    if (!path.endsWith(".log")) return file;
    return new HeldFile(file, () => this.#sync(), () => this.#heldReads);
  }

  async #sync(): Promise<void> {
    this.syncs++;
    await this.#held;
    if (this.#failing) throw new Error("the disk is broken");
  }
}

class HeldFile extends DiskFileWrapper {
  readonly #before: () => Promise<void>;
  readonly #beforeRead: () => Promise<void> | null;

  constructor(
    inner: DiskFile,
    before: () => Promise<void>,
    beforeRead: () => Promise<void> | null,
  ) {
    super(inner);
    this.#before = before;
    this.#beforeRead = beforeRead;
  }

  override async readAt(position: number, into: Uint8Array): Promise<number> {
    const held = this.#beforeRead();
    if (held !== null) await held;
    return await super.readAt(position, into);
  }

  override async syncData(): Promise<void> {
    await this.#before();
    await super.syncData();
  }
}

/** What a test changes about its world. */
export interface WorldOptions {
  readonly session?: Partial<SessionOptions>;
  readonly identify?: Partial<IdentifyOptions>;
  readonly storage?: Partial<BrokerOptions["storage"]>;
  readonly channel?: Partial<BrokerOptions["channel"]>;
  readonly broker?: Partial<Omit<BrokerOptions, "storage" | "channel">>;
  readonly connectionsMax?: number;
  /** What a connection holds in each direction. */
  readonly bufferBytesMax?: number;
  readonly disk?: SimDisk;
  /** Puts something between the network and the server. */
  readonly listener?: (listener: Listener) => Listener;
  /** Takes the lines of the log. */
  readonly log?: (line: string) => void;
}

/** See the module. */
export class World {
  readonly disk: HeldDisk;
  readonly failures: Error[] = [];
  readonly clients: Client[] = [];

  private constructor(
    readonly simDisk: SimDisk,
    readonly clock: SimClock,
    readonly network: SimNetwork,
    disk: HeldDisk,
    readonly broker: Broker,
    readonly server: TcpServer<Session>,
  ) {
    this.disk = disk;
    broker.onFailure = (error) => this.failures.push(error);
  }

  static async open(options: WorldOptions = {}): Promise<World> {
    const simDisk = options.disk ?? new SimDisk();
    const disk = new HeldDisk(simDisk);
    const clock = new SimClock();
    const network = new SimNetwork({ bufferBytesMax: options.bufferBytesMax ?? 65_536 });
    const broker = await openBroker(disk, clock, options);
    const listener = network.listen("127.0.0.1", 4150);
    const server = brokerTcp(broker, options.listener?.(listener) ?? listener, {
      connectionsMax: options.connectionsMax ?? 100,
      session: {
        identify: { version: "1.3.0", ...IDENTIFY_OPTIONS_DEFAULT, ...options.identify },
        messageBytesMax: 1000,
        bodyBytesMax: 5000,
        requeueMsMax: 3_600_000,
        deferMsMax: 3_600_000,
        consumersMax: options.channel?.consumersMax ?? 0,
        tls: null,
        ...options.session,
      },
    });
    return new World(simDisk, clock, network, disk, broker, server);
  }

  /** Opens a world, uses it, closes it, and checks that it leaves nothing behind. */
  static async use(options: WorldOptions, test: (world: World) => Promise<void>): Promise<void> {
    const world = await World.open(options);
    await test(world);
    await world.close();
  }

  async close(): Promise<void> {
    for (const client of this.clients) client.close();
    await settle();
    await this.clock.runUntil(this.server.close(), 20_000);
    if (this.broker.failure === null) await this.broker.close();
    else await this.broker.abandon();
    await settle();
    equal(
      {
        sessions: this.server.sessions.size,
        staged: this.broker.stagedBytes,
        timers: this.clock.pendingTimers,
        ends: this.network.openEnds,
        files: this.simDisk.openFiles,
      },
      { sessions: 0, staged: 0, timers: 0, ends: 0, files: 0 },
    );
  }

  /** A connection that has sent the magic and whatever is given, all answered. */
  async client(...first: (string | Uint8Array)[]): Promise<Client> {
    const client = await this.rawClient();
    await client.send(MAGIC_V2, ...first);
    return client;
  }

  async rawClient(reading = true): Promise<Client> {
    const connection = await this.network.connect("127.0.0.1", 4150, 1000);
    const client = new Client(connection);
    this.clients.push(client);
    if (reading) client.read();
    return client;
  }

  /** The depth, in-flight and deferred counts of a channel. */
  counts(topic: string, channel: string): [number, number, number] {
    const found = this.broker.topics.get(topic)?.channels.get(channel);
    ok(found !== undefined, `there is a channel ${topic}/${channel}`);
    return [found.depth, found.inFlightCount, found.deferredCount];
  }
}

/** Opens a broker with small sizes. */
export function openBroker(
  disk: DiskWrapper,
  clock: SimClock,
  options: WorldOptions = {},
): Promise<Broker> {
  return Broker.open(
    {
      disk,
      clock,
      random: new SeededRandom(1),
      logger: new Logger({ sink: options.log ?? (() => {}), clock, format: "json" }),
    },
    {
      storage: {
        dataPath: "/data",
        nodeId: { value: 1, required: false },
        ringBytes: 65_536,
        logFileBytes: 1_048_576,
        pageCacheBytes: 1_048_576,
        indexCacheBytes: 1_048_576,
        bodyBytesMax: 5000,
        finishSyncIntervalMs: 10,
        ...options.storage,
      },
      channel: {
        msgTimeoutMsMax: 900_000,
        consumersMax: 0,
        requeueOnDisconnect: true,
        ...options.channel,
      },
      topicsMax: 100,
      channelsPerTopicMax: 100,
      publishBytesMax: 1_048_576,
      ...options.broker,
    },
  );
}

/** A client that notes the frames it gets. */
export class Client {
  /** Messages not yet taken, with their ids. */
  readonly ids: string[] = [];
  /** `end` once the server has ended the stream, `broken` when it failed. */
  state: "open" | "end" | "broken" = "open";
  bytesRead = 0;
  #frames: string[] = [];
  #writing: Promise<void> = Promise.resolve();
  readonly #decoder = new FrameDecoder(1 << 24);

  constructor(readonly connection: Connection) {}

  /** Reads on from now. */
  read(): void {
    void this.#read();
  }

  /** Sends and lets everything happen that follows at once. Text is sent as it is. */
  async send(...parts: (string | Uint8Array)[]): Promise<void> {
    for (const part of parts) this.write(part);
    await settle();
  }

  /** Starts to send. */
  write(part: string | Uint8Array): void {
    const bytes = typeof part === "string" ? utf8Bytes(part) : part;
    this.#writing = this.#writing.then(() => this.connection.writeAll(bytes)).catch((error) => {
      ok(error instanceof ConnectionError);
    });
  }

  /** Ends the stream to the server once everything is sent. */
  async end(): Promise<void> {
    await this.#writing;
    this.connection.closeWrite();
    await settle();
  }

  /** The frames since the last call, and the end of the stream if that is here. */
  take(): string[] {
    const frames = this.#frames;
    this.#frames = [];
    return this.state === "open" ? frames : [...frames, this.state];
  }

  close(): void {
    this.connection.close();
  }

  async #read(): Promise<void> {
    const buffer = new Uint8Array(65_536);
    try {
      while (true) {
        const bytes = await this.connection.read(buffer);
        if (bytes === null) {
          this.state = "end";
          return;
        }
        this.bytesRead += bytes;
        this.#decoder.feed(buffer, 0, bytes);
        while (this.#decoder.next() === FrameEvent.FRAME) this.#note();
      }
    } catch (error) {
      ok(error instanceof ConnectionError);
      this.state = "broken";
    }
  }

  #note(): void {
    const { type, buffer, start, end } = this.#decoder;
    const text = new TextDecoder().decode(buffer.subarray(start, end));
    if (type !== 2) {
      this.#frames.push(text);
      return;
    }
    const body = new TextDecoder().decode(buffer.subarray(start + MESSAGE_BODY_OFFSET, end));
    this.ids.push(new TextDecoder().decode(
      buffer.subarray(start + MESSAGE_ID_OFFSET, start + MESSAGE_BODY_OFFSET),
    ));
    this.#frames.push(`${body} #${readAttempts(buffer, start)}`);
  }
}

/** A PUB as it goes over the wire. */
export function pub(topic: string, body: string): Uint8Array {
  return sized(`PUB ${topic}\n`, utf8Bytes(body));
}

/** A command line, the size of its body, the body. */
export function sized(line: string, body: Uint8Array, bytes = body.length): Uint8Array {
  return new Uint8Array([...utf8Bytes(line), ...int32(bytes), ...body]);
}

export function int32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setInt32(0, value);
  return bytes;
}
