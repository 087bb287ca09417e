/** How a channel gets at a message it is about to deliver. */
import type { LargeBody, TopicState } from "../storage/mod.ts";

/** What a message whose body is in parts has besides. */
export interface LargeMessage {
  readonly topic: TopicState;
  readonly offset: number;
  /** Of its record in the log. */
  readonly position: number;
  readonly body: LargeBody;
}

/** A message found by {@linkcode MessageSource.find}; valid until the next `find` or append. */
export interface MessageView {
  readonly bytes: Uint8Array;
  /**
   * The wire part (timestamp, attempts, id, body) is `bytes[start, start + length)`; that of a large
   * message is without the body.
   */
  readonly start: number;
  readonly length: number;
  readonly sequence: number;
  /** Unix ms, 0 when it was not deferred by its publisher. */
  readonly dueMs: number;
  /** The body, when it is to be read part by part. */
  readonly large: LargeMessage | null;
}

/** What `find` found. */
export const FOUND = 0;
/** It has to be read from disk first: `load` does. */
export const COLD = 1;
/** It is damaged or gone; nobody can get it any more. */
export const GONE = 2;

/** Messages by topic and offset. */
export interface MessageSource {
  readonly view: MessageView;
  /** Whether what `find` was asked for last comes from disk, or has to. */
  readonly isCold: boolean;
  find(topic: TopicState, offset: number): typeof FOUND | typeof COLD | typeof GONE;
  /** When the message that `find` has found was published, Unix ms. */
  timestampMs(): number;
  /** Resolves when `find` is worth calling again; never rejects. */
  load(topic: TopicState, offset: number): Promise<void>;
}
