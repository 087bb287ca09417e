/** Batches in pieces that brokers store whole. */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { type BatchParts, batchParts } from "@sluice/shared/http";
import { encodeMpubBody } from "@sluice/shared/protocol";
import { SeededRandom } from "@sluice/shared/testing";
import {
  isOnePiece,
  type Piece,
  PIECE_BYTES_MAX,
  pieces,
  WHOLE_MESSAGE_BYTES_MAX,
} from "./batch_split.ts";

const MIB = 2 ** 20;
const LIMITS = { messageBytesMax: 100 * MIB, bodyBytesMax: 128 * MIB };
const BINARY = new Map([["binary", "true"]]);

/** Sizes of the messages in each piece; a message that goes alone is a number. */
function shape(list: Iterable<Piece>): (number | number[])[] {
  return Array.from(list, ({ isBatch, messageCount, body }) => {
    if (!isBatch) {
      equal(messageCount, 1);
      return body.length;
    }
    const sizes = Array.from(
      batchParts(BINARY, body, LIMITS).each(),
      ({ start, end }) => end - start,
    );
    equal(sizes.length, messageCount);
    return sizes;
  });
}

function bodyOf(...sizes: number[]): { body: Uint8Array; parts: BatchParts } {
  const body = encodeMpubBody(sizes.map((size, at) => new Uint8Array(size).fill(at + 1)));
  return { body, parts: batchParts(BINARY, body, LIMITS) };
}

function split(...sizes: number[]): (number | number[])[] {
  const { body, parts } = bodyOf(...sizes);
  return shape(pieces(body, parts));
}

Deno.test("isOnePiece() holds up to the size of a group, with no message that is written in parts", () => {
  equal(isOnePiece(PIECE_BYTES_MAX, WHOLE_MESSAGE_BYTES_MAX), true);
  equal(isOnePiece(PIECE_BYTES_MAX + 1, 10), false);
  equal(isOnePiece(PIECE_BYTES_MAX, WHOLE_MESSAGE_BYTES_MAX + 1), false);
});

Deno.test("pieces() cuts between messages, keeps their order, and lets large ones go alone", () => {
  equal(split(1, 2, 3), [[1, 2, 3]]);
  equal(split(MIB, MIB, MIB, MIB), [[MIB, MIB, MIB], [MIB]]);
  equal(split(1, MIB + 1, 2, 3), [[1], MIB + 1, [2, 3]]);
  equal(split(MIB + 1, 2 * MIB), [MIB + 1, 2 * MIB]);
  equal(split(5, 5 * MIB), [[5], 5 * MIB]);
});

Deno.test("pieces() are no larger than a piece may be, to the byte", () => {
  // A count, and a size before each message.
  const rest = PIECE_BYTES_MAX - 4 - 3 * (MIB + 4) - 4;
  equal(split(MIB, MIB, MIB, rest), [[MIB, MIB, MIB, rest]]);
  equal(split(MIB, MIB, MIB, rest + 1), [[MIB, MIB, MIB], [rest + 1]]);
  const { body, parts } = bodyOf(MIB, MIB, MIB, rest);
  equal([...pieces(body, parts)].map((piece) => piece.body.length), [PIECE_BYTES_MAX]);
});

Deno.test("pieces() of a text are its lines without the empty ones, and none of nothing", () => {
  const text = (body: string) => {
    const bytes = new TextEncoder().encode(body);
    return shape(pieces(bytes, batchParts(new Map(), bytes, LIMITS)));
  };
  equal(text("a\n\nbcd\r\n"), [[1, 4]]);
  equal([text(""), text("\n\n")], [[], []]);
});

Deno.test("pieces() are copies: the body may be used for something else", () => {
  const { body, parts } = bodyOf(3, MIB + 1);
  const list = [...pieces(body, parts)];
  body.fill(0xff);
  ok(list.every((piece) => !piece.body.includes(0xff)));
});

Deno.test("pieces() of any batch put together are the batch", () => {
  const seed = 7;
  const random = new SeededRandom(seed);
  for (let round = 0; round < 20; round++) {
    const sizes = Array.from(
      { length: random.between(1, 12) },
      () => random.between(1, random.pick([10, 1000, MIB, MIB + 10])),
    );
    const { body, parts } = bodyOf(...sizes);
    const list = [...pieces(body, parts)];
    equal(shape(list).flat(), sizes, `seed ${seed}, round ${round}`);
    for (const piece of list) {
      ok(piece.body.length <= PIECE_BYTES_MAX || !piece.isBatch, `seed ${seed}, round ${round}`);
    }
  }
});
