import assert from "node:assert/strict";
import type { ServicePlan } from "./plan.ts";
import { readLines, Service } from "./service.ts";

function planOf(code: string, folder: string): ServicePlan {
  return {
    name: "broker",
    tcpPort: 0,
    httpPort: 0,
    command: ["eval", code],
    logPath: `${folder}/broker.log`,
  };
}

Deno.test("Service writes both outputs to its log and keeps the last lines", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const code = `for (let i = 0; i < 30; i++) console.log("line", i); Deno.exit(3);`;
    const service = new Service(planOf(code, folder), { cwd: folder, show: null });
    assert.deepEqual(await service.ended, { code: 3, text: "exit code 3" });
    assert.equal(service.isRunning, false);
    assert.equal(service.lastLines.length, 20);
    assert.equal(service.lastLines.at(-1), "line 29");
    const log = await Deno.readTextFile(service.plan.logPath);
    assert.equal(log, Array.from({ length: 30 }, (_, index) => `line ${index}\n`).join(""));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("Service.drain() sends SIGTERM and waits for the end", async () => {
  const { promise: ready, resolve } = Promise.withResolvers<void>();
  const code = `Deno.addSignalListener("SIGTERM", () => { console.log("draining"); Deno.exit(0); });
    setInterval(() => {}, 1000); console.error("ready");`;
  const shown: string[] = [];
  const service = new Service(planOf(code, "/none"), {
    cwd: Deno.cwd(),
    show: (line) => {
      shown.push(line);
      if (line === "ready") resolve();
    },
  });
  await ready;
  assert.deepEqual(await service.drain(), { code: 0, text: "exit code 0" });
  assert.deepEqual(shown, ["ready", "draining"]);
  assert.deepEqual(await service.drain(), { code: 0, text: "exit code 0" });
});

Deno.test("readLines() joins chunks cut anywhere and cuts lines without an end", async () => {
  const read = async (...chunks: Uint8Array[]) => {
    const lines: string[] = [];
    await readLines(ReadableStream.from(chunks), (line) => lines.push(line));
    return lines;
  };
  const bytes = new TextEncoder().encode("naïve\n\nlast");
  const each = Array.from(bytes, (byte) => Uint8Array.of(byte));
  assert.deepEqual(await read(...each), ["naïve", "", "last"]);
  assert.deepEqual(await read(), []);
  const long = await read(new Uint8Array(4_500).fill(0x61));
  assert.deepEqual(long.map((line) => line.length), [2_000, 2_000, 500]);
});
