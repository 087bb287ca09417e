/**
 * Batches in pieces that a broker stores whole or not at all. A batch of usual size is one piece as it
 * is. A larger one is cut between messages, and a message that a broker would write in parts goes
 * alone: such a batch is not all or nothing, at a broker neither.
 */
import { encodeMpubBody } from "@sluice/shared/protocol";
import type { BatchParts } from "@sluice/shared/http";

/** A broker writes larger messages in parts, which no batch with a number may hold. */
export const WHOLE_MESSAGE_BYTES_MAX = 2 ** 20;
/** Pieces are no larger: every broker's group takes that much, unless its ring is set small. */
export const PIECE_BYTES_MAX = 4 * 2 ** 20;

/** A piece of a batch: a body to be published as a batch, or as one message. */
export interface Piece {
  readonly isBatch: boolean;
  readonly messageCount: number;
  readonly body: Uint8Array;
}

/** Whether a batch can be published as it is. */
export function isOnePiece(bodyBytes: number, largestBytes: number): boolean {
  return bodyBytes <= PIECE_BYTES_MAX && largestBytes <= WHOLE_MESSAGE_BYTES_MAX;
}

/** The pieces of the messages that `parts` finds in `body`, in their order. They are copies. */
export function* pieces(body: Uint8Array, parts: BatchParts): Iterable<Piece> {
  let gathered: Uint8Array[] = [];
  let gatheredBytes = 0;
  for (const { start, end } of parts.each()) {
    const message = body.subarray(start, end);
    const isAlone = message.length > WHOLE_MESSAGE_BYTES_MAX;
    const isFull = gatheredBytes + message.length + 4 > PIECE_BYTES_MAX - 4;
    if ((isAlone || isFull) && gathered.length > 0) {
      yield batch(gathered);
      gathered = [];
      gatheredBytes = 0;
    }
    if (isAlone) yield { isBatch: false, messageCount: 1, body: message.slice() };
    else {
      gathered.push(message);
      gatheredBytes += message.length + 4;
    }
  }
  if (gathered.length > 0) yield batch(gathered);
}

function batch(messages: readonly Uint8Array[]): Piece {
  return { isBatch: true, messageCount: messages.length, body: encodeMpubBody(messages) };
}
