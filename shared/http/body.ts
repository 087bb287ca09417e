/**
 * Reads a body, of a request or an answer, into memory without ever keeping more than the caller's cap, whatever
 * `Content-Length` says or when it is missing. A `Content-Length` above the cap is refused unread.
 */

/** `cut`: the peer went away, or the signal fired, before the body was complete. */
export type BodyResult =
  | { readonly kind: "whole"; readonly bytes: Uint8Array }
  | { readonly kind: "too_large" }
  | { readonly kind: "cut" };

/** Never rejects. `signal` is how a caller puts a deadline on a slow peer. */
export async function readBody(
  request: Pick<Request, "headers" | "body">,
  bytesMax: number,
  signal?: AbortSignal,
): Promise<BodyResult> {
  const declared = request.headers.get("content-length");
  if (declared !== null && Number(declared) > bytesMax) {
    await request.body?.cancel().catch(() => {});
    return { kind: "too_large" };
  }
  if (request.body === null) return { kind: "whole", bytes: new Uint8Array(0) };
  const reader = request.body.getReader();
  const cancel = () => {
    // The pending read then ends; a stream that fails instead is reported by that read.
    reader.cancel().catch(() => {});
  };
  signal?.addEventListener("abort", cancel);
  try {
    return signal?.aborted ? { kind: "cut" } : await collect(reader, bytesMax, signal);
  } catch {
    return { kind: "cut" };
  } finally {
    signal?.removeEventListener("abort", cancel);
    cancel();
  }
}

async function collect(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  bytesMax: number,
  signal?: AbortSignal,
): Promise<BodyResult> {
  // One growing buffer rather than a list of chunks: a peer may send them one byte long.
  let buffer: Uint8Array = new Uint8Array(0);
  let length = 0;
  while (true) {
    const { done, value } = await reader.read();
    if (signal?.aborted) return { kind: "cut" };
    if (done) return { kind: "whole", bytes: buffer.subarray(0, length) };
    const needed = length + value.length;
    if (needed > bytesMax) return { kind: "too_large" };
    if (length === 0) {
      buffer = value;
    } else {
      if (needed > buffer.length) buffer = grown(buffer, length, needed, bytesMax);
      buffer.set(value, length);
    }
    length = needed;
  }
}

function grown(
  buffer: Uint8Array,
  length: number,
  needed: number,
  bytesMax: number,
): Uint8Array {
  const larger = new Uint8Array(Math.max(needed, Math.min(bytesMax, 2 * buffer.length)));
  larger.set(buffer.subarray(0, length));
  return larger;
}
