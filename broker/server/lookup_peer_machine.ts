/**
 * The broker's side of one discovery connection (NSQ's lookup protocol V1), as a pure machine: what
 * happened and the monotonic time go in, what to do comes out. It promises:
 *
 * - After each connect the whole registry is registered anew, then changes follow in their order,
 *   so the other side converges to ours whatever was lost before.
 * - Commands go out in batches of at most {@linkcode BATCH_COMMANDS_MAX}; the next batch waits for
 *   the replies to the last. No reply within {@linkcode REPLY_TIMEOUT_MS}, an error reply, an
 *   unasked one or one larger than {@linkcode REPLY_BYTES_MAX} ends the connection.
 * - More than {@linkcode CHANGES_MAX} waiting changes end it too: the next connect registers
 *   everything.
 * - It connects again after a delay that doubles from {@linkcode RETRY_DELAY_MS_MIN} up to
 *   {@linkcode RETRY_DELAY_MS_MAX}, less a random part of up to a half so that brokers do not come
 *   in step. The delay starts over once a connection has registered everything.
 *
 *     waiting -> connecting -> identifying -> up, and from each of the last three back to waiting
 */
import {
  BlockEvent,
  concatBytes,
  createLookupReplyDecoder,
  decodeLookupReply,
  encodeLookupIdentify,
  encodeRegister,
  encodeUnregister,
  type LookupPeer as LookupIdentity,
  lookupReplyText,
  type LookupServer,
  MAGIC_V1,
  PING_COMMAND,
} from "@sluice/shared/protocol";
import { invariant, type Random, randomBelow, unreachable } from "@sluice/shared/runtime";

export const REPLY_TIMEOUT_MS = 1_000;
export const REPLY_BYTES_MAX = 65_536;
export const PING_INTERVAL_MS = 15_000;
export const BATCH_COMMANDS_MAX = 64;
export const CHANGES_MAX = 10_000;
export const RETRY_DELAY_MS_MIN = 250;
export const RETRY_DELAY_MS_MAX = 5_000;

/** The topics and channels a broker has now. */
export interface RegistrySource {
  topics(): Iterable<{ readonly name: string; readonly channels: Iterable<string> }>;
}

/** A topic, or a channel of it, that came or went. */
export interface RegistryChange {
  readonly kind: "register" | "unregister";
  readonly topic: string;
  /** `null` for the topic itself. */
  readonly channel: string | null;
}

/** What happened. */
export type PeerInput =
  | { readonly kind: "tick" }
  | { readonly kind: "connected" }
  /** Bytes of the stream from discovery, borrowed for the call. */
  | { readonly kind: "received"; readonly bytes: Uint8Array }
  /** The connection could not be made, failed or ended. */
  | { readonly kind: "lost"; readonly reason: string }
  | { readonly kind: "changed"; readonly change: RegistryChange };

/** What to do, in order. */
export type PeerEffect =
  | { readonly kind: "connect" }
  | { readonly kind: "send"; readonly bytes: Uint8Array }
  | { readonly kind: "disconnect" }
  | { readonly kind: "identified"; readonly server: LookupServer }
  /** All that was in the registry is registered. */
  | { readonly kind: "synced" }
  | {
    readonly kind: "failed";
    readonly reason: string;
    readonly retryInMs: number;
    /** 1 for the first failure since everything was registered. */
    readonly failures: number;
  };

type State =
  | { readonly kind: "waiting"; readonly retryAtMs: number }
  | { readonly kind: "connecting" }
  | { readonly kind: "identifying"; readonly deadlineMs: number }
  | UpState;

interface UpState {
  readonly kind: "up";
  /** The rest of the registry as it was when the connection came up; sent before any change. */
  readonly registrations: Uint8Array[];
  /** Changes since then. */
  readonly changes: Uint8Array[];
  /** Replies still to come for the last batch. */
  awaited: number;
  deadlineMs: number;
  pingAtMs: number;
  synced: boolean;
}

export interface LookupPeerMachineOptions {
  /** What we say of ourselves. */
  readonly identity: LookupIdentity;
  readonly source: RegistrySource;
  readonly random: Random;
}

export class LookupPeerMachine {
  readonly #options: LookupPeerMachineOptions;
  #decoder = createLookupReplyDecoder(REPLY_BYTES_MAX);
  #state: State = { kind: "waiting", retryAtMs: -Infinity };
  /** Since everything was last registered. */
  #failures = 0;

  constructor(options: LookupPeerMachineOptions) {
    this.#options = options;
  }

  get stateKind(): State["kind"] {
    return this.#state.kind;
  }

  /** When a tick is due, or `null` while there is nothing to wait for. */
  get deadlineMs(): number | null {
    const state = this.#state;
    switch (state.kind) {
      case "waiting":
        return state.retryAtMs;
      case "connecting":
        return null;
      case "identifying":
        return state.deadlineMs;
      case "up":
        return state.awaited > 0 ? state.deadlineMs : state.pingAtMs;
      default:
        return unreachable(state);
    }
  }

  step(input: PeerInput, nowMs: number): PeerEffect[] {
    switch (input.kind) {
      case "tick":
        return this.#tick(nowMs);
      case "connected":
        return this.#connected(nowMs);
      case "received":
        return this.#received(input.bytes, nowMs);
      case "lost":
        return this.#state.kind === "waiting" ? [] : this.#fail(input.reason, nowMs);
      case "changed":
        return this.#changed(input.change, nowMs);
      default:
        return unreachable(input);
    }
  }

  #tick(nowMs: number): PeerEffect[] {
    const state = this.#state;
    const { deadlineMs } = this;
    if (deadlineMs === null || nowMs < deadlineMs) return [];
    if (state.kind === "waiting") {
      this.#state = { kind: "connecting" };
      return [{ kind: "connect" }];
    }
    if (state.kind === "up" && state.awaited === 0) return this.#sendNext(state, nowMs);
    return this.#fail(`no reply within ${REPLY_TIMEOUT_MS} ms`, nowMs);
  }

  #connected(nowMs: number): PeerEffect[] {
    invariant(this.#state.kind === "connecting", "a connection was asked for");
    this.#decoder = createLookupReplyDecoder(REPLY_BYTES_MAX);
    this.#state = { kind: "identifying", deadlineMs: nowMs + REPLY_TIMEOUT_MS };
    const hello = concatBytes(MAGIC_V1, encodeLookupIdentify(this.#options.identity));
    return [{ kind: "send", bytes: hello }];
  }

  #received(bytes: Uint8Array, nowMs: number): PeerEffect[] {
    if (this.#state.kind !== "identifying" && this.#state.kind !== "up") return [];
    const effects: PeerEffect[] = [];
    const decoder = this.#decoder;
    decoder.feed(bytes);
    // A failed reply ends the loop by changing the state.
    while (this.#state.kind === "identifying" || this.#state.kind === "up") {
      const event = decoder.next();
      if (event === BlockEvent.NEED_MORE) break;
      effects.push(
        ...event === BlockEvent.BAD_SIZE
          ? this.#fail(`a reply of ${decoder.size} bytes`, nowMs)
          : this.#reply(this.#state, nowMs),
      );
    }
    return effects;
  }

  #reply(state: State, nowMs: number): PeerEffect[] {
    if (state.kind === "identifying") {
      const { buffer, start, end } = this.#decoder;
      const server = decodeLookupReply(buffer, start, end);
      if (server === undefined) return this.#failByReply("IDENTIFY", nowMs);
      const up = this.#up(nowMs);
      this.#state = up;
      return [{ kind: "identified", server }, ...this.#sendNext(up, nowMs)];
    }
    invariant(state.kind === "up", "replies are read only while they may come");
    if (state.awaited === 0 || lookupReplyText(this.#decoder) !== "OK") {
      return this.#failByReply(state.awaited === 0 ? "nothing" : "a command", nowMs);
    }
    state.awaited -= 1;
    state.deadlineMs = nowMs + REPLY_TIMEOUT_MS;
    return state.awaited === 0 ? this.#sendNext(state, nowMs) : [];
  }

  #up(nowMs: number): UpState {
    const registrations: Uint8Array[] = [];
    for (const topic of this.#options.source.topics()) {
      let channels = 0;
      for (const channel of topic.channels) {
        registrations.push(encodeRegister(topic.name, channel));
        channels += 1;
      }
      if (channels === 0) registrations.push(encodeRegister(topic.name));
    }
    const pingAtMs = nowMs + PING_INTERVAL_MS;
    return {
      kind: "up",
      registrations,
      changes: [],
      awaited: 0,
      deadlineMs: nowMs,
      pingAtMs,
      synced: false,
    };
  }

  #changed(change: RegistryChange, nowMs: number): PeerEffect[] {
    const state = this.#state;
    // Before the connection is up there is nothing to change: coming up registers what is there.
    if (state.kind !== "up") return [];
    if (state.changes.length >= CHANGES_MAX) {
      return this.#fail(`more than ${CHANGES_MAX} changes wait`, nowMs);
    }
    const encode = change.kind === "register" ? encodeRegister : encodeUnregister;
    state.changes.push(encode(change.topic, change.channel ?? ""));
    return state.awaited === 0 ? this.#sendNext(state, nowMs) : [];
  }

  /** Sends the next batch, if there is one; all replies to the last one have come. */
  #sendNext(state: UpState, nowMs: number): PeerEffect[] {
    const effects: PeerEffect[] = [];
    if (!state.synced && state.registrations.length === 0) {
      state.synced = true;
      this.#failures = 0;
      effects.push({ kind: "synced" });
    }
    const batch: Uint8Array[] = [];
    if (nowMs >= state.pingAtMs) {
      batch.push(PING_COMMAND);
      state.pingAtMs = nowMs + PING_INTERVAL_MS;
    }
    batch.push(...state.registrations.splice(0, BATCH_COMMANDS_MAX - batch.length));
    batch.push(...state.changes.splice(0, BATCH_COMMANDS_MAX - batch.length));
    if (batch.length === 0) return effects;
    state.awaited = batch.length;
    state.deadlineMs = nowMs + REPLY_TIMEOUT_MS;
    return [...effects, { kind: "send", bytes: concatBytes(...batch) }];
  }

  #failByReply(asked: string, nowMs: number): PeerEffect[] {
    const text = lookupReplyText(this.#decoder).slice(0, 200);
    return this.#fail(`the reply to ${asked} was ${JSON.stringify(text)}`, nowMs);
  }

  #fail(reason: string, nowMs: number): PeerEffect[] {
    const exponent = Math.min(this.#failures, 16);
    const delayMs = Math.min(RETRY_DELAY_MS_MAX, RETRY_DELAY_MS_MIN * 2 ** exponent);
    const retryInMs = delayMs - randomBelow(this.#options.random, Math.floor(delayMs / 2) + 1);
    this.#failures += 1;
    this.#state = { kind: "waiting", retryAtMs: nowMs + retryInMs };
    return [{ kind: "disconnect" }, {
      kind: "failed",
      reason,
      retryInMs,
      failures: this.#failures,
    }];
  }
}
