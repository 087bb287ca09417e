/**
 * One publish on its way through the gateway: what is stored once at a broker, kept in memory until
 * it is, or in the spool when no broker can take it.
 */

/** A publish before it is known who gets it. Nothing of it ever changes. */
export interface Unstamped {
  readonly topic: string;
  /** Whether `body` is that of an MPUB (a count, then sized messages) rather than one message. */
  readonly isBatch: boolean;
  readonly messageCount: number;
  readonly body: Uint8Array;
  /** Unix ms at which its message is due; 0 for at once. A batch is never deferred. */
  readonly dueWallMs: number;
}

/** See the module. Nothing of it ever changes. */
export interface Publish extends Unstamped {
  /** 16 bytes that name the producer at brokers. */
  readonly producer: Uint8Array;
  /** Its number among the publishes of that producer to the topic. */
  readonly sequence: number;
}

/** What a publish takes in memory beside its body, about. */
export const PUBLISH_OVERHEAD_BYTES = 256;
