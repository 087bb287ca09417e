/** `sluicectl data inspect`: what is in a folder, as a broker would find it at its start. */
import type { BrokerState, RecoveredState, TopicState } from "@sluice/broker/storage/format";
import { COMPATIBILITY_FILE, FIRST_LEVELS, recoverState } from "@sluice/broker/storage/format";
import { LogError } from "@sluice/shared/log";
import { type Command, EXIT_DAMAGE, EXIT_DONE, print } from "../command.ts";
import { bytesText, Progress, ReadingDisk } from "../progress.ts";
import { type Folder, READ_OPTIONS, readFolder, refuseLocked } from "./folder.ts";

/** The command. */
export const inspectCommand: Command = {
  name: "inspect",
  summary: "Show files, topics, channels, depths and the damage that a start would meet.",
  positionals: ["DIR"],
  options: { json: { help: "as one JSON object" }, ...READ_OPTIONS },
  description: [
    "Reads what a broker reads at its start and no more: the newest checkpoint, the sidecars and the\n" +
    "log behind the checkpoint. Damage elsewhere is found by verify.",
    "Ephemeral topics and channels are not shown: a start forgets them.",
  ],
  examples: [
    [
      "data inspect /var/lib/sluice",
      "what would a broker have after its start?",
    ],
    [
      "data inspect --json --read-only /var/lib/sluice",
      "the same for a program, beside a broker",
    ],
  ],
  async run(input, world) {
    const path = input.positional(0);
    const readOnly = input.flag("read-only");
    if (readOnly && !input.flag("quiet")) {
      world.err(
        "read-only: if a broker is running, results may be mid-flight\n",
      );
    }
    if (!readOnly) await refuseLocked(world.disk, path, "before");
    const progress = new Progress(world, input.flag("quiet"));
    const folder = await readFolder(
      new ReadingDisk(world.disk, progress),
      path,
    );
    const bytes = folder.log.files.reduce(
      (sum, { start, end }) => sum + end - start,
      0,
    );
    progress.begin("state", bytes);
    const inspection = await inspect(folder).finally(() => progress.end());
    if (!readOnly) await refuseLocked(world.disk, path, "after");
    print(
      world,
      input.flag("json") ? `${JSON.stringify(inspection, null, 2)}\n` : textOf(inspection),
    );
    return inspection.damage.length > 0 ? EXIT_DAMAGE : EXIT_DONE;
  },
};

type Inspection = Awaited<ReturnType<typeof inspect>>;

async function inspect(folder: Folder) {
  const { path, log, meta } = folder;
  const damage: {
    readonly text: string;
    readonly position?: number;
    readonly bytes?: number;
  }[] = [];
  if (folder.formatProblem !== null) {
    damage.push({ text: `FORMAT: ${folder.formatProblem}` });
  }
  if (folder.compatibilityProblem !== null) {
    damage.push({ text: `${COMPATIBILITY_FILE}: ${folder.compatibilityProblem}` });
  }
  if (folder.metaProblem !== null) {
    damage.push({ text: `broker.meta: ${folder.metaProblem}` });
  }
  if (meta === null && folder.metaProblem === null && log.files.length > 0) {
    damage.push({ text: "broker.meta: it is missing" });
  }
  const levels = folder.compatibilityProblem === null ? folder.compatibility ?? FIRST_LEVELS : null;
  const checkpoints = await log.listCheckpoints();
  let recovered: RecoveredState | null = null;
  try {
    recovered = await recoverState(log);
  } catch (error) {
    if (!(error instanceof LogError) || error.code === "newer_format") {
      throw error;
    }
    damage.push({ text: error.message });
  }
  for (const { position, bytes, reason } of recovered?.damage ?? []) {
    damage.push({ text: reason, position, bytes });
  }
  return {
    path,
    reader_level: levels?.reader ?? null,
    writer_level: levels?.writer ?? null,
    node_id: meta?.node_id ?? null,
    epoch: meta?.epoch ?? null,
    sequence_reserved: meta?.sequence_reserved ?? null,
    files: log.files.map(({ start, end }) => ({
      start,
      end,
      sidecar: log.names.includes(`${String(start).padStart(16, "0")}.idx`),
    })),
    checkpoints,
    /** The one that the state was built from. */
    checkpoint_used: recovered?.checkpoint ?? null,
    torn_bytes: recovered?.tornBytes ?? null,
    topics: recovered === null ? null : topicsOf(recovered.state),
    damage,
  };
}

function topicsOf(state: BrokerState) {
  return [...state.topics.values()].map((topic) => ({
    name: topic.name,
    paused: topic.paused,
    /** Messages ever published; the next one's offset. */
    messages: topic.tail,
    depth: topicDepth(topic),
    channels: [...topic.channels.values()].map((
      { name, paused, start, finished, requeues },
    ) => ({
      name,
      paused,
      start,
      depth: topic.tail - finished.floor - finished.above,
      requeued: requeues.size,
    })),
  }));
}

/** Messages that wait for the topic's first channel; 0 when it has channels. */
function topicDepth(topic: TopicState): number {
  return topic.channels.size === 0 ? topic.tail - topic.keepFrom : 0;
}

function textOf(inspection: Inspection): string {
  const { files, topics, damage, checkpoints } = inspection;
  const bytes = files.reduce((sum, { start, end }) => sum + end - start, 0);
  const lines = [
    `${inspection.path}: node ${inspection.node_id ?? "?"}, epoch ${inspection.epoch ?? "?"}, ` +
    `message sequences below ${inspection.sequence_reserved ?? "?"} reserved`,
    `needs reader level ${inspection.reader_level ?? "?"}, writer level ` +
    `${inspection.writer_level ?? "?"}`,
    `log: ${files.length} files, ${bytesText(bytes)}`,
    ...files.map(({ start, end, sidecar }, index) =>
      `  ${String(start).padStart(16, "0")}.log  ${bytesText(end - start).padStart(10)}` +
      (sidecar || index === files.length - 1 ? "" : "  no sidecar")
    ),
    `checkpoints: ${checkpoints.length === 0 ? "none" : checkpoints.join(", ")}` +
    (checkpoints.length > 0 && inspection.checkpoint_used !== checkpoints[0]
      ? ` (used: ${inspection.checkpoint_used ?? "none"})`
      : ""),
  ];
  if (inspection.torn_bytes !== null && inspection.torn_bytes > 0) {
    lines.push(
      `torn group at the end: ${inspection.torn_bytes} bytes, cut off by the next start`,
    );
  }
  lines.push(
    topics === null ? "topics: not known, the state cannot be rebuilt" : "topics:",
  );
  for (const topic of topics ?? []) {
    lines.push(
      `  ${topic.name}  ${topic.messages} published${topic.paused ? ", paused" : ""}` +
        (topic.channels.length === 0 ? `, no channel, ${topic.depth} kept for the first` : ""),
    );
    for (const channel of topic.channels) {
      lines.push(
        `    ${channel.name}  depth ${channel.depth}` +
          (channel.requeued > 0 ? `, ${channel.requeued} requeued` : "") +
          (channel.paused ? ", paused" : ""),
      );
    }
  }
  lines.push(
    damage.length === 0 ? "damage: none met" : `damage: ${damage.length}`,
  );
  for (const { text, position, bytes: size } of damage) {
    lines.push(
      `  ${text}${position === undefined ? "" : ` (${size} bytes at position ${position})`}`,
    );
  }
  return lines.join("\n") + "\n";
}
