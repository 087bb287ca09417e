/**
 * The least that can answer PUB from the runtime: no log, no topics, no checks. What `floor.ts` compares
 * the broker with. It takes PUB of one size a connection, one at a time, as `load.ts` sends them.
 *
 * ```
 * floor_server.ts --mode answer|gather|sync --file PATH    prints the port it listens on
 * ```
 *
 * - `answer`: an OK for each PUB at once.
 * - `gather`: the OKs of a turn of the event loop together.
 * - `sync`: the same behind one write and one fdatasync for what has come, as in group commit.
 */
import { parseArgs } from "node:util";
import { OK_FRAME } from "@sluice/shared/protocol";

const READ_BYTES = 4096;
/** What a message of 200 bytes takes in the log. */
const RECORD_BYTES = 248;
const FILE_BYTES = 64 * 1024 * 1024;
const GROUP_RECORDS_MAX = 1024;
const [NEWLINE, SPACE, LETTER_I] = [0x0a, 0x20, 0x49];
/** The size of a body in front of it. */
const SIZE_BYTES = 4;

const { values: { mode, file: path } } = parseArgs({
  options: {
    mode: { type: "string", default: "answer" },
    file: { type: "string", default: "" },
  },
});

/** A file of zeros that is written over from the front again and again. */
class Records {
  readonly #file: Deno.FsFile;
  readonly #syncFile: Deno.FsFile;
  readonly #bytes = new Uint8Array(GROUP_RECORDS_MAX * RECORD_BYTES);
  #at = 0;

  constructor(path: string) {
    this.#file = Deno.openSync(path, { write: true, createNew: true });
    this.#syncFile = Deno.openSync(path, { write: true });
    this.#file.writeSync(new Uint8Array(FILE_BYTES));
    this.#file.syncDataSync();
  }

  sync(records: number): Promise<void> {
    const bytes = Math.min(records, GROUP_RECORDS_MAX) * RECORD_BYTES;
    if (this.#at + bytes > FILE_BYTES) this.#at = 0;
    this.#file.seekSync(this.#at, Deno.SeekMode.Start);
    this.#file.writeSync(this.#bytes.subarray(0, bytes));
    this.#at += bytes;
    return this.#syncFile.syncData();
  }
}

const records = mode === "sync" ? new Records(path) : null;
let waiting: Deno.TcpConn[] = [];
let isAnswering = false;

async function answerWaiting(): Promise<void> {
  while (waiting.length > 0) {
    const connections = waiting;
    waiting = [];
    if (records === null) await new Promise((resolve) => setImmediate(resolve));
    else await records.sync(connections.length);
    for (const connection of connections) void connection.write(OK_FRAME);
  }
  isAnswering = false;
}

function published(connection: Deno.TcpConn): void {
  if (mode === "answer") {
    void connection.write(OK_FRAME);
    return;
  }
  waiting.push(connection);
  if (isAnswering) return;
  isAnswering = true;
  queueMicrotask(() => void answerWaiting());
}

async function serve(connection: Deno.TcpConn): Promise<void> {
  connection.setNoDelay(true);
  const buffer = new Uint8Array(READ_BYTES);
  const view = new DataView(buffer.buffer);
  let commandBytes = 0;
  let pendingBytes = 0;
  while (true) {
    const bytes = await connection.read(buffer).catch(() => null);
    if (bytes === null) return;
    if (commandBytes === 0) {
      // The magic, alone or with IDENTIFY behind it; then IDENTIFY; then the first PUB.
      const verb = buffer[0] === SPACE ? buffer[SIZE_BYTES] : buffer[0];
      if (verb === LETTER_I && bytes > SIZE_BYTES) await connection.write(OK_FRAME);
      if (buffer[0] === SPACE || verb === LETTER_I) continue;
      const lineBytes = buffer.indexOf(NEWLINE) + 1;
      commandBytes = lineBytes + SIZE_BYTES + view.getUint32(lineBytes);
    }
    pendingBytes += bytes;
    if (pendingBytes < commandBytes) continue;
    pendingBytes -= commandBytes;
    published(connection);
  }
}

const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
console.log(listener.addr.port);
for await (const connection of listener) void serve(connection);
