import { SimClock, SimDisk } from "@sluice/shared/testing";
import assert from "node:assert/strict";
import { bytesText, Progress, progressLine, ReadingDisk } from "./progress.ts";

const MIB = 1024 * 1024;

Deno.test("progressLine() shows the speed and the time that is left", () => {
  assert.equal(
    progressLine("log", 12 * MIB, 64 * MIB, 500),
    "log: 12.0 MiB of 64.0 MiB, 24.0 MiB/s, 0:03 left",
  );
  assert.match(progressLine("log", MIB, 91 * MIB, 1000), /, 1:30 left$/);
});

Deno.test("progressLine() has no speed before there is one, and never more than the whole", () => {
  assert.equal(progressLine("log", 0, 100, 10), "log: 0 B of 100 B");
  assert.equal(progressLine("log", 50, 100, 0), "log: 50 B of 100 B");
  assert.match(
    progressLine("log", 150, 100, 1000),
    /^log: 150 B of 150 B, .* 0:00 left$/,
  );
});

Deno.test("bytesText() takes the unit that fits", () => {
  assert.deepEqual(
    [0, 1023, 1024, 1.5 * MIB, 2 ** 31, 2 ** 41].map(bytesText),
    [
      "0 B",
      "1023 B",
      "1.0 KiB",
      "1.5 MiB",
      "2.0 GiB",
      "2.0 TiB",
    ],
  );
});

Deno.test("Progress draws at most five times a second and clears what it drew", async () => {
  const clock = new SimClock();
  let shown = "";
  const progress = new Progress({
    disk: new SimDisk(),
    clock,
    out: () => {},
    err: (text) => shown += text,
    errIsTerminal: true,
  }, false);
  progress.begin("log", 100);
  for (let count = 0; count < 10; count++) progress.add(1);
  assert.equal(shown, "\rlog: 1 B of 100 B");
  await clock.advance(200);
  progress.add(1);
  assert.equal(shown.split("\r").length, 3);
  progress.end();
  assert.match(shown, /\r +\r$/);
  progress.add(1);
  assert.match(shown, /\r +\r$/);
});

Deno.test("ReadingDisk refuses every change", async () => {
  const inner = new SimDisk();
  inner.writeDurable("/a", new Uint8Array([1]));
  const progress = new Progress({
    disk: inner,
    clock: new SimClock(),
    out: () => {},
    err: () => {},
    errIsTerminal: false,
  }, true);
  const disk = new ReadingDisk(inner, progress);
  const file = await disk.open("/a", "read");
  const changes = [
    () => disk.open("/a", "write"),
    () => disk.open("/b", "create"),
    () => disk.rename("/a"),
    () => disk.remove("/a"),
    () => disk.makeDirectory("/c"),
    () => disk.syncDirectory("/"),
    () => disk.lock("/a"),
    () => file.writeAt(0, new Uint8Array(1)),
    () => file.truncate(0),
    () => file.syncData(),
  ];
  for (const change of changes) await assert.rejects(change, /reading only/);
  file.close();
  assert.deepEqual(inner.files(), ["/a"]);
});
