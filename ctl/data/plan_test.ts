import { ReadOnlyLog } from "@sluice/broker/storage/format";
import { SimDisk } from "@sluice/shared/testing";
import assert from "node:assert/strict";
import type { Examination } from "./examination.ts";
import { planRepair, type Step } from "./plan.ts";

const NOTHING: Examination = {
  files: [],
  checkpoints: [],
  gaps: [],
  state: null,
  isStateLost: false,
  lost: [],
  topicNames: new Map(),
  epochMax: 4,
  sequenceNext: 100,
  nodeIds: [],
  metaIsBad: false,
  findings: [],
};

async function plan(found: Partial<Examination>): ReturnType<typeof planOf> {
  return await planOf({ ...NOTHING, ...found });
}

async function planOf(found: Examination): Promise<{ steps: readonly Step[]; obstacles: number }> {
  const { steps, obstacles } = planRepair(
    {
      path: "/data",
      journal: "/data/journal",
      names: [],
      formatProblem: null,
      compatibility: null,
      compatibilityProblem: null,
      meta: null,
      metaProblem: null,
      log: await ReadOnlyLog.open(new SimDisk(), "/data/journal"),
    },
    found,
    { nodeId: 3, acceptGap: true },
  );
  return { steps, obstacles: obstacles.length };
}

/** A whole file at `[start, end)`. */
function file(start: number, end: number): Examination["files"][number] {
  return {
    info: { start, end },
    last: true,
    end,
    blocksEnd: end,
    tornBytes: 0,
    blocks: 1,
    records: 1,
    messages: 0,
    damage: [],
    sidecar: "none",
    epoch: 4,
  };
}

Deno.test("planRepair() has nothing to do where nothing is wrong", async () => {
  assert.deepEqual(await plan({ files: [file(0, 4096)] }), { steps: [], obstacles: 0 });
});

Deno.test("planRepair() fills a gap at the end with a block at least", async () => {
  const { steps } = await plan({ files: [file(0, 4096)], gaps: [{ from: 4096, to: 4104 }] });
  assert.deepEqual(steps, [{ kind: "fill", from: 4096, to: 4168, epoch: 4, instead: null }]);
});

Deno.test("planRepair() fills a gap before the first file with a block at least, up to the file", async () => {
  const { steps } = await plan({ files: [file(4096, 8192)], gaps: [{ from: 4088, to: 4096 }] });
  assert.deepEqual(steps, [{ kind: "fill", from: 4024, to: 4096, epoch: 1, instead: null }]);
});

Deno.test("planRepair() makes a log where there is none but a checkpoint", async () => {
  const { steps } = await plan({ gaps: [{ from: 4096, to: 4200 }] });
  assert.deepEqual(steps, [{ kind: "fill", from: 4096, to: 4272, epoch: 1, instead: null }]);
});

Deno.test("planRepair() writes a broker.meta above all that the log has", async () => {
  const { steps } = await plan({ metaIsBad: true, nodeIds: [3] });
  assert.deepEqual(steps, [{
    kind: "meta",
    meta: { node_id: 3, epoch: 5, sequence_reserved: 100 + 2 ** 24 },
  }]);
});

Deno.test("planRepair() says so when it knows no remedy", async () => {
  const finding = { severity: "damage", file: "journal", text: "odd" } as const;
  assert.deepEqual(await plan({ findings: [finding] }), { steps: [], obstacles: 1 });
});
