/**
 * A JSON document that is told piece by piece, so that neither its making nor its text takes the process
 * for itself: the pieces come from a generator that lets others run between slices, and no more
 * is made than the peer has taken, but for one chunk.
 */

/** Pieces are gathered to chunks of at least so many characters. */
const CHUNK_CHARACTERS = 16_384;
const HEADERS: [string, string][] = [
  ["Content-Type", "application/json; charset=utf-8"],
  ["X-NSQ-Content-Type", "nsq; version=1.0"],
];

/** Pieces of the text of a document. */
export type JsonPieces = AsyncGenerator<string, void, void>;

/** Answers with a document. When the generator fails the answer is cut off, and is no JSON. */
export function jsonStreamReply(pieces: JsonPieces): Response {
  return new Response(jsonStream(pieces), { status: 200, headers: HEADERS });
}

/** The bytes of a document. */
function jsonStream(pieces: JsonPieces): ReadableStream<Uint8Array<ArrayBuffer>> {
  const encoder = new TextEncoder();
  return new ReadableStream({
    async pull(controller) {
      let text = "";
      while (text.length < CHUNK_CHARACTERS) {
        const { done, value } = await pieces.next();
        if (done) break;
        text += value;
      }
      if (text !== "") controller.enqueue(encoder.encode(text));
      if (text.length < CHUNK_CHARACTERS) controller.close();
    },
    async cancel() {
      await pieces.return();
    },
  }, { highWaterMark: 0 });
}
