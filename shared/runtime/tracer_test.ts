import assert from "node:assert/strict";
import { parseTraceparent } from "./tracer.ts";

const TRACE = "0af7651916cd43dd8448eb211c80319c";
const SPAN = "b7ad6b7169203331";

Deno.test("parseTraceparent() reads what W3C Trace Context says, also of a later version", () => {
  const sampled = { traceId: TRACE, spanId: SPAN, isSampled: true };
  assert.deepEqual(parseTraceparent(`00-${TRACE}-${SPAN}-01`), sampled);
  assert.deepEqual(parseTraceparent(` 00-${TRACE}-${SPAN}-03 `), sampled);
  assert.deepEqual(parseTraceparent(`cc-${TRACE}-${SPAN}-01-more`), sampled);
  assert.deepEqual(parseTraceparent(`00-${TRACE}-${SPAN}-00`), { ...sampled, isSampled: false });
});

Deno.test("parseTraceparent() takes nothing from what is no such header", () => {
  const wrong = [
    "",
    `${TRACE}-${SPAN}-01`,
    `00-${TRACE}-${SPAN}`,
    `00-${TRACE}-${SPAN}-1`,
    `00-${TRACE}-${SPAN}-01-more`,
    `ff-${TRACE}-${SPAN}-01`,
    `00-${TRACE.toUpperCase()}-${SPAN}-01`,
    `00-${"0".repeat(32)}-${SPAN}-01`,
    `00-${TRACE}-${"0".repeat(16)}-01`,
    `00-${TRACE}x-${SPAN}-01`,
  ];
  for (const header of [null, ...wrong]) assert.equal(parseTraceparent(header), null, header ?? "");
});
