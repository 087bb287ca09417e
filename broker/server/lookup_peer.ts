/**
 * Keeps a broker registered with its discovery services: one {@linkcode LookupPeer} for each, which
 * carries out what its {@linkcode LookupPeerMachine} decides, and {@linkcode LookupPeers} for all of
 * them. A discovery service that is down, slow or broken costs one connection attempt now and then;
 * the broker never waits for it.
 */
import type { LookupPeer as LookupIdentity, LookupServer } from "@sluice/shared/protocol";
import {
  type Clock,
  type Connection,
  ConnectionError,
  type Network,
  type Random,
  type Timer,
} from "@sluice/shared/runtime";
import type { Logger } from "@sluice/shared/telemetry";
import { type HttpGet, lookupChannels } from "./lookup_channels.ts";
import {
  LookupPeerMachine,
  type PeerEffect,
  type PeerInput,
  type RegistryChange,
  type RegistrySource,
} from "./lookup_peer_machine.ts";

export type { HttpGet, RegistrySource };

export const CONNECT_TIMEOUT_MS = 1_000;

const READ_BUFFER_BYTES = 4_096;

/** The TCP side of a discovery service. */
export interface LookupAddress {
  readonly host: string;
  readonly port: number;
}

export interface LookupPeerOptions {
  readonly identity: LookupIdentity;
  readonly source: RegistrySource;
  readonly clock: Clock;
  readonly network: Network;
  readonly random: Random;
  readonly logger: Logger;
  /** Called for an error that is a mistake of ours; the service must stop. */
  readonly onBroken: (error: unknown) => void;
}

/** What all peers of a broker share. */
export interface LookupPeersOptions extends LookupPeerOptions {
  readonly httpGet: HttpGet;
}

/** The connection to one discovery service. */
export class LookupPeer {
  readonly address: string;
  readonly #target: LookupAddress;
  readonly #options: LookupPeerOptions;
  readonly #machine: LookupPeerMachine;
  readonly #logger: Logger;
  /** Connecting, reading and writing, as far as it is under way. */
  readonly #running = new Set<Promise<void>>();
  #connection: Connection | null = null;
  #written: Promise<void> = Promise.resolve();
  #timer: Timer | null = null;
  #server: LookupServer | null = null;
  #active = false;

  constructor(target: LookupAddress, options: LookupPeerOptions) {
    this.#target = target;
    this.#options = options;
    this.#machine = new LookupPeerMachine(options);
    this.address = hostAndPort(target.host, target.port);
    this.#logger = options.logger.child({ lookupd: this.address });
  }

  /** Whether discovery knows this broker now. */
  get isUp(): boolean {
    return this.#machine.stateKind === "up";
  }

  /** `host:port` of the HTTP side, as the service told us when it last answered IDENTIFY. */
  get httpAddress(): string | null {
    const server = this.#server;
    if (server === null || server.broadcastAddress === "") return null;
    if (server.httpPort < 1 || server.httpPort > 65_535) return null;
    return hostAndPort(server.broadcastAddress, server.httpPort);
  }

  start(): void {
    this.#active = true;
    this.#step({ kind: "tick" });
  }

  changed(change: RegistryChange): void {
    this.#step({ kind: "changed", change });
  }

  /** Closes the connection, by which discovery forgets what we registered. */
  async stop(): Promise<void> {
    this.#active = false;
    this.#timer?.cancel();
    this.#connection?.close();
    this.#connection = null;
    await Promise.all(this.#running);
  }

  #step(input: PeerInput): void {
    if (!this.#active) return;
    const { clock } = this.#options;
    for (const effect of this.#machine.step(input, clock.monoMs())) this.#apply(effect);
    this.#timer?.cancel();
    const { deadlineMs } = this.#machine;
    this.#timer = deadlineMs === null
      ? null
      : clock.setTimer(deadlineMs - clock.monoMs(), () => this.#step({ kind: "tick" }));
  }

  #apply(effect: PeerEffect): void {
    switch (effect.kind) {
      case "connect":
        return this.#run(this.#connect());
      case "send":
        return this.#send(effect.bytes);
      case "disconnect":
        this.#connection?.close();
        this.#connection = null;
        return;
      case "identified":
        this.#server = effect.server;
        this.#logger.info("discovery knows this broker", { version: effect.server.version });
        return;
      case "synced":
        this.#logger.info("all topics and channels are registered");
        return;
      case "failed": {
        const { reason, retryInMs, failures } = effect;
        const fields = { reason, retry_in_ms: retryInMs };
        // The first failure is news; that a service stays down is not.
        if (failures === 1) this.#logger.warn("not registered with discovery", fields);
        else this.#logger.debug("still not registered with discovery", fields);
        return;
      }
    }
  }

  async #connect(): Promise<void> {
    const { host, port } = this.#target;
    let connection: Connection;
    try {
      connection = await this.#options.network.connect(host, port, CONNECT_TIMEOUT_MS);
    } catch (error) {
      return this.#step({ kind: "lost", reason: reasonOf(error) });
    }
    if (!this.#active) return connection.close();
    this.#connection = connection;
    this.#written = Promise.resolve();
    this.#run(this.#read(connection));
    this.#step({ kind: "connected" });
  }

  async #read(connection: Connection): Promise<void> {
    const buffer = new Uint8Array(READ_BUFFER_BYTES);
    while (true) {
      let input: PeerInput;
      try {
        const count = await connection.read(buffer);
        input = count === null
          ? { kind: "lost", reason: "discovery closed the connection" }
          : { kind: "received", bytes: buffer.subarray(0, count) };
      } catch (error) {
        input = { kind: "lost", reason: reasonOf(error) };
      }
      // A connection that was given up has no say any more.
      if (this.#connection !== connection) return;
      this.#step(input);
    }
  }

  /** The machine's deadline for the reply is the deadline of the write, too. */
  #send(bytes: Uint8Array): void {
    const connection = this.#connection;
    if (connection === null) return;
    // Replies may be here before the write is known to be done: one write at a time.
    this.#written = this.#written.then(() => connection.writeAll(bytes)).catch((error) => {
      if (this.#connection === connection) this.#step({ kind: "lost", reason: reasonOf(error) });
    });
    this.#run(this.#written);
  }

  #run(work: Promise<void>): void {
    const running = work.catch(this.#options.onBroken).finally(() => this.#running.delete(running));
    this.#running.add(running);
  }
}

/** All discovery services of a broker. */
export class LookupPeers {
  readonly #options: LookupPeersOptions;
  readonly #peers = new Map<string, LookupPeer>();
  /** Peers that are left, until their connections have ended. */
  readonly #leaving = new Set<Promise<void>>();
  #state: "new" | "started" | "stopped" = "new";

  constructor(options: LookupPeersOptions) {
    this.#options = options;
  }

  get peers(): readonly LookupPeer[] {
    return [...this.#peers.values()];
  }

  /** Has these for peers and no others; a peer that stays keeps its connection. */
  replace(targets: readonly LookupAddress[]): void {
    if (this.#state === "stopped") return;
    const wanted = new Map(
      targets.map((target) => [hostAndPort(target.host, target.port), target]),
    );
    for (const [address, peer] of this.#peers) {
      if (wanted.has(address)) continue;
      this.#peers.delete(address);
      const left = peer.stop().finally(() => this.#leaving.delete(left));
      this.#leaving.add(left);
    }
    for (const [address, target] of wanted) {
      if (this.#peers.has(address)) continue;
      const peer = new LookupPeer(target, this.#options);
      this.#peers.set(address, peer);
      if (this.#state === "started") peer.start();
    }
  }

  start(): void {
    this.#state = "started";
    for (const peer of this.#peers.values()) peer.start();
  }

  async stop(): Promise<void> {
    this.#state = "stopped";
    await Promise.all([...this.#peers.values()].map((peer) => peer.stop()));
    await Promise.all(this.#leaving);
  }

  topicAdded(topic: string): void {
    this.#changed({ kind: "register", topic, channel: null });
  }

  channelAdded(topic: string, channel: string): void {
    this.#changed({ kind: "register", topic, channel });
  }

  topicRemoved(topic: string): void {
    this.#changed({ kind: "unregister", topic, channel: null });
  }

  channelRemoved(topic: string, channel: string): void {
    this.#changed({ kind: "unregister", topic, channel });
  }

  /** See {@linkcode lookupChannels}; asks every service that has answered an IDENTIFY so far. */
  async lookupChannels(topic: string): Promise<string[]> {
    const addresses = this.peers.map((peer) => peer.httpAddress);
    const known = new Set(addresses.filter((address) => address !== null));
    return await lookupChannels(topic, [...known], this.#options);
  }

  #changed(change: RegistryChange): void {
    for (const peer of this.#peers.values()) peer.changed(change);
  }
}

function hostAndPort(host: string, port: number): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

/** What to say of a failed connection; anything else is a mistake of ours and goes on. */
function reasonOf(error: unknown): string {
  if (error instanceof ConnectionError) return error.message;
  throw error;
}
