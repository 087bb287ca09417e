import { SimClock, SimDisk } from "@sluice/shared/testing";
import assert from "node:assert/strict";
import {
  bodyOf,
  buildFolder,
  contentOf,
  createTopic,
  ctl,
  ctlIn,
  journal,
  openStorage,
  overwrite,
  PATH,
  publish,
  publishMany,
} from "./folder.ts";

/** What `--json` says, as far as these tests look. */
interface Report {
  readonly clean: boolean;
  readonly findings: readonly {
    readonly severity: string;
    readonly file: string;
    readonly text: string;
    readonly position?: number;
    readonly bytes?: number;
  }[];
  readonly files: readonly { readonly start: number; readonly messages: number }[];
  readonly lost_messages: readonly unknown[];
}

async function verify(disk: SimDisk): Promise<{ code: number; report: Report }> {
  const { code, out } = await ctl(disk, "data", "verify", PATH, "--json");
  return { code, report: JSON.parse(out) as Report };
}

/** Where a text first stands in a file. */
function find(disk: SimDisk, path: string, text: string): number {
  const at = new TextDecoder("latin1").decode(disk.bytes(path)).indexOf(text);
  assert.ok(at > 0, `"${text}" is in ${path}`);
  return at;
}

Deno.test("data verify finds nothing in the folder of a broker that was stopped or killed", async () => {
  for (const crashed of [false, true]) {
    const disk = await buildFolder({ crashed });
    const { code, report } = await verify(disk);
    assert.deepEqual(report.findings, []);
    assert.equal(code, 0);
    assert.equal(report.clean, true);
    assert.equal(report.files.reduce((sum, { messages }) => sum + messages, 0), 302);
    assert.equal(disk.openFiles, 0);
  }
});

Deno.test("data verify takes a folder that was never used for clean", async () => {
  const disk = new SimDisk();
  const storage = await openStorage(disk);
  await storage.abandon();
  assert.equal((await verify(disk)).code, 0);
});

Deno.test("data verify names the record that is damaged, and what is missing around it", async () => {
  const disk = await buildFolder();
  const [first] = journal(disk, ".log");
  disk.flipBit(first!, find(disk, first!, "message 17."), 3);
  const { code, report } = await verify(disk);
  assert.equal(code, 1);
  const [finding, note] = report.findings;
  assert.equal(finding?.severity, "damage");
  assert.equal(finding?.file, "journal/0000000000000000.log");
  assert.equal(finding?.text, "the record's checksum is wrong");
  assert.equal(finding?.bytes, 168);
  assert.equal(note?.text, "topic orders has no messages at offsets 17 to 17");
  assert.equal(report.findings.length, 2);
});

Deno.test("data verify reports a block whose header is damaged, up to the next good one", async () => {
  const disk = await buildFolder();
  const second = journal(disk, ".log")[1]!;
  disk.flipBit(second, 9, 0);
  const { code, report } = await verify(disk);
  assert.equal(code, 1);
  assert.match(report.findings[0]?.text ?? "", /^no block can be read here/);
  assert.equal(report.findings[0]?.position, 21416);
  assert.equal(report.lost_messages.length, 1);
});

Deno.test("data verify calls a torn group a note, and damage what a checkpoint vouches for", async () => {
  const torn = await buildFolder({ crashed: true });
  const closed = await buildFolder();
  for (const disk of [torn, closed]) {
    const last = journal(disk, ".log").at(-1)!;
    disk.flipBit(last, find(disk, last, "message 295."), 0);
  }
  const { code, report } = await verify(torn);
  assert.equal(code, 0);
  assert.deepEqual(report.findings.map(({ severity }) => severity), ["note"]);
  assert.match(report.findings[0]?.text ?? "", /^a torn group/);
  assert.equal((await verify(closed)).code, 1);
});

Deno.test("data verify compares each sidecar with its file", async () => {
  const whole = await buildFolder();
  const [first, second] = journal(whole, ".idx");

  const flipped = await buildFolder();
  flipped.flipBit(first!, 40, 1);
  const { code, report } = await verify(flipped);
  assert.equal(code, 1);
  assert.match(report.findings[0]?.text ?? "", /^the sidecar is damaged/);

  // Its checksum is right, but it is the one of another file.
  const swapped = await buildFolder();
  swapped.writeDurable(second!, whole.bytes(first!));
  const mixed = await verify(swapped);
  assert.equal(mixed.code, 1);
  assert.match(mixed.report.findings[0]?.text ?? "", /^the sidecar is damaged: message/);

  const missing = await buildFolder();
  await missing.remove(second!);
  const note = await verify(missing);
  assert.equal(note.code, 0);
  assert.deepEqual(note.report.findings.map(({ severity }) => severity), ["note"]);
});

Deno.test("data verify finds a sidecar that knows nothing of a topic that is there", async () => {
  const disks = [];
  for (const isDeleted of [false, true]) {
    const disk = new SimDisk();
    const storage = await openStorage(disk);
    const orders = createTopic(storage, "orders");
    while (storage.log.end < 20_000) await publishMany(storage, orders, 10);
    // The next group seals the file, after this.
    if (isDeleted) storage.decide({ type: "topic_deleted", topic: orders.number });
    else await publishMany(storage, orders, 10);
    await storage.close();
    assert.equal((await verify(disk)).code, 0);
    disks.push(disk);
  }
  const [disk, deleted] = disks;
  const [sidecar] = journal(disk!, ".idx");
  disk!.writeDurable(sidecar!, deleted!.bytes(sidecar!));
  const { code, report } = await verify(disk!);
  assert.equal(code, 1);
  assert.match(report.findings[0]?.text ?? "", /knows nothing of topic orders$/);
});

Deno.test("data verify finds a sidecar with another due time", async () => {
  const disks = [];
  for (const dueMs of [1_800_000_000_000, 1_800_000_000_001]) {
    const disk = new SimDisk();
    const storage = await openStorage(disk);
    const orders = createTopic(storage, "orders");
    publish(storage, orders, bodyOf("later"), dueMs);
    await publishMany(storage, orders, 150);
    await storage.close();
    assert.equal((await verify(disk)).code, 0);
    disks.push(disk);
  }
  const [disk, other] = disks;
  const [sidecar] = journal(disk!, ".idx");
  disk!.writeDurable(sidecar!, other!.bytes(sidecar!));
  assert.equal((await verify(disk!)).code, 1);
});

Deno.test("data verify reads every checkpoint", async () => {
  for (const index of [0, 1]) {
    const disk = await buildFolder();
    const path = journal(disk, ".ckp")[index]!;
    disk.flipBit(path, 60, 0);
    const { code, report } = await verify(disk);
    assert.equal(code, 1);
    assert.equal(`${PATH}/${report.findings[0]?.file}`, path);
  }
});

Deno.test("data verify finds missing files in the middle and at the end", async () => {
  for (
    const [index, expected] of [
      [1, /are missing, from position 21416 to 42488$/],
      [2, /but a checkpoint says it was on disk up to 53120$/],
    ] as const
  ) {
    const disk = await buildFolder();
    await disk.remove(journal(disk, ".log")[index]!);
    const { code, report } = await verify(disk);
    assert.equal(code, 1, `file ${index}`);
    assert.ok(report.findings.some(({ text }) => expected.test(text)));
  }
});

Deno.test("data verify notes messages that are owed and gone with the first file", async () => {
  const disk = await buildFolder();
  await disk.remove(journal(disk, ".log")[0]!);
  const { code, report } = await verify(disk);
  // A start does not need the file, so nothing but the messages says that it was there.
  assert.equal(code, 0);
  const notes = report.findings.filter(({ text }) => text.startsWith("topic "));
  assert.deepEqual(notes.map(({ text }) => text), [
    "topic orders has no messages at offsets 0 to 119",
    "topic kept has no messages at offsets 0 to 0",
  ]);
});

Deno.test("data verify holds broker.meta against the log", async () => {
  const cases: readonly (readonly [string | null, RegExp])[] = [
    [null, /^it is missing/],
    ["{", /^it cannot be read/],
    [`{"node_id":3,"epoch":0,"sequence_reserved":16777217}`, /^its epoch is 0/],
    [`{"node_id":3,"epoch":1,"sequence_reserved":5}`, /^it reserves message sequences below 5/],
  ];
  for (const [text, expected] of cases) {
    const disk = await buildFolder();
    if (text === null) await disk.remove(`${PATH}/broker.meta`);
    else disk.writeDurable(`${PATH}/broker.meta`, new TextEncoder().encode(text));
    const { code, report } = await verify(disk);
    assert.equal(code, 1);
    assert.equal(report.findings[0]?.file, "broker.meta");
    assert.match(report.findings[0]?.text ?? "", expected);
  }
});

Deno.test("data verify finds an event that is none though its checksum is right", async () => {
  const disk = new SimDisk();
  const storage = await openStorage(disk);
  await publishMany(storage, createTopic(storage, "orders"), 3);
  storage.log.ring.set(new TextEncoder().encode("{bad"), storage.log.begin(4, 4));
  storage.log.finish();
  await storage.drain();
  await storage.abandon();
  const { code, report } = await verify(disk);
  assert.equal(code, 1);
  assert.equal(report.findings[0]?.text, "the event is not JSON");
});

Deno.test("data verify lists names that mean nothing as notes", async () => {
  const disk = await buildFolder();
  const bytes = new Uint8Array([1]);
  disk.writeDurable(`${PATH}/notes.txt`, bytes);
  disk.writeDurable(`${PATH}/journal/0000000000000008.idx`, bytes);
  disk.writeDurable(`${PATH}/journal/0000000000000000.log.tmp`, bytes);
  const { code, report } = await verify(disk);
  assert.equal(code, 0);
  assert.deepEqual(report.findings.map(({ severity }) => severity), ["note", "note", "note"]);
});

Deno.test("data verify cannot run on what a newer release wrote, and says so", async () => {
  const format = await buildFolder();
  format.writeDurable(`${PATH}/FORMAT`, new TextEncoder().encode("sluice-data 2\n"));
  const kind = new SimDisk();
  const storage = await openStorage(kind);
  storage.log.begin(9, 8);
  storage.log.finish();
  await storage.drain();
  await storage.abandon();
  for (const disk of [format, kind]) {
    const { code, out, err } = await ctl(disk, "data", "verify", PATH);
    assert.equal(code, 2);
    assert.equal(out, "");
    assert.match(err, /this release/);
  }
});

Deno.test("data commands read a folder up to its reader level, and repair it up to its writer level", async () => {
  const disk = await buildFolder();
  const need = (levels: string) =>
    disk.writeDurable(`${PATH}/COMPATIBILITY`, new TextEncoder().encode(levels));
  need(`{"reader":1,"writer":5}`);
  assert.equal((await verify(disk)).code, 0);
  const { out } = await ctl(disk, "data", "inspect", PATH);
  assert.match(out, /^needs reader level 1, writer level 5$/m);
  assert.equal((await ctl(disk, "data", "repair", PATH)).out, "nothing to repair\n");
  disk.flipBit(journal(disk, ".idx")[0]!, 30, 2);
  const before = contentOf(disk);
  const repair = await ctl(disk, "data", "repair", PATH, "--yes");
  assert.equal(repair.code, 2);
  assert.match(repair.out, /In the way:\n.*takes writer level 5, this release has 4\./);
  assert.deepEqual(contentOf(disk), before);

  need(`{"reader":5,"writer":5}`);
  for (
    const command of [["inspect"], ["verify"], ["dump", "--topic", "orders"], ["repair", "--yes"]]
  ) {
    const { code, err } = await ctl(disk, "data", ...command, PATH);
    assert.equal(code, 2, command[0]);
    assert.match(err, /Cannot read "\/data": it needs a release of reader level 5/);
  }
});

Deno.test("data verify calls a damaged COMPATIBILITY damage, and a missing one a note", async () => {
  const disk = await buildFolder();
  disk.writeDurable(`${PATH}/COMPATIBILITY`, new TextEncoder().encode("{}"));
  const found = async () => {
    const { code, report } = await verify(disk);
    return [code, ...report.findings.map(({ severity, file }) => `${severity} ${file}`)];
  };
  assert.deepEqual(await found(), [1, "damage COMPATIBILITY"]);
  const { code, out } = await ctl(disk, "data", "inspect", PATH);
  assert.equal(code, 1);
  assert.match(out, /COMPATIBILITY: it cannot be read/);
  assert.match(out, /needs reader level \?, writer level \?/);
  await disk.remove(`${PATH}/COMPATIBILITY`);
  assert.deepEqual(await found(), [0, "note COMPATIBILITY"]);
});

Deno.test("data commands refuse what is no data folder, without making anything", async () => {
  const disk = new SimDisk();
  await disk.makeDirectory("/empty");
  for (const path of ["/nowhere", "/empty"]) {
    for (
      const command of [["inspect"], ["verify"], ["dump", "--topic", "a"], ["repair", "--yes"]]
    ) {
      assert.equal((await ctl(disk, "data", ...command, path)).code, 2, command[0]);
    }
  }
  assert.deepEqual(disk.files(), []);
});

Deno.test("data commands refuse a folder in use, and look at it only with --read-only", async () => {
  const disk = await buildFolder();
  const storage = await openStorage(disk);
  for (
    const command of [["inspect"], ["verify"], ["dump", "--topic", "orders"], ["repair"], [
      "repair",
      "--yes",
    ]]
  ) {
    const { code, err } = await ctl(disk, "data", ...command, PATH);
    assert.equal(code, 2, command[0]);
    assert.match(err, /A broker uses "\/data"/);
  }
  for (const command of [["inspect"], ["verify"], ["dump", "--topic", "orders"]]) {
    const { code, err } = await ctl(disk, "data", ...command, PATH, "--read-only");
    assert.equal(code, 0, command[0]);
    assert.match(err, /may be mid-flight/);
  }
  await storage.close();
});

Deno.test("data commands say so when they cannot tell whether a folder is in use", async () => {
  const disk = await buildFolder();
  disk.failNext({ operation: "lock", kind: "io" });
  const { code, err } = await ctl(disk, "data", "verify", PATH);
  assert.equal(code, 2);
  assert.match(err, /^Cannot tell whether a broker uses .* --read-only does not ask$/m);
  disk.failNext({ operation: "lock", kind: "io" });
  assert.equal((await ctl(disk, "data", "verify", PATH, "--read-only")).code, 0);
});

Deno.test("data commands end with 2 when a broker has taken the folder meanwhile", async () => {
  const disk = await buildFolder();
  disk.failNext({ operation: "lock", kind: "locked", skip: 1 });
  const { code, out, err } = await ctl(disk, "data", "verify", PATH);
  assert.deepEqual([code, out], [2, ""]);
  assert.match(err, /has taken "\/data" meanwhile/);
});

Deno.test("data commands that read change nothing, whatever is wrong with the folder", async () => {
  const disk = await buildFolder({ crashed: true });
  const [first, , last] = journal(disk, ".log");
  disk.flipBit(first!, 5000, 2);
  overwrite(disk, last!, disk.bytes(last!).length - 100, new Uint8Array(50).fill(7));
  await disk.remove(journal(disk, ".idx")[0]!);
  disk.writeDurable(`${PATH}/journal/left.tmp`, new Uint8Array(3));
  const before = contentOf(disk);
  for (const command of [["inspect"], ["verify"], ["dump", "--topic", "orders"], ["repair"]]) {
    for (const flags of command[0] === "repair" ? [[]] : [[], ["--read-only"]]) {
      await ctl(disk, "data", ...command, PATH, ...flags);
    }
  }
  assert.deepEqual(contentOf(disk), before);
  assert.equal(disk.openFiles, 0);
});

Deno.test("data verify shows progress to a terminal only, and takes it away", async () => {
  const disk = await buildFolder();
  const watched = await ctlIn({ disk, errIsTerminal: true }, "data", "verify", PATH);
  assert.match(watched.err, /^\rlog: .* of 61\.5 KiB/);
  assert.match(watched.err, /\r +\r$/);
  const quiet = await ctlIn({ disk, errIsTerminal: true }, "data", "verify", PATH, "--quiet");
  assert.equal(quiet.err, "");
  assert.equal((await ctlIn({ disk, clock: new SimClock() }, "data", "verify", PATH)).err, "");
});

Deno.test("data verify ends when a file goes meanwhile, without calling it damage", async () => {
  const disk = await buildFolder();
  const [first] = journal(disk, ".log");
  disk.failNext({ operation: "open", kind: "not_found", path: first!, skip: 1 });
  const { code, err } = await ctl(disk, "data", "verify", PATH);
  assert.equal(code, 2);
  assert.notEqual(err, "");
});
