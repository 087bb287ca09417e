/** The crash test can fail: each bug planted here breaks a promise, and a few seeds find it. */
import { ok } from "node:assert/strict";
import type { Broker } from "@sluice/broker/broker";
import { applyRequeue, TopicState } from "@sluice/broker/storage";
import { BLOCK_HEADER_BYTES, readBlockHeader, writeBlockHeader } from "@sluice/shared/log";
import { directoryOf, type Disk, DiskError, type DiskFile } from "@sluice/shared/runtime";
import { DiskFileWrapper, DiskWrapper } from "@sluice/shared/testing";
import { crc32 } from "node:zlib";
import { runSeed, SeedFailure, type SeedOptions } from "./harness.ts";

/** Many times what any of the bugs has needed. */
const SEEDS_MAX = 400;

/** The first failure that a bug leads to, from a seed on. */
async function firstFailure(bug: SeedOptions, first: number): Promise<SeedFailure | null> {
  for (let seed = first; seed < first + SEEDS_MAX; seed++) {
    try {
      await runSeed(seed, bug);
    } catch (error) {
      if (error instanceof SeedFailure) return error;
      throw error;
    }
  }
  return null;
}

/** `first` spares the seeds before it, for a bug that few seeds meet. */
async function finds(bug: SeedOptions, symptom: RegExp, first = 1): Promise<void> {
  const failure = await firstFailure(bug, first);
  ok(failure !== null, `no broken promise within ${SEEDS_MAX} seeds`);
  ok(symptom.test(failure.message), failure.message);
  ok(failure.work.length > 0 && failure.disk.length > 0, "the failure shows what was done");
}

/** Files that lie, by the end of their path. */
function lyingFiles(ending: string, lie: (file: DiskFile) => DiskFile): SeedOptions {
  class LyingDisk extends DiskWrapper {
    override wrapFile(file: DiskFile, path: string): DiskFile {
      return path.endsWith(ending) ? lie(file) : file;
    }
  }
  return { wrapDisk: (disk) => new LyingDisk(disk) };
}

Deno.test("the crash test finds an OK that is sent before the sync", async () => {
  class NeverSynced extends DiskFileWrapper {
    override async syncData(): Promise<void> {}
  }
  await finds(
    lyingFiles(".log", (file) => new NeverSynced(file)),
    /was confirmed|not open|not owed/,
  );
});

const FOLDER_REGEXP = /was confirmed|not open|damages nothing/;

Deno.test("the crash test finds a folder that is not synced", async () => {
  class NamesForgotten extends DiskWrapper {
    override async syncDirectory(): Promise<void> {}
  }
  await finds({ wrapDisk: (disk: Disk) => new NamesForgotten(disk) }, FOLDER_REGEXP);
});

Deno.test("the crash test finds a small file that is renamed before its bytes are synced", async () => {
  class NeverSynced extends DiskFileWrapper {
    override async syncData(): Promise<void> {}
  }
  await finds(lyingFiles(".tmp", (file) => new NeverSynced(file)), /not open|was confirmed|damage/);
});

Deno.test("the crash test finds messages that are delivered before they are durable", async () => {
  const opened = (broker: Broker) => {
    const publish = broker.publish.bind(broker);
    broker.publish = (topic, ...rest) => {
      publish(topic, ...rest);
      topic.state.durableTail = topic.state.tail;
      topic.appended(broker.clock.monoMs(), broker.clock.wallMs());
    };
  };
  // Or first in the counts, which have what is not there yet.
  await finds({ opened }, /before it was durable|depth/);
});

Deno.test("the crash test finds messages of write_ack that are delivered before they are durable", async () => {
  const opened = ({ storage }: Broker) => {
    const ackModeOf = storage.ackModeOf.bind(storage);
    storage.ackModeOf = (topic) => {
      const mode = ackModeOf(topic);
      return mode === "write_ack" ? "nsq_relaxed" : mode;
    };
  };
  await finds({ opened }, /before it was durable/);
});

Deno.test("the crash test finds a write that stays in the process until the sync", async () => {
  class BufferedFile extends DiskFileWrapper {
    #writes: [position: number, bytes: Uint8Array][] = [];

    override async writeAt(position: number, bytes: Uint8Array): Promise<void> {
      this.#writes.push([position, bytes.slice()]);
      await super.size();
    }

    override async syncData(): Promise<void> {
      for (const [position, bytes] of this.#writes.splice(0)) await super.writeAt(position, bytes);
      await super.syncData();
    }
  }
  await finds(lyingFiles(".log", (file) => new BufferedFile(file)), /after a kill, but everything/);
});

Deno.test("the crash test finds a loss window without a bound", async () => {
  const opened = ({ storage }: Broker) => {
    const { lossWindow } = storage;
    const written = lossWindow.written.bind(lossWindow);
    lossWindow.written = () => {
      written();
      return true;
    };
  };
  await finds({ opened }, /more than the loss window/);
});

Deno.test("the crash test finds a finish that is not written", async () => {
  const opened = (broker: Broker) => {
    const finish = broker.finish.bind(broker);
    let count = 0;
    broker.finish = (channel, offset) => {
      if (++count % 20 > 0) finish(channel, offset);
      else channel.finished.add(offset);
    };
  };
  await finds({ opened }, /owed/);
});

Deno.test("the crash test finds a requeue that is not written", async () => {
  const opened = (broker: Broker) => {
    broker.requeue = (channel, offset, attempts, dueMs) =>
      applyRequeue(channel, offset, attempts, dueMs);
  };
  await finds({ opened }, /too early|not due|attempt/);
});

Deno.test("the crash test finds message ids that are used again", async () => {
  class ForgetfulFile extends DiskFileWrapper {
    override writeAt(position: number, bytes: Uint8Array): Promise<void> {
      const text = new TextDecoder().decode(bytes);
      const forgotten = text.replace(/"sequence_reserved":\d+/, '"sequence_reserved":1');
      return super.writeAt(position, new TextEncoder().encode(forgotten));
    }
  }
  await finds(
    lyingFiles("broker.meta.tmp", (file) => new ForgetfulFile(file)),
    /was used before/,
  );
});

Deno.test("the crash test finds a recovery that does not check the records of a block", async () => {
  class UncheckedFile extends DiskFileWrapper {
    override async readAt(position: number, into: Uint8Array): Promise<number> {
      const read = await super.readAt(position, into);
      const view = new DataView(into.buffer, into.byteOffset, read);
      for (let at = 0; at + BLOCK_HEADER_BYTES <= read; at += 8) {
        const reading = readBlockHeader(view, at);
        if (reading.kind !== "block") continue;
        const { header } = reading;
        const records = into.subarray(at + BLOCK_HEADER_BYTES, read).subarray(
          0,
          header.recordsBytes,
        );
        if (records.length < header.recordsBytes) continue;
        writeBlockHeader(view, at, { ...header, recordsCrc: crc32(records) });
      }
      return read;
    }
  }
  await finds(lyingFiles(".log", (file) => new UncheckedFile(file)), /./);
});

/** Plants a bug in what all topics have in common, for one test. */
async function findsWith<K extends "isOwed" | "largePinnedFrom">(
  method: K,
  bug: (real: TopicState[K]) => TopicState[K],
  symptom: RegExp,
  first = 1,
): Promise<void> {
  const real = TopicState.prototype[method];
  TopicState.prototype[method] = bug(real);
  try {
    await finds({}, symptom, first);
  } finally {
    TopicState.prototype[method] = real;
  }
}

Deno.test("the crash test finds a trim that is not written", async () => {
  const opened = ({ storage }: Broker) => {
    const decide = storage.decide.bind(storage);
    storage.decide = (event) =>
      event.type === "topic_trimmed" ? storage.state.applyEvent(event) : decide(event);
  };
  await finds({ opened }, /owed|depth/);
});

Deno.test("the crash test finds a trim that takes a message more than was decided", async () => {
  const opened = ({ storage }: Broker) => {
    const decide = storage.decide.bind(storage);
    storage.decide = (event) =>
      decide(event.type === "topic_trimmed" ? { ...event, to: event.to + 1 } : event);
  };
  await finds({ opened }, /owed|depth|not delivered/);
});

Deno.test("the crash test finds a limit that gives up what waits behind a pause", async () => {
  const opened = ({ topics, storage }: Broker) => {
    const decide = storage.decide.bind(storage);
    storage.decide = (event) => {
      const topic = event.type === "topic_trimmed"
        ? storage.state.topicsByNumber.get(event.topic)
        : undefined;
      const isHidden = topic?.paused === true && topics.has(topic.name);
      return decide(
        event.type === "topic_trimmed" && isHidden ? { ...event, to: topic.tail } : event,
      );
    };
  };
  await finds({ opened }, /owed|depth|not delivered/);
});

Deno.test("the crash test finds messages that are given up before their report is durable", async () => {
  class NeverSynced extends DiskFileWrapper {
    override async syncData(): Promise<void> {}
  }
  await finds(lyingFiles(".jsonl.tmp", (file) => new NeverSynced(file)), /no report says|JSON/);
});

Deno.test("the crash test finds messages that are given up without a report", async () => {
  class EmptyFile extends DiskFileWrapper {
    override async writeAt(): Promise<void> {}
  }
  await finds(lyingFiles(".jsonl.tmp", (file) => new EmptyFile(file)), /no report says/);
});

Deno.test("the crash test finds a report that a later attempt has written over", async () => {
  class ForgetfulDisk extends DiskWrapper {
    #isEvicting = false;

    override async open(path: string, mode: "create" | "read" | "write"): Promise<DiskFile> {
      if (this.#isEvicting && mode === "read" && /evicted-\d+\.jsonl$/.test(path)) {
        throw new DiskError("not_found", "what an earlier attempt wrote is not looked at");
      }
      return await super.open(path, mode);
    }

    /** Comes before a report is written, */
    override async makeDirectory(path: string): Promise<void> {
      this.#isEvicting = path.endsWith("/audit");
      await super.makeDirectory(path);
    }

    /** and this before the harness reads them all. */
    override async list(directory: string): Promise<string[]> {
      this.#isEvicting = false;
      return await super.list(directory);
    }
  }
  await finds({ wrapDisk: (disk) => new ForgetfulDisk(disk) }, /no report says/, 200);
});

Deno.test("the crash test finds a compaction that drops a message that is owed", async () => {
  await findsWith(
    "isOwed",
    (real) =>
      function (this: TopicState, offset: number) {
        return offset % 5 !== 0 && real.call(this, offset);
      },
    /damaged|not delivered|owed|has delivered/,
  );
});

Deno.test("the crash test finds a compaction that leaves the sidecar of the old file behind", async () => {
  class SidecarsStay extends DiskWrapper {
    override async remove(path: string): Promise<void> {
      if (!path.endsWith(".idx")) await super.remove(path);
    }

    override async rename(from: string, to: string): Promise<void> {
      const name = to.slice(to.lastIndexOf("/") + 1);
      const isThere = to.endsWith(".idx") && (await super.list(directoryOf(to))).includes(name);
      await (isThere ? super.remove(from) : super.rename(from, to));
    }
  }
  await finds(
    { wrapDisk: (disk) => new SidecarsStay(disk) },
    /damaged|not delivered|owed|has delivered/,
  );
});

Deno.test("the crash test finds parts of a large message that go with their file", async () => {
  await findsWith("largePinnedFrom", () => () => Infinity, /part|damaged|bytes/, 180);
});
