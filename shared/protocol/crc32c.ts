/** CRC-32C (Castagnoli), the checksum of the Snappy framing format. Eight bytes a step. */

const POLYNOMIAL = 0x82f63b78;
const TABLES = makeTables();

/** The checksum of `bytes[start, end)`, an unsigned 32-bit number. */
export function crc32c(bytes: Uint8Array, start = 0, end = bytes.length): number {
  let crc = ~0;
  let index = start;
  for (const last = end - 8; index <= last; index += 8) {
    crc ^= bytes[index]! | bytes[index + 1]! << 8 | bytes[index + 2]! << 16 |
      bytes[index + 3]! << 24;
    crc = TABLES[7 * 256 + (crc & 0xff)]! ^ TABLES[6 * 256 + (crc >>> 8 & 0xff)]! ^
      TABLES[5 * 256 + (crc >>> 16 & 0xff)]! ^ TABLES[4 * 256 + (crc >>> 24)]! ^
      TABLES[3 * 256 + bytes[index + 4]!]! ^ TABLES[2 * 256 + bytes[index + 5]!]! ^
      TABLES[256 + bytes[index + 6]!]! ^ TABLES[bytes[index + 7]!]!;
  }
  for (; index < end; index++) crc = TABLES[(crc ^ bytes[index]!) & 0xff]! ^ crc >>> 8;
  return ~crc >>> 0;
}

/** Table k advances a byte by k more zero bytes. */
function makeTables(): Int32Array {
  const tables = new Int32Array(8 * 256);
  for (let byte = 0; byte < 256; byte++) {
    let crc = byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >>> 1 ^ POLYNOMIAL : crc >>> 1;
    tables[byte] = crc;
  }
  for (let index = 256; index < tables.length; index++) {
    const before = tables[index - 256]!;
    tables[index] = before >>> 8 ^ tables[before & 0xff]!;
  }
  return tables;
}
