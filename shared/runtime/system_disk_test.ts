import { Buffer } from "node:buffer";
import { deepEqual, equal, match, ok, rejects } from "node:assert/strict";
import { DiskError } from "./disk.ts";
import { SystemDisk, WRITE_INLINE_BYTES_MAX, WRITE_SLICE_BYTES } from "./system_disk.ts";

async function inFolder(use: (disk: SystemDisk, root: string) => Promise<void>): Promise<void> {
  const root = await Deno.makeTempDir();
  try {
    await use(new SystemDisk(), root);
  } finally {
    await Deno.remove(root, { recursive: true });
  }
}

Deno.test("SystemDisk writes all of a buffer of any size, within the call or in slices", async () => {
  await inFolder(async (disk, root) => {
    for (
      const length of [
        1,
        WRITE_INLINE_BYTES_MAX,
        WRITE_INLINE_BYTES_MAX + 1,
        WRITE_SLICE_BYTES,
        3 * WRITE_SLICE_BYTES + 17,
      ]
    ) {
      const bytes = new Uint8Array(length);
      for (let index = 0; index < length; index += 101) bytes[index] = index;
      const file = await disk.open(`${root}/${length}`, "create");
      await file.writeAt(5, bytes);
      await file.syncData();
      const into = new Uint8Array(length);
      equal(await file.readAt(5, into), length);
      file.close();
      ok(Buffer.from(into.buffer).equals(bytes), `${length} bytes`);
    }
  });
});

Deno.test("SystemDisk writes a small buffer within the call, so that a reader sees it at once", async () => {
  await inFolder(async (disk, root) => {
    const file = await disk.open(`${root}/file`, "create");
    const writing = file.writeAt(0, Uint8Array.of(1, 2));
    equal(Deno.readFileSync(`${root}/file`).length, 2);
    await writing;
    file.close();
  });
});

Deno.test("SystemDisk keeps concurrent operations of one file apart", async () => {
  await inFolder(async (disk, root) => {
    const file = await disk.open(`${root}/file`, "create");
    const block = 4096;
    const count = 64;
    await Promise.all(
      Array.from({ length: count }, async (_, index) => {
        await file.writeAt(index * block, new Uint8Array(block).fill(index));
        const into = new Uint8Array(block);
        const [read] = await Promise.all([file.readAt(index * block, into), file.syncData()]);
        equal(read, block);
        ok(into.every((byte) => byte === index), `block ${index}`);
      }),
    );
    equal(await file.size(), block * count);
    file.close();
  });
});

Deno.test("SystemDisk maps a full disk to no_space, for small and for large writes", async () => {
  const file = await new SystemDisk().open("/dev/full", "write");
  for (const length of [10, WRITE_INLINE_BYTES_MAX + 1]) {
    await rejects(file.writeAt(0, new Uint8Array(length)), (error) => {
      ok(error instanceof DiskError);
      equal(error.kind, "no_space");
      match(error.message, /^Cannot write "\/dev\/full": No space left on device/);
      ok(error.cause instanceof Error);
      return true;
    });
  }
  file.close();
});

Deno.test("SystemDisk maps what has no word of its own to io", async () => {
  await inFolder(async (disk, root) => {
    await Deno.writeTextFile(`${root}/file`, "x");
    await rejects(disk.open(`${root}/file/below`, "read"), { name: "DiskError", kind: "io" });
    await rejects(disk.open(root, "write"), { name: "DiskError", kind: "io" });
    await rejects(disk.makeDirectory(`${root}/file/below`), { name: "DiskError", kind: "io" });
    const file = await disk.open(`${root}/file`, "write");
    await rejects(file.readAt(-1, new Uint8Array(1)), { name: "DiskError", kind: "io" });
    file.close();
  });
});

Deno.test("SystemDisk.makeDirectory() works on relative paths", async () => {
  await inFolder(async (disk, root) => {
    const before = Deno.cwd();
    Deno.chdir(root);
    try {
      await disk.makeDirectory("a/b");
      await disk.makeDirectory("a");
      await disk.makeDirectory(".");
      deepEqual(await disk.list("a"), ["b"]);
    } finally {
      Deno.chdir(before);
    }
  });
});

Deno.test("SystemDisk.lock() holds against another process, and is free when that ends", async () => {
  await inFolder(async (disk, root) => {
    const module = new URL("./system_disk.ts", import.meta.url).href;
    const script = `
      import { SystemDisk } from ${JSON.stringify(module)};
      const lock = await new SystemDisk().lock(${JSON.stringify(`${root}/lock`)})
        .catch((error) => error.kind);
      console.log(typeof lock === "string" ? lock : "taken");
    `;
    const inOtherProcess = async () => {
      const output = await new Deno.Command(Deno.execPath(), {
        args: ["eval", "--no-lock", script],
        stderr: "inherit",
      }).output();
      return new TextDecoder().decode(output.stdout).trim();
    };
    const lock = await disk.lock(`${root}/lock`);
    equal(await inOtherProcess(), "locked");
    lock.release();
    equal(await inOtherProcess(), "taken");
    (await disk.lock(`${root}/lock`)).release();
  });
});
