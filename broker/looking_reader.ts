/**
 * A reader of messages for those who look and do not consume. What is damaged is counted, logged and
 * audited when a consumer meets it, so this one says nothing of it.
 */
import type { Clock } from "@sluice/shared/runtime";
import { Logger } from "@sluice/shared/telemetry";
import { MessageReader } from "./message_reader.ts";
import type { Storage } from "./storage/mod.ts";

/** See the module. */
export function lookingReader(storage: Storage, clock: Clock): MessageReader {
  return new MessageReader(storage, clock, new Logger({ sink: () => {}, clock }));
}
