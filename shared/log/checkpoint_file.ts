/**
 * The file of a checkpoint: written piece by piece while its owner goes on, read piece by piece, and
 * taken for whole only when it is. Little endian.
 *
 * ```
 * file  = "SLC1" position:u64 *chunk end
 * chunk = bytes:u32 check:u32 content     ; at least one byte
 * end   = 0:u32 check:u32                 ; nothing follows
 * ```
 *
 * `check` is the CRC-32 of everything before it in the file, other checks left out, and of what it
 * stands in front of. So each one vouches for all chunks up to its own and for their order, and a
 * file that stops short, has a chunk twice or has another position's name is not whole.
 */
import { crc32 } from "node:zlib";
import { directoryOf, type Disk, DiskError, type DiskFile, invariant } from "../runtime/mod.ts";
import { writeU64 } from "./block.ts";
import { LogError } from "./log_store.ts";

/** The most that one chunk of a checkpoint has. */
export const CHECKPOINT_CHUNK_BYTES_MAX = 128 * 1024;

const MAGIC = 0x31434c53; // "SLC1"
const HEADER_BYTES = 12;
const FRAME_BYTES = 8;
/** So much is written before the next sync: one of a whole large file would hold up the log's. */
const UNSYNCED_BYTES_MAX = 4 * 1024 * 1024;

/**
 * Stores a checkpoint under a path, durably and whole or not at all: a crash or a failure, also one
 * that `chunks` throws, leaves what was there before. Each chunk is borrowed until the next one is
 * asked for, and that is not before it has been written. Resolves with the file's bytes.
 */
export async function writeCheckpointFile(
  disk: Disk,
  path: string,
  position: number,
  chunks: AsyncIterable<Uint8Array>,
): Promise<number> {
  const temporary = `${path}.tmp`;
  await disk.remove(temporary).catch((error) => {
    if (!(error instanceof DiskError) || error.kind !== "not_found") throw error;
  });
  try {
    const file = await disk.open(temporary, "create");
    let bytes: number;
    try {
      bytes = await writeChunks(file, position, chunks);
    } finally {
      file.close();
    }
    await disk.rename(temporary, path);
    await disk.syncDirectory(directoryOf(path));
    return bytes;
  } catch (error) {
    // Half a file would only take space. That it cannot be removed is no news.
    await disk.remove(temporary).catch(() => {});
    throw error;
  }
}

/**
 * The chunks of a checkpoint's file, each checked before it is given out and borrowed until the next
 * one is asked for. Ends well only when the file is whole; throws {@linkcode LogError} `damaged`.
 */
export async function* readCheckpointFile(
  disk: Disk,
  path: string,
  position: number,
): AsyncGenerator<Uint8Array, void, void> {
  const file = await disk.open(path, "read");
  try {
    const damaged = () =>
      new LogError("damaged", `The checkpoint of position ${position} is damaged`);
    const size = await file.size();
    const expected = headerOf(position);
    const begin = new Uint8Array(HEADER_BYTES + FRAME_BYTES);
    let at = await file.readAt(0, begin);
    if (at < begin.length || expected.some((byte, index) => byte !== begin[index])) throw damaged();
    let check = crc32(expected);
    // A chunk is read together with the frame behind it.
    const frame = new Uint8Array(FRAME_BYTES + CHECKPOINT_CHUNK_BYTES_MAX + FRAME_BYTES);
    const view = new DataView(frame.buffer);
    frame.set(begin.subarray(HEADER_BYTES));
    while (true) {
      const bytes = view.getUint32(0, true);
      if (bytes > CHECKPOINT_CHUNK_BYTES_MAX) throw damaged();
      if (bytes > 0) {
        const rest = frame.subarray(FRAME_BYTES, FRAME_BYTES + bytes + FRAME_BYTES);
        if (await file.readAt(at, rest) < rest.length) throw damaged();
        at += rest.length;
      }
      check = checkOf(frame, bytes, check);
      if (view.getUint32(4, true) !== check) throw damaged();
      if (bytes === 0) break;
      yield frame.subarray(FRAME_BYTES, FRAME_BYTES + bytes);
      frame.copyWithin(0, FRAME_BYTES + bytes, FRAME_BYTES + bytes + FRAME_BYTES);
    }
    if (at !== size) throw damaged();
  } finally {
    file.close();
  }
}

async function writeChunks(
  file: DiskFile,
  position: number,
  chunks: AsyncIterable<Uint8Array>,
): Promise<number> {
  const frame = new Uint8Array(FRAME_BYTES + CHECKPOINT_CHUNK_BYTES_MAX);
  const view = new DataView(frame.buffer);
  const header = headerOf(position);
  await file.writeAt(0, header);
  let end = header.length;
  let synced = 0;
  let check = crc32(header);
  const write = async (content: Uint8Array): Promise<void> => {
    invariant(
      content.length <= CHECKPOINT_CHUNK_BYTES_MAX,
      "a checkpoint's chunk is not too large",
    );
    view.setUint32(0, content.length, true);
    frame.set(content, FRAME_BYTES);
    check = checkOf(frame, content.length, check);
    view.setUint32(4, check, true);
    await file.writeAt(end, frame.subarray(0, FRAME_BYTES + content.length));
    end += FRAME_BYTES + content.length;
  };
  for await (const chunk of chunks) {
    if (chunk.length === 0) continue;
    await write(chunk);
    if (end - synced < UNSYNCED_BYTES_MAX) continue;
    await file.syncData();
    synced = end;
  }
  await write(new Uint8Array());
  await file.syncData();
  return end;
}

function headerOf(position: number): Uint8Array {
  const header = new Uint8Array(HEADER_BYTES);
  const view = new DataView(header.buffer);
  view.setUint32(0, MAGIC, true);
  writeU64(view, 4, position);
  return header;
}

/** The check of a frame with `bytes` of content, given the one before it. */
function checkOf(frame: Uint8Array, bytes: number, before: number): number {
  const length = crc32(frame.subarray(0, 4), before);
  return crc32(frame.subarray(FRAME_BYTES, FRAME_BYTES + bytes), length);
}
