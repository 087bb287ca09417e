/**
 * The wire protocols as pure code: V2 between brokers and clients, V1 between brokers and discovery.
 * No I/O, no clock, no state but that of a decoder.
 */
export * from "./block_decoder.ts";
export {
  concatBytes,
  copyBytes,
  EMPTY_BYTES,
  equalBytes,
  parseDecimal,
  readInt32,
  utf8Bytes,
  utf8Text,
  writeInt32,
} from "./bytes.ts";
export * from "./command_decoder.ts";
export { CommandLine } from "./command_line.ts";
export * from "./compression.ts";
export {
  checkFin,
  checkSub,
  checkTouch,
  consumersExceedLimit,
  encodeFin,
  encodeRdy,
  encodeReq,
  encodeSub,
  encodeTouch,
  FIN_BYTES,
  heartbeatsDisabled,
  messageFailed,
  MessageFailure,
  parseRdy,
  parseReq,
  subFailed,
  subToDeleted,
  writeFin,
} from "./consume_commands.ts";
export * from "./deflate.ts";
export * from "./end_of_stream.ts";
export * from "./error_code.ts";
export * from "./frame.ts";
export * from "./identify.ts";
export * from "./limits.ts";
export * from "./lookup_protocol.ts";
export * from "./message_id.ts";
export * from "./mpub.ts";
export * from "./names.ts";
export * from "./producer_id.ts";
export * from "./publish_commands.ts";
export * from "./session_commands.ts";
export { SnappyDecoder, SnappyEncoder } from "./snappy.ts";
export { type MessageVerb, type PublishVerb, type SequencedVerb, Verb, verbName } from "./verb.ts";
