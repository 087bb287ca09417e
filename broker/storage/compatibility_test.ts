import { deepEqual, equal, ok, rejects, throws } from "node:assert/strict";
import { LogError } from "@sluice/shared/log";
import { DiskError } from "@sluice/shared/runtime";
import { SimDisk } from "@sluice/shared/testing";
import { checkCompatibility, raiseCompatibility, readCompatibility } from "./compatibility.ts";

const PATH = "/data";
const FILE = `${PATH}/COMPATIBILITY`;
/** A later release. */
const LATER = { reader: 4, writer: 6 };

async function diskWith(content: string | null): Promise<SimDisk> {
  const disk = new SimDisk();
  await disk.makeDirectory(PATH);
  if (content !== null) disk.writeDurable(FILE, new TextEncoder().encode(content));
  return disk;
}

function content(disk: SimDisk): string {
  return new TextDecoder().decode(disk.bytes(FILE));
}

Deno.test("readCompatibility() refuses what is damaged, and says null when there is nothing", async () => {
  for (
    const text of [
      "",
      "{",
      "null",
      "1",
      "[]",
      "{}",
      `{"reader":1}`,
      `{"reader":0,"writer":1}`,
      `{"reader":1.5,"writer":2}`,
      `{"reader":"1","writer":1}`,
      `{"reader":1,"writer":65536}`,
      `{"reader":2,"writer":1}`,
    ]
  ) {
    const disk = await diskWith(text);
    for (
      const use of [readCompatibility(disk, PATH), raiseCompatibility(disk, PATH, LATER, LATER)]
    ) {
      await rejects(use, (error) => error instanceof LogError && error.code === "damaged", text);
    }
    equal(content(disk), text);
    equal(disk.openFiles, 0);
  }
  equal(await readCompatibility(await diskWith(null), PATH), null);
});

Deno.test("checkCompatibility() lets a release do what its levels allow, and names both when not", () => {
  const allowed = (reader: number, writer: number, intent: "read" | "write") => {
    try {
      checkCompatibility(PATH, { reader, writer }, intent, { reader: 3, writer: 4 });
      return true;
    } catch (error) {
      ok(error instanceof LogError && error.code === "newer_format", String(error));
      return false;
    }
  };
  deepEqual([allowed(3, 4, "write"), allowed(1, 1, "write"), allowed(3, 9, "read")], [
    true,
    true,
    true,
  ]);
  deepEqual([allowed(4, 4, "write"), allowed(3, 5, "write"), allowed(4, 4, "read")], [
    false,
    false,
    false,
  ]);
  throws(
    () => checkCompatibility(PATH, { reader: 7, writer: 8 }, "write", { reader: 3, writer: 4 }),
    /^LogError: Cannot open "\/data": it needs a release of reader level 7 and writer level 8, this one has 3 and 4\./,
  );
});

Deno.test("raiseCompatibility() raises and never lowers, and keeps fields that it does not know", async () => {
  const disk = await diskWith(`{"reader":1,"writer":1,"later":"kept"}\n`);
  deepEqual(await raiseCompatibility(disk, PATH, { reader: 1, writer: 5 }, LATER), {
    reader: 1,
    writer: 5,
  });
  equal(content(disk), `{"reader":1,"writer":5,"later":"kept"}\n`);
  deepEqual(await raiseCompatibility(disk, PATH, { reader: 3, writer: 2 }, LATER), {
    reader: 3,
    writer: 5,
  });
  const raised = content(disk);
  // Nothing to raise is nothing to write.
  disk.failNext({ operation: "write", kind: "io" });
  deepEqual(await raiseCompatibility(disk, PATH, { reader: 2, writer: 2 }, LATER), {
    reader: 3,
    writer: 5,
  });
  equal(content(disk), raised);
});

Deno.test("raiseCompatibility() raises the writer level with the reader level", async () => {
  const disk = await diskWith(null);
  await raiseCompatibility(disk, PATH, { reader: 4, writer: 1 }, LATER);
  equal(content(disk), `{"reader":4,"writer":4}\n`);
});

Deno.test("raiseCompatibility() does not raise beyond what the release knows", async () => {
  const disk = await diskWith(null);
  await rejects(
    raiseCompatibility(disk, PATH, { reader: 5, writer: 6 }, LATER),
    /a release raises levels to those it knows/,
  );
  equal(await readCompatibility(disk, PATH), null);
});

Deno.test("raiseCompatibility() holds over a power cut once it has resolved, and leaves old or new", async () => {
  const before = `{"reader":1,"writer":1}\n`;
  const after = `{"reader":4,"writer":6}\n`;
  for (let mutations = 1; mutations < 12; mutations++) {
    const disk = await diskWith(before);
    disk.powerCutAfter(mutations);
    let done = false;
    try {
      await raiseCompatibility(disk, PATH, LATER, LATER);
      done = true;
    } catch (error) {
      ok(error instanceof DiskError, String(error));
    }
    disk.crash();
    const found = content(disk);
    ok(found === after || (!done && found === before), `${mutations}: ${found}`);
  }
});
