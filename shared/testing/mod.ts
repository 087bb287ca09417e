/**
 * The simulated world for tests and benchmarks: time that a test moves, randomness from a seed, a disk
 * that loses power, connections in memory; and certificates. Nothing here reaches a product module.
 */
export { connectionPair, type ConnectionPairOptions, SimConnection } from "./sim_connection.ts";
export { type NameRecords, NameServerFixture } from "./name_server_fixture.ts";
export { DiskFileWrapper, DiskWrapper } from "./disk_wrapper.ts";
export { fuzz, fuzzSeed, type FuzzTarget, fuzzTime } from "./fuzzer.ts";
export {
  checkAnswer,
  freshRequest,
  HTTP_WORDS,
  type HttpAnswers,
  requestOf,
  wireOf,
} from "./http_fuzz.ts";
export { SeededRandom } from "./seeded_random.ts";
export { settle, SimClock, type SimClockOptions } from "./sim_clock.ts";
export { SimDatagrams } from "./sim_datagrams.ts";
export { SimDisk, type SimDiskOptions } from "./sim_disk.ts";
export type { PlannedFailure, PowerCutMoment } from "./sim_disk_power.ts";
export { type SimDiskOperation, SimDiskTrace } from "./sim_disk_trace.ts";
export { SECTOR_BYTES, SimFileData } from "./sim_file_data.ts";
export { SimHttpStream, SimHttpStreams, type SimUrl } from "./sim_http_streams.ts";
export { SimNames } from "./sim_names.ts";
export { SimNetwork, type SimNetworkOptions } from "./sim_network.ts";
export {
  tlsAuthority,
  TlsClient,
  type TlsIdentity,
  tlsPair,
  tlsPath,
  tlsSettings,
} from "./tls_fixture.ts";
