/**
 * What one NSQ connection may do: AUTH, the check before SUB and the commands that publish, and the
 * look again at a live subscription. Contract section 1.12.
 *
 * - What has to be asked elsewhere is {@linkcode SessionAccess.pending}: the session stops reading
 *   until then and handles the same command again, which then finds the outcome.
 * - Grants are believed until they expire; the next command after that has them asked for again.
 * - With `rechecks` a subscription is looked at when its grants expire, and revoked when they no longer
 *   cover it. When they cannot be asked for, that is tried again every {@linkcode RETRY_MS} and the
 *   subscription goes on for {@linkcode GRACE_MS}: an outage is no revocation, but it does not last
 *   for ever either.
 * - A publish to the same topic as the one before is checked without making anything.
 */
import {
  authAlreadySet,
  authFailed,
  authReply,
  authRequired,
  type CommandLine,
  encodeResponseFrame,
  equalBytes,
  nameText,
  noAuthorizations,
  type ProtocolError,
  type PublishVerb,
  unauthorized,
  Verb,
} from "../protocol/mod.ts";
import { type Clock, invariant, type Timer } from "../runtime/mod.ts";
import type { Secret } from "../telemetry/mod.ts";
import {
  AuthorizationUnavailable,
  type Authorizer,
  type Grants,
  secretOf,
} from "../authorization/mod.ts";

export const RETRY_MS = 10_000;
export const GRACE_MS = 15 * 60_000;
/** A timer takes only so long a delay; it is set again. */
const WATCH_MS_MAX = 60 * 60_000;

/** What the handshake of a connection has shown of its client. */
export interface SessionSecurity {
  readonly isTls: boolean;
  /** The common name of the client's certificate, or empty. */
  readonly commonName: string;
  /** Whether a trusted authority signed that; a name that anybody can claim opens nothing here. */
  readonly isCertificateVerified: boolean;
}

/** A connection without TLS. */
export const CLEAR: SessionSecurity = {
  isTls: false,
  commonName: "",
  isCertificateVerified: false,
};

/** What a connection says about its client. */
export interface SessionPeer extends SessionSecurity {
  /** Without the port. */
  readonly remoteIp: string;
}

/** How sessions are authorized. */
export interface SessionAuthorization {
  readonly authorizer: Authorizer;
  /** Whether live subscriptions are looked at again. */
  readonly rechecks: boolean;
}

/** The answer while the outcome is {@linkcode SessionAccess.pending}. */
export const PENDING = "pending";

/** See the module. */
export class SessionAccess {
  /** Resolves when what is being asked for is there; null when nothing is. */
  pending: Promise<void> | null = null;
  readonly #authorizer: Authorizer;
  readonly #rechecks: boolean;
  readonly #clock: Clock;
  readonly #peer: () => SessionPeer;
  readonly #revoke: (error: ProtocolError) => void;
  #secret: Secret<Uint8Array> | null = null;
  #grants: Grants | null = null;
  #expiresMs = 0;
  /** Whether grants have been asked for with the certificate alone. */
  #certificateAsked = false;
  /** What the last asking came to, until a command has looked. */
  #outcome: "granted" | "unavailable" | null = null;
  /** The topic of the last publish that was allowed. */
  #topic: Uint8Array | null = null;
  #timer: Timer | null = null;
  #watched: { readonly topic: string; readonly channel: string } | null = null;
  #unavailableSinceMs: number | null = null;
  #isClosed = false;

  constructor(
    { authorizer, rechecks }: SessionAuthorization,
    clock: Clock,
    peer: () => SessionPeer,
    revoke: (error: ProtocolError) => void,
  ) {
    this.#authorizer = authorizer;
    this.#rechecks = rechecks;
    this.#clock = clock;
    this.#peer = peer;
    this.#revoke = revoke;
  }

  /** Who the client is known as; empty while that is not known. */
  get identity(): string {
    return this.#grants?.identity ?? "";
  }

  /** What `/stats` says of the client; nothing while it has no authorizations. */
  get stats(): { authed?: true; auth_identity?: string; auth_identity_url?: string } {
    const grants = this.#grants;
    if (grants === null || grants.count === 0) return {};
    const { identity, identityUrl } = grants;
    return {
      authed: true,
      ...(identity === "" ? {} : { auth_identity: identity }),
      ...(identityUrl === "" ? {} : { auth_identity_url: identityUrl }),
    };
  }

  /** Carries out AUTH: the frame of its reply, or why not. The secret is copied. */
  authenticate(buffer: Uint8Array, start: number, end: number):
    | Uint8Array
    | ProtocolError
    | typeof PENDING {
    if (this.pending !== null) return PENDING;
    const outcome = this.#takeOutcome();
    if (outcome === null) {
      if (this.#secret !== null) return authAlreadySet();
      this.#secret = secretOf(buffer.subarray(start, end));
      return this.#ask();
    }
    const grants = this.#grants;
    if (outcome === "unavailable" || grants === null) return authFailed();
    if (grants.count === 0) return noAuthorizations();
    const { identity, identityUrl, count } = grants;
    return encodeResponseFrame(authReply(identity, identityUrl, count));
  }

  /** Whether a publish to the topic in `line` may go on (null), or why not. */
  checkPublish(verb: PublishVerb, line: CommandLine): ProtocolError | typeof PENDING | null {
    const { buffer } = line;
    const start = line.paramStart(0);
    const end = line.paramEnd(0);
    if (
      this.#topic !== null && equalBytes(buffer, start, end, this.#topic) &&
      this.#clock.monoMs() < this.#expiresMs
    ) {
      return null;
    }
    const refusal = this.#check(verb, nameText(buffer, start, end), "");
    if (refusal === null) this.#topic = buffer.slice(start, end);
    return refusal;
  }

  /** Whether a subscription may be made (null), or why not. */
  checkSubscribe(topic: string, channel: string): ProtocolError | typeof PENDING | null {
    return this.#check(Verb.SUB, topic, channel);
  }

  /** A subscription has been made: it is looked at whenever its grants expire. */
  watch(topic: string, channel: string): void {
    if (!this.#rechecks) return;
    this.#watched = { topic, channel };
    this.#arm(this.#expiresMs - this.#clock.monoMs());
  }

  /** The connection is gone. */
  close(): void {
    this.#isClosed = true;
    this.#timer?.cancel();
    this.#timer = null;
    this.#keep(null);
  }

  #check(
    verb: PublishVerb | typeof Verb.SUB,
    topic: string,
    channel: string,
  ): ProtocolError | typeof PENDING | null {
    if (this.pending !== null) return PENDING;
    const outcome = this.#takeOutcome();
    if (outcome === "unavailable") return authFailed();
    const grants = this.#grants;
    const isUnknown = grants === null || grants.count === 0;
    // What was asked for again and is gone is a denial; what was never there is not.
    if (isUnknown && (outcome === null || this.#secret === null)) {
      if (!this.#mayUseCertificate) return authRequired(verb);
      this.#certificateAsked = true;
      return this.#ask();
    }
    // What was asked for by this command counts for it, however short it is believed.
    if (outcome === null && this.#clock.monoMs() >= this.#expiresMs) return this.#ask();
    const scope = verb === Verb.SUB ? "consume" : "publish";
    const isAllowed = grants !== null && grants.allows(scope, topic, channel);
    return isAllowed ? null : unauthorized(verb, topic, channel);
  }

  get #mayUseCertificate(): boolean {
    const { commonName, isCertificateVerified } = this.#peer();
    return !this.#certificateAsked && this.#secret === null && commonName !== "" &&
      isCertificateVerified && this.#authorizer.takesCertificates;
  }

  #takeOutcome(): "granted" | "unavailable" | null {
    const outcome = this.#outcome;
    this.#outcome = null;
    return outcome;
  }

  #ask(): typeof PENDING {
    this.pending = this.#authorize().then((outcome) => {
      this.pending = null;
      this.#outcome = outcome;
    });
    return PENDING;
  }

  async #authorize(): Promise<"granted" | "unavailable"> {
    try {
      const { grants, validMs } = await this.#authorizer.authorize({
        ...this.#peer(),
        secret: this.#secret,
      });
      if (this.#isClosed || !this.#keep(grants)) return "unavailable";
      this.#expiresMs = this.#clock.monoMs() + validMs;
      return "granted";
    } catch (error) {
      if (!(error instanceof AuthorizationUnavailable)) throw error;
      return "unavailable";
    }
  }

  /** Puts grants in the place of those before; false when there is no memory for them. */
  #keep(grants: Grants | null): boolean {
    if (this.#grants !== null) this.#authorizer.release(this.#grants);
    this.#topic = null;
    const isKept = grants !== null && this.#authorizer.hold(grants);
    this.#grants = isKept ? grants : null;
    return isKept;
  }

  #arm(delayMs: number): void {
    this.#timer?.cancel();
    this.#timer = this.#isClosed
      ? null
      : this.#clock.setTimer(Math.min(delayMs, WATCH_MS_MAX), () => void this.#recheck());
  }

  /** The grants of a live subscription may have expired. */
  async #recheck(): Promise<void> {
    this.#timer = null;
    const watched = this.#watched;
    invariant(watched !== null, "only a subscription is looked at again");
    if (this.pending !== null) await this.pending;
    else if (this.#clock.monoMs() >= this.#expiresMs) {
      this.#ask();
      await this.pending;
      // No command has asked for it.
      this.#outcome = null;
    }
    if (this.#isClosed) return;
    const nowMs = this.#clock.monoMs();
    if (nowMs >= this.#expiresMs) {
      this.#unavailableSinceMs ??= nowMs;
      if (nowMs - this.#unavailableSinceMs >= GRACE_MS) return this.#revoke(authFailed());
      return this.#arm(RETRY_MS);
    }
    this.#unavailableSinceMs = null;
    const { topic, channel } = watched;
    if (this.#grants?.allows("consume", topic, channel) !== true) {
      return this.#revoke(unauthorized(Verb.SUB, topic, channel));
    }
    this.#arm(this.#expiresMs - nowMs);
  }
}
