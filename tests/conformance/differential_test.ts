/** A short run of the differential fuzzer; `deno task fuzz:differential` is the long one. */
import { equal } from "node:assert/strict";
import { SeededRandom } from "@sluice/shared/testing";
import { findPeers } from "../integration/peers.ts";
import { fuzz, showFinding } from "./differential.ts";
import { makeScenario, show } from "./differential/scenario.ts";

const SEEDS = 60;

const peers = await findPeers();
if ("missing" in peers) console.log(`Nothing is compared with nsqd: ${peers.missing}`);

Deno.test({
  name: "Our broker and nsqd answer random commands alike",
  // The programs of NSQ are not everywhere; the reason is printed above.
  ignore: "missing" in peers,
  fn: async () => {
    if ("missing" in peers) return;
    const findings = await fuzz(peers.paths.get("nsqd") ?? "", 1, SEEDS, 1);
    equal(findings.map(showFinding).join("\n"), "");
  },
});

Deno.test("makeScenario() makes the same scenario of the same seed", () => {
  equal(show(makeScenario(new SeededRandom(7))), show(makeScenario(new SeededRandom(7))));
});
