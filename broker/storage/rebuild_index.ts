/** Makes the index of a sealed log file from its records, where the sidecar does not say it. */
import type { Damage, LogFileInfo, LogStore } from "@sluice/shared/log";
import { HoleMeter } from "./file_usage.ts";
import { messageBytes } from "./large_body.ts";
import {
  LARGE_MESSAGE_KIND,
  MESSAGE_KIND,
  type MessageHeader,
  readMessageHeader,
} from "./records.ts";
import type { SidecarRun } from "./sidecar.ts";
import type { BrokerState } from "./state.ts";
import { IndexRun } from "./topic_index.ts";

/** What a log file says of its messages. */
export interface ScannedIndex {
  /** By topic number, in memory. */
  readonly runs: ReadonlyMap<number, IndexRun>;
  readonly damage: readonly Damage[];
  /** Bytes of the file that take no space. */
  readonly holeBytes: number;
}

/** Reads a sealed log file for the places of its messages. */
export async function scanIndex(store: LogStore, file: LogFileInfo): Promise<ScannedIndex> {
  const runs = new Map<number, IndexRun>();
  const header: MessageHeader = { topic: 0, offset: 0, dueMs: 0, wireStart: 0 };
  const holes = new HoleMeter();
  const damage = await store.scan(file, {
    block: (block) => holes.block(block),
    record(kind, bytes, start, end, position) {
      holes.record();
      if (kind !== MESSAGE_KIND && kind !== LARGE_MESSAGE_KIND) return;
      readMessageHeader(bytes, start, header);
      let run = runs.get(header.topic);
      if (run === undefined) {
        run = new IndexRun(file.start, header.offset);
        runs.set(header.topic, run);
      }
      const storedBytes = messageBytes(kind, bytes, start, end, header.wireStart);
      run.add(header.offset, position, header.dueMs, storedBytes);
    },
  });
  return { runs, damage, holeBytes: holes.finish() };
}

/** Has the runs of a file, which are known already, in memory as its records say. */
export async function restoreIndex(
  store: LogStore,
  file: LogFileInfo,
  state: BrokerState,
): Promise<readonly Damage[]> {
  const { runs, damage } = await scanIndex(store, file);
  for (const { topic, run } of runsOf(state, file)) run.restore(runs.get(topic));
  return damage;
}

/** The index runs of one file, for its sidecar. */
export function runsOf(state: BrokerState, file: LogFileInfo): SidecarRun[] {
  const runs: SidecarRun[] = [];
  for (const topic of state.topics.values()) {
    const run = topic.index.runIn(file.start);
    if (run !== undefined) runs.push({ topic: topic.number, run });
  }
  return runs;
}
