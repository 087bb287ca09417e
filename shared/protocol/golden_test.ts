/** The bytes captured from real servers, both ways: what we send, and what we read from them. */
import assert from "node:assert/strict";
import { BlockEvent } from "./block_decoder.ts";
import { concatBytes, utf8Bytes } from "./bytes.ts";
import {
  encodeFin,
  encodeRdy,
  encodeReq,
  encodeSub,
  encodeTouch,
  messageFailed,
  MessageFailure,
} from "./consume_commands.ts";
import { hexBytes, lineOf, traceOf } from "./decode_test_trace.ts";
import type { ProtocolError } from "./error_code.ts";
import {
  CLOSE_WAIT_FRAME,
  encodeErrorFrame,
  encodeMessageFrame,
  FrameDecoder,
  FrameEvent,
  HEARTBEAT_FRAME,
  MESSAGE_BODY_OFFSET,
  MESSAGE_ID_OFFSET,
  OK_FRAME,
  readAttempts,
  readTimestampMs,
  writeTimestampMs,
} from "./frame.ts";
import {
  createLookupReplyDecoder,
  encodeLookupIdentifyReply,
  LOOKUP_OK_REPLY,
  lookupReplyText,
  MAGIC_V1,
  PING_COMMAND,
} from "./lookup_protocol.ts";
import { parseMessageId } from "./message_id.ts";
import { encodeDpub, encodeMpub, encodePub } from "./publish_commands.ts";
import {
  badProtocol,
  CLS_COMMAND,
  encodeIdentify,
  MAGIC_V2,
  NOP_COMMAND,
  wrongState,
} from "./session_commands.ts";
import { Verb } from "./verb.ts";

const ID = "18ae0b90ab269000";
const ID_BYTES = utf8Bytes(ID);
const ID_HEX = ID_BYTES.toHex();

const COMMANDS: [string, Uint8Array, string, string[]][] = [
  ["IDENTIFY", encodeIdentify({}), "4944454e544946590a000000027b7d", [
    'LINE IDENTIFY 0: "IDENTIFY"',
    "BODY_SIZE 2",
    'BODY 123,125 of IDENTIFY 0: "IDENTIFY"',
  ]],
  ["SUB", encodeSub("t", "c"), "535542207420630a", ['LINE SUB 2:[t][c] "SUB t c"']],
  ["RDY", encodeRdy(1), "52445920310a", ['LINE RDY 1:[1] "RDY 1"']],
  ["PUB", encodePub("t", utf8Bytes("hi")), "50554220740a000000026869", [
    'LINE PUB 1:[t] "PUB t"',
    "BODY_SIZE 2",
    'BODY 104,105 of PUB 1:[t] "PUB t"',
  ]],
  [
    "MPUB",
    encodeMpub("t", [utf8Bytes("a"), utf8Bytes("bb")]),
    "4d50554220740a0000000f000000020000000161000000026262",
    [
      'LINE MPUB 1:[t] "MPUB t"',
      "BODY_SIZE 15",
      'BODY 0,0,0,2,0,0,0,1,97,0,0,0,2,98,98 of MPUB 1:[t] "MPUB t"',
    ],
  ],
  ["DPUB", encodeDpub("t", 0, utf8Bytes("z")), "44505542207420300a000000017a", [
    'LINE DPUB 2:[t][0] "DPUB t 0"',
    "BODY_SIZE 1",
    'BODY 122 of DPUB 2:[t][0] "DPUB t 0"',
  ]],
  ["TOUCH", encodeTouch(ID_BYTES), `544f55434820${ID_HEX}0a`, [
    `LINE TOUCH 1:[${ID}] "TOUCH ${ID}"`,
  ]],
  ["REQ", encodeReq(ID_BYTES, 0), `52455120${ID_HEX}20300a`, [
    `LINE REQ 2:[${ID}][0] "REQ ${ID} 0"`,
  ]],
  ["FIN", encodeFin(ID_BYTES), `46494e20${ID_HEX}0a`, [`LINE FIN 1:[${ID}] "FIN ${ID}"`]],
  ["NOP", NOP_COMMAND, "4e4f500a", ['LINE NOP 0: "NOP"']],
  ["CLS", CLS_COMMAND, "434c530a", ['LINE CLS 0: "CLS"']],
];

for (const [name, encoded, hex, events] of COMMANDS) {
  Deno.test(`${name} is encoded and decoded as captured`, () => {
    assert.equal(encoded.toHex(), hex);
    const stream = concatBytes(hexBytes("20205632"), hexBytes(hex));
    assert.deepEqual(traceOf(stream, []), ["MAGIC", ...events, "END between_commands"]);
  });
}

Deno.test("the magics are two spaces and the version", () => {
  assert.deepEqual(MAGIC_V2, hexBytes("20 20 56 32"));
  assert.deepEqual(MAGIC_V1, hexBytes("20 20 56 31"));
});

Deno.test("OK, heartbeat and CLOSE_WAIT are the captured frames", () => {
  assert.deepEqual(OK_FRAME, hexBytes("00 00 00 06 00 00 00 00 4f 4b"));
  assert.deepEqual(
    HEARTBEAT_FRAME,
    hexBytes("00 00 00 0f 00 00 00 00 5f 68 65 61 72 74 62 65 61 74 5f"),
  );
  assert.deepEqual(
    CLOSE_WAIT_FRAME,
    hexBytes("00 00 00 0e 00 00 00 00 43 4c 4f 53 45 5f 57 41 49 54"),
  );
});

const MESSAGE = hexBytes(
  "00 00 00 20 00 00 00 02 18 ec cb b4 4f ca 08 70 00 01 " +
    "31 38 61 65 30 62 39 30 61 62 32 36 39 30 30 30 68 69",
);

Deno.test("the captured message is decoded into its parts", () => {
  const decoder = new FrameDecoder(1024);
  decoder.feed(MESSAGE);
  assert.equal(decoder.next(), FrameEvent.FRAME);
  const { buffer, start, end, type } = decoder;
  assert.equal(type, 2);
  assert.equal(readTimestampMs(buffer, start), Math.floor(0x18eccbb44fca0870 / 1e6));
  assert.equal(readAttempts(buffer, start), 1);
  assert.equal(parseMessageId(buffer, start + MESSAGE_ID_OFFSET, 0x18ae), 0x0b90ab269000);
  assert.deepEqual(buffer.subarray(start + MESSAGE_BODY_OFFSET, end), utf8Bytes("hi"));
});

Deno.test("a message is encoded with the captured layout, in whole milliseconds", () => {
  const timestampMs = readTimestampMs(MESSAGE, 8);
  const head = { timestampMs, attempts: 1, nodeId: 0x18ae, sequence: 0x0b90ab269000 };
  const expected = MESSAGE.slice();
  writeTimestampMs(expected, 8, timestampMs);
  assert.deepEqual(encodeMessageFrame(head, utf8Bytes("hi")), expected);
  assert.deepEqual(expected.subarray(0, 12), MESSAGE.subarray(0, 12));
});

Deno.test("errors are the captured frames", () => {
  const line = lineOf("FIN 18ae0b90ab669000");
  const cases: [ProtocolError, string, string][] = [
    [
      messageFailed(Verb.FIN, line, MessageFailure.NOT_IN_FLIGHT),
      "00 00 00 3d 00 00 00 01",
      "E_FIN_FAILED FIN 18ae0b90ab669000 failed ID not in flight",
    ],
    [
      wrongState(Verb.SUB),
      "00 00 00 29 00 00 00 01",
      "E_INVALID cannot SUB in current state",
    ],
    [badProtocol(), "00 00 00 12 00 00 00 01", "E_BAD_PROTOCOL"],
  ];
  for (const [error, header, text] of cases) {
    assert.deepEqual(encodeErrorFrame(error), concatBytes(hexBytes(header), utf8Bytes(text)));
  }
});

Deno.test("discovery answers PING and IDENTIFY as captured", () => {
  assert.equal(concatBytes(MAGIC_V1, PING_COMMAND).toHex(), "2020563150494e470a");
  assert.deepEqual(LOOKUP_OK_REPLY, hexBytes("00 00 00 02 4f 4b"));
  const text = '{"broadcast_address":"127.0.0.1","hostname":"vm","http_port":24161,' +
    '"tcp_port":24160,"version":"1.3.0"}';
  const reply = encodeLookupIdentifyReply({
    broadcastAddress: "127.0.0.1",
    hostname: "vm",
    httpPort: 24161,
    tcpPort: 24160,
    version: "1.3.0",
  });
  assert.deepEqual(reply, concatBytes(hexBytes("00 00 00 66"), utf8Bytes(text)));
  const decoder = createLookupReplyDecoder(1024);
  decoder.feed(reply);
  assert.equal(decoder.next(), BlockEvent.BLOCK);
  assert.equal(lookupReplyText(decoder), text);
});
