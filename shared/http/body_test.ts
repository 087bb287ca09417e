import { deepStrictEqual as equal } from "node:assert/strict";
import { readBody } from "./body.ts";

/** A request whose body arrives in the given chunks; `then` says how it ends. */
function requestOf(
  chunks: number[][],
  then: "end" | "stall" | "fail" = "end",
  headers: Record<string, string> = {},
): { request: Request; pulled: () => number; cancelled: () => boolean } {
  let at = 0;
  let isCancelled = false;
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      const chunk = chunks[at];
      at += 1;
      if (chunk !== undefined) controller.enqueue(new Uint8Array(chunk));
      else if (then === "end") controller.close();
      else if (then === "fail") controller.error(new Error("connection reset"));
    },
    cancel() {
      isCancelled = true;
    },
  }, { highWaterMark: 0 });
  const request = new Request("http://host/pub", { method: "POST", body, headers });
  return { request, pulled: () => at, cancelled: () => isCancelled };
}

Deno.test("readBody() joins chunks of any size up to exactly the cap", async () => {
  for (
    const chunks of [[[1, 2, 3, 4]], [[1], [2], [3], [4]], [[], [1, 2], [], [3, 4]], [[1, 2, 3], [
      4,
    ]]]
  ) {
    const { request } = requestOf(chunks);
    const result = await readBody(request, 4);
    equal(result.kind === "whole" ? [...result.bytes] : result, [1, 2, 3, 4]);
  }
});

Deno.test("readBody() reads a missing and an empty body as no bytes", async () => {
  for (const body of [null, ""]) {
    const request = new Request("http://host/pub", { method: "POST", body });
    equal(await readBody(request, 0), { kind: "whole", bytes: new Uint8Array(0) });
  }
});

Deno.test("readBody() refuses a body that passes the cap and stops reading there", async () => {
  const { request, pulled, cancelled } = requestOf([[1, 2], [3, 4], [5], [6], [7]]);
  equal(await readBody(request, 4), { kind: "too_large" });
  equal(pulled(), 3);
  equal(cancelled(), true);
});

Deno.test("readBody() does not believe a Content-Length that is too small", async () => {
  const { request } = requestOf([[1, 2], [3, 4], [5]], "end", { "content-length": "1" });
  equal(await readBody(request, 4), { kind: "too_large" });
});

Deno.test("readBody() refuses a Content-Length above the cap without reading", async () => {
  const { request, pulled, cancelled } = requestOf([[1]], "stall", { "content-length": "5" });
  equal(await readBody(request, 4), { kind: "too_large" });
  equal(pulled(), 0);
  equal(cancelled(), true);
});

Deno.test("readBody() reports a stream that fails half way as cut", async () => {
  const { request } = requestOf([[1]], "fail");
  equal(await readBody(request, 4), { kind: "cut" });
});

Deno.test("readBody() gives up on a stalled peer when the signal fires", async () => {
  const controller = new AbortController();
  const { request, cancelled } = requestOf([[1]], "stall");
  const result = readBody(request, 4, controller.signal);
  controller.abort();
  equal(await result, { kind: "cut" });
  equal(cancelled(), true);
  equal(await readBody(requestOf([[1]]).request, 4, controller.signal), { kind: "cut" });
});
