/** What every {@linkcode Disk} does, on the real one and on the simulated one. */
import { deepEqual, equal, ok, rejects } from "node:assert/strict";
import {
  type Disk,
  DiskError,
  type DiskErrorKind,
  type DiskFile,
  readWhole,
  replaceFile,
} from "../runtime/mod.ts";
import { SystemDisk } from "../runtime/system.ts";
import { SeededRandom, SimDisk } from "./mod.ts";

interface Subject {
  readonly name: string;
  run(use: (disk: Disk, root: string) => Promise<void>): Promise<void>;
}

const SUBJECTS: readonly Subject[] = [
  {
    name: "SystemDisk",
    async run(use) {
      const root = await Deno.makeTempDir();
      try {
        await use(new SystemDisk(), root);
      } finally {
        await Deno.remove(root, { recursive: true });
      }
    },
  },
  { name: "SimDisk", run: (use) => onSimDisk(new SimDisk(), use) },
  {
    name: "SimDisk with delays",
    run: (use) => onSimDisk(new SimDisk({ extraTurnsMax: 5, random: new SeededRandom(1) }), use),
  },
];

async function onSimDisk(
  disk: SimDisk,
  use: (disk: Disk, root: string) => Promise<void>,
): Promise<void> {
  await disk.makeDirectory("/root");
  await use(disk, "/root");
  equal(disk.openFiles, 0);
}

function contract(promise: string, use: (disk: Disk, root: string) => Promise<void>): void {
  for (const subject of SUBJECTS) {
    Deno.test(`${subject.name} ${promise}`, () => subject.run(use));
  }
}

async function withFile(
  disk: Disk,
  path: string,
  mode: "create" | "read" | "write",
  use: (file: DiskFile) => Promise<void>,
): Promise<void> {
  const file = await disk.open(path, mode);
  try {
    await use(file);
  } finally {
    file.close();
  }
}

async function failsWith(kind: DiskErrorKind, operation: Promise<unknown>, path?: string) {
  await rejects(operation, (error) => {
    ok(error instanceof DiskError, String(error));
    equal(error.kind, kind, error.message);
    if (path !== undefined) ok(error.message.includes(`"${path}"`), error.message);
    return true;
  });
}

async function put(disk: Disk, path: string, bytes: Uint8Array): Promise<void> {
  await withFile(disk, path, "create", (file) => file.writeAt(0, bytes));
}

contract("open() fails with not_found when there is no file or folder", async (disk, root) => {
  await failsWith("not_found", disk.open(`${root}/none`, "read"), `${root}/none`);
  await failsWith("not_found", disk.open(`${root}/none`, "write"), `${root}/none`);
  await failsWith("not_found", disk.open(`${root}/none/file`, "create"), `${root}/none/file`);
});

contract("open() to create fails with exists when there is a file", async (disk, root) => {
  await put(disk, `${root}/file`, Uint8Array.of(1));
  await failsWith("exists", disk.open(`${root}/file`, "create"), `${root}/file`);
  deepEqual(await readWhole(disk, `${root}/file`, 10), Uint8Array.of(1));
});

contract("writeAt() grows the file and fills a gap with zeros", async (disk, root) => {
  await withFile(disk, `${root}/file`, "create", async (file) => {
    await file.writeAt(3, Uint8Array.of(7, 8));
    equal(await file.size(), 5);
    await file.writeAt(4, Uint8Array.of(9, 10, 11));
    await file.writeAt(100, Uint8Array.of());
    equal(await file.size(), 7);
  });
  deepEqual(
    await readWhole(disk, `${root}/file`, 10),
    Uint8Array.of(0, 0, 0, 7, 9, 10, 11),
  );
});

contract("writeAt() fails with io on a file opened to read", async (disk, root) => {
  await put(disk, `${root}/file`, Uint8Array.of(1));
  await withFile(disk, `${root}/file`, "read", async (file) => {
    await failsWith("io", file.writeAt(0, Uint8Array.of(2)), `${root}/file`);
    await failsWith("io", file.truncate(0), `${root}/file`);
  });
  deepEqual(await readWhole(disk, `${root}/file`, 10), Uint8Array.of(1));
});

contract("readAt() resolves with fewer bytes only at the end of the file", async (disk, root) => {
  await put(disk, `${root}/file`, Uint8Array.of(1, 2, 3));
  await withFile(disk, `${root}/file`, "read", async (file) => {
    const into = new Uint8Array(2);
    equal(await file.readAt(0, into), 2);
    deepEqual(into, Uint8Array.of(1, 2));
    equal(await file.readAt(2, into), 1);
    deepEqual(into, Uint8Array.of(3, 2));
    equal(await file.readAt(3, into), 0);
    equal(await file.readAt(100, into), 0);
    equal(await file.readAt(0, new Uint8Array(0)), 0);
  });
});

contract("operations on one file run in the order of their calls", async (disk, root) => {
  await withFile(disk, `${root}/file`, "create", async (file) => {
    const large = new Uint8Array(700_000).fill(3);
    const [first, second, third] = [new Uint8Array(4), new Uint8Array(4), new Uint8Array(4)];
    const results = await Promise.all([
      file.writeAt(0, Uint8Array.of(1, 1, 1, 1)),
      file.readAt(0, first),
      file.writeAt(0, large),
      file.readAt(699_998, second),
      file.writeAt(2, Uint8Array.of(5)),
      file.readAt(0, third),
      file.size(),
      file.truncate(2),
      file.size(),
    ]);
    deepEqual(results, [undefined, 4, undefined, 2, undefined, 4, 700_000, undefined, 2]);
    deepEqual([...first, ...second, ...third], [1, 1, 1, 1, 3, 3, 0, 0, 3, 3, 5, 3]);
  });
});

contract("syncData() runs beside reads and writes of its file", async (disk, root) => {
  await withFile(disk, `${root}/file`, "create", async (file) => {
    await file.writeAt(0, new Uint8Array(100_000).fill(1));
    const into = new Uint8Array(1);
    const sync = file.syncData();
    await Promise.all([
      file.readAt(0, into),
      file.writeAt(100_000, Uint8Array.of(2)),
      sync,
      file.syncData(),
    ]);
    equal(into[0], 1);
    equal(await file.size(), 100_001);
  });
});

contract("truncate() cuts, and extends with zeros what was cut", async (disk, root) => {
  await withFile(disk, `${root}/file`, "create", async (file) => {
    await file.writeAt(0, Uint8Array.of(1, 2, 3, 4));
    await file.truncate(2);
    equal(await file.size(), 2);
    await file.truncate(5);
  });
  deepEqual(await readWhole(disk, `${root}/file`, 10), Uint8Array.of(1, 2, 0, 0, 0));
});

contract(
  "a file that was extended holds zeros around what is written in it",
  async (disk, root) => {
    await withFile(disk, `${root}/file`, "create", async (file) => {
      await file.truncate(3_000_000);
      await file.writeAt(2_000_000, Uint8Array.of(1, 2));
      await file.writeAt(0, Uint8Array.of(3));
      await file.syncData();
      equal(await file.size(), 3_000_000);
    });
    const bytes = await readWhole(disk, `${root}/file`, 3_000_000);
    equal(bytes.length, 3_000_000);
    deepEqual([bytes[0], bytes[2_000_000], bytes[2_000_001]], [3, 1, 2]);
    equal(bytes.reduce((sum, byte) => sum + byte, 0), 6);
  },
);

contract("two handles of one file see one content", async (disk, root) => {
  await withFile(disk, `${root}/file`, "create", async (writer) => {
    await withFile(disk, `${root}/file`, "read", async (reader) => {
      await writer.writeAt(0, Uint8Array.of(4));
      const into = new Uint8Array(1);
      equal(await reader.readAt(0, into), 1);
      equal(into[0], 4);
    });
  });
});

contract(
  "close() makes every operation fail with closed, and may be repeated",
  async (disk, root) => {
    const file = await disk.open(`${root}/file`, "create");
    file.close();
    file.close();
    await failsWith("closed", file.writeAt(0, Uint8Array.of(1)), `${root}/file`);
    await failsWith("closed", file.writeAt(0, new Uint8Array(300_000)), `${root}/file`);
    await failsWith("closed", file.readAt(0, new Uint8Array(1)), `${root}/file`);
    await failsWith("closed", file.syncData(), `${root}/file`);
    await failsWith("closed", file.truncate(0), `${root}/file`);
    await failsWith("closed", file.size(), `${root}/file`);
  },
);

contract(
  "close() lets what waits behind another operation fail with closed",
  async (disk, root) => {
    const file = await disk.open(`${root}/file`, "create");
    const first = file.readAt(0, new Uint8Array(1)).catch(() => 0);
    const waiting = [file.readAt(0, new Uint8Array(1)), file.size()];
    file.close();
    await first;
    for (const result of await Promise.allSettled(waiting)) {
      if (result.status === "rejected") equal((result.reason as DiskError).kind, "closed");
    }
  },
);

contract("list() returns the names in a folder, sorted, folders too", async (disk, root) => {
  await disk.makeDirectory(`${root}/b/inner`);
  for (const name of ["c", "a", "a.tmp", "b/x"]) {
    await put(disk, `${root}/${name}`, Uint8Array.of());
  }
  deepEqual(await disk.list(root), ["a", "a.tmp", "b", "c"]);
  deepEqual(await disk.list(`${root}/b`), ["inner", "x"]);
  deepEqual(await disk.list(`${root}/b/inner`), []);
  await failsWith("not_found", disk.list(`${root}/none`), `${root}/none`);
  await failsWith("io", disk.list(`${root}/a`), `${root}/a`);
});

contract("rename() replaces the target and keeps handles usable", async (disk, root) => {
  await put(disk, `${root}/old`, Uint8Array.of(1));
  await withFile(disk, `${root}/new`, "create", async (file) => {
    await file.writeAt(0, Uint8Array.of(2));
    await disk.rename(`${root}/new`, `${root}/old`);
    await file.writeAt(1, Uint8Array.of(3));
    await file.syncData();
  });
  deepEqual(await disk.list(root), ["old"]);
  deepEqual(await readWhole(disk, `${root}/old`, 10), Uint8Array.of(2, 3));
  await disk.rename(`${root}/old`, `${root}/old`);
  deepEqual(await disk.list(root), ["old"]);
});

contract("rename() moves between folders", async (disk, root) => {
  await disk.makeDirectory(`${root}/there`);
  await put(disk, `${root}/file`, Uint8Array.of(1));
  await disk.rename(`${root}/file`, `${root}/there/file`);
  deepEqual(await disk.list(root), ["there"]);
  deepEqual(await disk.list(`${root}/there`), ["file"]);
});

contract(
  "rename() fails with not_found when the file or the target's folder is missing",
  async (disk, root) => {
    await failsWith("not_found", disk.rename(`${root}/none`, `${root}/to`), `${root}/none`);
    await put(disk, `${root}/file`, Uint8Array.of(1));
    await failsWith("not_found", disk.rename(`${root}/file`, `${root}/none/to`), `${root}/file`);
    deepEqual(await disk.list(root), ["file"]);
  },
);

contract("remove() takes the name away and leaves an open file readable", async (disk, root) => {
  await put(disk, `${root}/file`, Uint8Array.of(6));
  await withFile(disk, `${root}/file`, "write", async (file) => {
    await disk.remove(`${root}/file`);
    deepEqual(await disk.list(root), []);
    const into = new Uint8Array(1);
    equal(await file.readAt(0, into), 1);
    equal(into[0], 6);
  });
  await failsWith("not_found", disk.remove(`${root}/file`), `${root}/file`);
});

contract("remove() fails with io on a folder, empty or not", async (disk, root) => {
  await disk.makeDirectory(`${root}/folder`);
  await failsWith("io", disk.remove(`${root}/folder`), `${root}/folder`);
  deepEqual(await disk.list(root), ["folder"]);
});

contract(
  "makeDirectory() makes parents, and does nothing when the folder exists",
  async (disk, root) => {
    await disk.makeDirectory(`${root}/a/b/c`);
    await put(disk, `${root}/a/b/c/file`, Uint8Array.of(1));
    await disk.makeDirectory(`${root}/a/b/c`);
    await disk.makeDirectory(`${root}/a`);
    deepEqual(await disk.list(`${root}/a/b/c`), ["file"]);
  },
);

contract("makeDirectory() of one path twice at once succeeds", async (disk, root) => {
  await Promise.all([disk.makeDirectory(`${root}/a/b`), disk.makeDirectory(`${root}/a/b`)]);
  deepEqual(await disk.list(`${root}/a`), ["b"]);
});

contract("makeDirectory() fails with exists when a file has the name", async (disk, root) => {
  await put(disk, `${root}/file`, Uint8Array.of(1));
  await failsWith("exists", disk.makeDirectory(`${root}/file`), `${root}/file`);
});

contract("syncDirectory() takes a folder and nothing else", async (disk, root) => {
  await disk.syncDirectory(root);
  await put(disk, `${root}/file`, Uint8Array.of(1));
  await failsWith("io", disk.syncDirectory(`${root}/file`), `${root}/file`);
  await failsWith("not_found", disk.syncDirectory(`${root}/none`), `${root}/none`);
});

contract(
  "lock() fails with locked while it is held, and works after its release",
  async (disk, root) => {
    const lock = await disk.lock(`${root}/lock`);
    await failsWith("locked", disk.lock(`${root}/lock`), `${root}/lock`);
    const other = await disk.lock(`${root}/other`);
    lock.release();
    const again = await disk.lock(`${root}/lock`);
    lock.release();
    await failsWith("locked", disk.lock(`${root}/lock`), `${root}/lock`);
    again.release();
    other.release();
    deepEqual(await disk.list(root), ["lock", "other"]);
  },
);

contract("lock() fails with not_found without its folder", async (disk, root) => {
  await failsWith("not_found", disk.lock(`${root}/none/lock`), `${root}/none/lock`);
});

contract("space() reports a total and what is free of it", async (disk, root) => {
  const { totalBytes, freeBytes } = await disk.space(root);
  ok(totalBytes > 0 && freeBytes > 0 && freeBytes <= totalBytes);
  await failsWith("not_found", disk.space(`${root}/none`), `${root}/none`);
});

contract("replaceFile() replaces a file and takes over a leftover", async (disk, root) => {
  await put(disk, `${root}/file.tmp`, new Uint8Array(100));
  await replaceFile(disk, `${root}/file`, Uint8Array.of(1));
  await replaceFile(disk, `${root}/file`, Uint8Array.of(2));
  deepEqual(await readWhole(disk, `${root}/file`, 1), Uint8Array.of(2));
  deepEqual(await disk.list(root), ["file"]);
  await failsWith("io", readWhole(disk, `${root}/file`, 0), `${root}/file`);
});
