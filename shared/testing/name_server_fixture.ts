/**
 * A small name server on loopback, over UDP: it answers questions for A, AAAA and SRV records from a
 * table that a test changes as it likes, and says that any other name does not exist.
 */
import { createSocket, type Socket } from "node:dgram";

/** The records of one name. */
export interface NameRecords {
  readonly A?: readonly string[];
  readonly AAAA?: readonly string[];
  readonly SRV?: readonly { readonly host: string; readonly port: number }[];
}

const TYPES: ReadonlyMap<number, keyof NameRecords> = new Map([[1, "A"], [28, "AAAA"], [
  33,
  "SRV",
]]);
const HEADER_BYTES = 12;
const NAME_DOES_NOT_EXIST = 3;
/** Points to the name in the question, behind the header. */
const QUESTION_NAME = [0xc0, HEADER_BYTES];
const TTL_S = 1;

/** See the module. */
export class NameServerFixture {
  /** By name in lower case, without a dot at the end. */
  records: Readonly<Record<string, NameRecords>> = {};
  /** Answers nothing. */
  isSilent = false;
  readonly #socket: Socket;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("message", (query: Uint8Array, from: { address: string; port: number }) => {
      if (this.isSilent) return;
      socket.send(this.#answer(new Uint8Array(query)), from.port, from.address);
    });
  }

  /** Listens on 127.0.0.1 on a free port. */
  static async start(): Promise<NameServerFixture> {
    const socket = createSocket("udp4");
    await new Promise<void>((resolve) => socket.bind(0, "127.0.0.1", resolve));
    return new NameServerFixture(socket);
  }

  get port(): number {
    return this.#socket.address().port;
  }

  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#socket.close(() => resolve());
    });
  }

  #answer(query: Uint8Array): Uint8Array {
    const labels: string[] = [];
    let at = HEADER_BYTES;
    for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
      labels.push(new TextDecoder().decode(query.subarray(at + 1, at + 1 + length)));
      at += 1 + length;
    }
    const type = (query[at + 1] ?? 0) << 8 | (query[at + 2] ?? 0);
    const question = query.subarray(HEADER_BYTES, at + 5);
    const found = this.records[labels.join(".").toLowerCase()];
    const records = recordsOf(found, TYPES.get(type));
    const code = found === undefined ? NAME_DOES_NOT_EXIST : 0;
    // An answer, authoritative, to one question.
    const header = [
      query[0] ?? 0,
      query[1] ?? 0,
      0x85,
      code,
      0,
      1,
      ...u16(records.length),
      0,
      0,
      0,
      0,
    ];
    const answers = records.flatMap((data) => [
      ...QUESTION_NAME,
      ...u16(type),
      ...u16(1),
      ...u16(0),
      ...u16(TTL_S),
      ...u16(data.length),
      ...data,
    ]);
    return Uint8Array.from([...header, ...question, ...answers]);
  }
}

function recordsOf(found: NameRecords | undefined, kind: keyof NameRecords | undefined) {
  switch (kind) {
    case "A":
      return (found?.A ?? []).map((address) => address.split(".").map(Number));
    case "AAAA":
      return (found?.AAAA ?? []).map(ipv6Bytes);
    case "SRV":
      return (found?.SRV ?? []).map(({ host, port }) => [
        ...u16(0),
        ...u16(0),
        ...u16(port),
        ...nameBytes(host),
      ]);
    case undefined:
      return [];
  }
}

/** An address with at most one `::`. */
function ipv6Bytes(address: string): number[] {
  const [before = [], after = []] = address.split("::")
    .map((half) => half.split(":").filter((group) => group !== ""));
  const missing = 8 - before.length - after.length;
  return [...before, ...Array<string>(missing).fill("0"), ...after]
    .flatMap((group) => u16(parseInt(group, 16)));
}

function nameBytes(name: string): number[] {
  const labels = name.split(".").flatMap((label) => [
    label.length,
    ...new TextEncoder().encode(label),
  ]);
  return [...labels, 0];
}

function u16(value: number): [number, number] {
  return [value >> 8, value & 0xff];
}
