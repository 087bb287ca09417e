import { deepStrictEqual as equal, rejects } from "node:assert/strict";
import { ChunkReader } from "./chunk_reader.ts";

/** Three chunks in a stream of the kind. */
function stream(kind: "bytes" | "default"): ReadableStream<Uint8Array> {
  let left = 3;
  const pull = (
    controller: ReadableByteStreamController | ReadableStreamDefaultController<Uint8Array>,
  ) => {
    if (left === 0) {
      controller.close();
      if (controller instanceof ReadableByteStreamController) controller.byobRequest?.respond(0);
      return;
    }
    controller.enqueue(new Uint8Array(1000 * left--));
  };
  return kind === "bytes"
    ? new ReadableStream({ type: "bytes", pull })
    : new ReadableStream({ pull });
}

for (const kind of ["bytes", "default"] as const) {
  Deno.test(`ChunkReader gives every chunk of a ${kind} stream, then null`, async () => {
    const reader = new ChunkReader(stream(kind));
    let bytes = 0;
    for (let chunk = await reader.read(); chunk !== null; chunk = await reader.read()) {
      bytes += chunk.length;
    }
    equal(bytes, 6000);
    equal(await reader.read(), null);
  });

  Deno.test(`ChunkReader.cancel() ends a pending read of a ${kind} stream`, async () => {
    const waiting = kind === "bytes"
      ? new ReadableStream({ type: "bytes" })
      : new ReadableStream<Uint8Array>();
    const reader = new ChunkReader(waiting);
    const read = reader.read();
    await reader.cancel();
    equal(await read, null);
  });
}

Deno.test("ChunkReader.read() rejects when the stream breaks", async () => {
  const broken = new ReadableStream<Uint8Array>({
    pull(controller) {
      controller.error(new Error("gone"));
    },
  });
  await rejects(new ChunkReader(broken).read(), /gone/);
});
