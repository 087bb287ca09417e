import { deepStrictEqual as equal, match, ok } from "node:assert/strict";
import { type CpuProfile, flameOf, flameSvg, selfTimes } from "./flame.ts";

function node(id: number, functionName: string, children: number[] = [], url = "") {
  return { id, callFrame: { functionName, url, lineNumber: 0 }, children };
}

const PROFILE: CpuProfile = {
  nodes: [
    node(1, "(root)", [2, 3, 5]),
    node(2, "(idle)"),
    node(3, "receive", [4], "file:///a/session.ts"),
    node(4, "", [], "file:///a/decoder.ts"),
    node(5, "receive", [], "file:///a/session.ts"),
  ],
  samples: [2, 3, 4, 4, 5],
  timeDeltas: [1000, 10, 20, 30, 40],
};

Deno.test("flameOf() adds up time along the calls, and leaves idle time out", () => {
  const root = flameOf(PROFILE);
  equal([root.totalUs, root.selfUs], [100, 0]);
  equal(root.children.map(({ name, totalUs, selfUs }) => [name, totalUs, selfUs]), [
    ["receive", 60, 10],
    ["receive", 40, 40],
  ]);
  equal(selfTimes(root).slice(0, 2), [
    { name: "receive session.ts", share: 0.5 },
    { name: "(anonymous) decoder.ts", share: 0.5 },
  ]);
});

Deno.test("flameSvg() draws calls below their callers, as wide as their share", () => {
  const svg = flameSvg(flameOf(PROFILE), "publishing <fast>");
  ok(svg.includes("publishing &lt;fast&gt;"));
  match(svg, /receive session\.ts: 60\.0 %<\/title><rect x="0\.0" y="40" width="720\.0"/);
  match(svg, /decoder\.ts: 50\.0 %<\/title><rect x="0\.0" y="56" width="600\.0"/);
});
