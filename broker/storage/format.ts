/**
 * The door for programs that look at a data folder without a broker. It gives the decoders of what
 * is on disk and a way to read a log as the broker would; nothing that can be reached through it
 * writes, locks or removes anything.
 */
export { decodeCheckpoint } from "./checkpoint.ts";
export {
  checkCompatibility,
  COMPATIBILITY_FILE,
  type CompatibilityLevels,
  encodeCompatibility,
  FIRST_LEVELS,
  OWN_LEVELS,
  readCompatibility,
} from "./compatibility.ts";
export { isRewritten } from "./file_usage.ts";
export {
  FORMAT_TEXT,
  LOG_FOLDER,
  type Meta,
  NODE_ID_MAX,
  readMeta,
  SEQUENCE_BLOCK,
} from "./data_folder.ts";
export { type BodyPart, isPart, type LargeBody, readTable } from "./large_body.ts";
export { type LogGap, logPath, ReadOnlyLog } from "./read_only_log.ts";
export {
  decodeEvent,
  decodeFinish,
  type Event,
  EVENT_KIND,
  FINISH_KIND,
  LARGE_MESSAGE_KIND,
  MESSAGE_HEADER_BYTES,
  MESSAGE_KIND,
  type MessageHeader,
  PART_KIND,
  readMessageHeader,
  readRequeue,
  REQUEUE_BYTES,
  REQUEUE_KIND,
  WIRE_HEADER_BYTES,
  WIRE_ID_OFFSET,
} from "./records.ts";
export { type RecoveredState, recoverState } from "./recover_state.ts";
export { isOtherFormat } from "./sidecar.ts";
export { type SidecarVisit, walkSidecar } from "./sidecar_walk.ts";
export type { BrokerState, ChannelState, TopicState } from "./state.ts";
export { MISSING } from "./index_word.ts";
