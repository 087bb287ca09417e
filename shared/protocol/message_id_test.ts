import assert from "node:assert/strict";
import fc from "fast-check";
import { utf8Bytes, utf8Text } from "./bytes.ts";
import {
  messageIdText,
  NODE_ID_MAX,
  parseMessageId,
  SEQUENCE_MAX,
  splitMessageId,
  writeMessageId,
} from "./message_id.ts";

const nodeIds = fc.integer({ min: 0, max: NODE_ID_MAX });
const sequences = fc.oneof(
  fc.maxSafeInteger().map((value) => Math.abs(value) % 2 ** 48),
  fc.integer({ min: 0, max: 2 ** 25 }),
  fc.integer({ min: 0, max: 1000 }).map((value) => SEQUENCE_MAX - value),
);

Deno.test("an id is the node and the sequence in 16 lowercase hex characters", () => {
  assert.equal(messageIdText(0, 0), "0000000000000000");
  assert.equal(messageIdText(0x3ff, 1), "03ff000000000001");
  assert.equal(messageIdText(NODE_ID_MAX, SEQUENCE_MAX), "ffffffffffffffff");
  assert.equal(messageIdText(0x18ae, 0x0b90ab269000), "18ae0b90ab269000");
});

Deno.test("an id comes back from its bytes and its text, whatever stands around it", () => {
  fc.assert(fc.property(nodeIds, sequences, (nodeId, sequence) => {
    const buffer = new Uint8Array(20).fill(0x2a);
    writeMessageId(buffer, 2, nodeId, sequence);
    assert.equal(parseMessageId(buffer, 2, nodeId), sequence);
    assert.equal(utf8Text(buffer), `**${messageIdText(nodeId, sequence)}**`);
    assert.deepEqual(splitMessageId(messageIdText(nodeId, sequence)), { nodeId, sequence });
  }));
});

Deno.test("parseMessageId() gives -1 for the id of another node", () => {
  assert.equal(parseMessageId(utf8Bytes("0001000000000005"), 0, 1), 5);
  assert.equal(parseMessageId(utf8Bytes("0001000000000005"), 0, 2), -1);
});

Deno.test("parseMessageId() gives -1 when any of the 16 bytes is not lowercase hex", () => {
  for (const nodeId of [0, 0x8000, 0x0800, 0xffff]) {
    for (let index = 0; index < 16; index++) {
      for (const byte of [0x00, 0x20, 0x2f, 0x3a, 0x41, 0x46, 0x60, 0x67, 0x80, 0xff]) {
        const bytes = utf8Bytes(messageIdText(nodeId, 0x888888888888));
        bytes[index] = byte;
        assert.equal(parseMessageId(bytes, 0, nodeId), -1, `${nodeId} ${index} ${byte}`);
      }
    }
  }
});

Deno.test("splitMessageId() refuses what is not an id", () => {
  for (const text of ["", "0".repeat(15), "0".repeat(17), "000000000000000G", "000000000000000A"]) {
    assert.equal(splitMessageId(text), undefined, text);
  }
});
