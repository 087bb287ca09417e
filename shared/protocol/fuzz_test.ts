/**
 * Random and mutated command streams against the decoders: whatever the bytes and the cuts, the
 * events are the same and nothing throws. A failure names its seed; `SLUICE_SEED` runs it again.
 */
import assert from "node:assert/strict";
import { fuzzSeed, fuzzTime } from "../testing/mod.ts";
import { concatBytes, utf8Bytes } from "./bytes.ts";
import {
  checkFin,
  checkSub,
  checkTouch,
  encodeFin,
  encodeRdy,
  encodeReq,
  encodeSub,
  encodeTouch,
  parseRdy,
  parseReq,
} from "./consume_commands.ts";
import { lineOf, traceOf } from "./decode_test_trace.ts";
import { ProtocolError } from "./error_code.ts";
import { FrameDecoder, FrameEvent } from "./frame.ts";
import { decodeIdentify, IDENTIFY_OPTIONS_DEFAULT, negotiateIdentify } from "./identify.ts";
import { checkRegistration, decodeLookupIdentify } from "./lookup_protocol.ts";
import {
  checkMpub,
  checkPub,
  encodeDpub,
  encodeMpub,
  encodePub,
  encodeSmpub,
  encodeSpub,
  parseDpub,
  parseSequence,
  parseSpubDefer,
} from "./publish_commands.ts";
import { encodeAuth, encodeIdentify, MAGIC_V2, unknownCommand } from "./session_commands.ts";
import { Verb } from "./verb.ts";

const SEEDS = Deno.env.has("SLUICE_FUZZ_SECONDS")
  ? [seedNumber(fuzzSeed())]
  : [1, 2, 3, seedNumber(fuzzSeed())];
const CASES_PER_SEED = 1000;

interface Random {
  u32(): number;
}

function randomBelow(random: Random, bound: number): number {
  return random.u32() % bound;
}

/** xorshift32: enough for tests, and the same everywhere. */
function seeded(seed: number): Random {
  let state = (seed ^ 0x9e3779b9) >>> 0 || 1;
  return {
    u32() {
      state ^= state << 13;
      state ^= state >>> 17;
      state ^= state << 5;
      return state >>>= 0;
    },
  };
}

function seedNumber(text: string): number {
  return /^\d+$/.test(text) ? Number(text) : text.length;
}

function pick<T>(random: Random, list: readonly T[]): T {
  return list[randomBelow(random, list.length)]!;
}

function randomBytes(random: Random, bytesMax: number): Uint8Array {
  return Uint8Array.from({ length: randomBelow(random, bytesMax + 1) }, () => random.u32() & 0xff);
}

const ID = utf8Bytes("0001000000000005");
const WORDS = [
  "PUB",
  "MPUB",
  "DPUB",
  "SPUB",
  "SMPUB",
  "FIN",
  "SUB",
  "RDY",
  "IDENTIFY",
  "AUTH",
  "t",
  "c#ephemeral",
]
  .concat([
    "",
    " ",
    "\r",
    "0",
    "99999999999999999999",
    "-1",
    "0001000000000005",
    "é",
    "\0",
    "ASDF",
  ]);

function randomCommand(random: Random): Uint8Array {
  switch (randomBelow(random, 14)) {
    case 0:
      return encodeIdentify({ client_id: "x", snappy: randomBelow(random, 2) === 1 });
    case 1:
      return encodeAuth(randomBytes(random, 20));
    case 2:
      return encodeSub("topic", "channel");
    case 3:
      return encodeRdy(randomBelow(random, 3000));
    case 4:
      return encodeFin(ID);
    case 5:
      return encodeReq(ID, random.u32());
    case 6:
      return encodeTouch(ID);
    case 7:
      return encodePub("topic", randomBytes(random, 200));
    case 8: {
      const bodies = Array.from({ length: randomBelow(random, 5) }, () => randomBytes(random, 80));
      return encodeMpub("t", bodies);
    }
    case 9:
      return encodeDpub("t", randomBelow(random, 1000), randomBytes(random, 20));
    case 10:
      return encodeSpub("t", random.u32(), randomBytes(random, 200), randomBelow(random, 2));
    case 11: {
      const bodies = Array.from({ length: randomBelow(random, 5) }, () => randomBytes(random, 80));
      return encodeSmpub("t", random.u32(), bodies);
    }
    case 12:
      return utf8Bytes(
        Array.from({ length: randomBelow(random, 6) }, () => pick(random, WORDS)).join(" ") + "\n",
      );
    default:
      return randomBytes(random, 30);
  }
}

function randomStream(random: Random): Uint8Array {
  const commands = Array.from({ length: randomBelow(random, 8) }, () => randomCommand(random));
  const stream = concatBytes(MAGIC_V2, ...commands);
  for (let count = randomBelow(random, 4) - 1; count > 0; count--) {
    // Past the magic, or most streams would end there.
    const at = MAGIC_V2.length + randomBelow(random, stream.length);
    if (at < stream.length) stream[at] = pick(random, [0, 0x0a, 0x20, 0xff, random.u32() & 0xff]);
  }
  const whole = randomBelow(random, 3) > 0;
  return whole ? stream : stream.subarray(0, randomBelow(random, stream.length + 1));
}

function randomCuts(random: Random, bytes: number): number[] {
  const count = randomBelow(random, 10);
  return Array.from({ length: count }, () => randomBelow(random, bytes + 1)).sort((a, b) => a - b);
}

/** Runs `body` for all seeds, and names the seed and the case that failed. */
function fuzz(name: string, body: (random: Random) => void): void {
  Deno.test(name, () => {
    for (const seed of SEEDS) {
      const random = seeded(seed);
      const goesOn = fuzzTime(CASES_PER_SEED);
      for (let number = 0; goesOn(number); number++) {
        try {
          body(random);
        } catch (error) {
          throw new Error(`Failed with seed ${seed}, case ${number}`, { cause: error });
        }
      }
    }
  });
}

fuzz("the command decoder tells the same of any stream, however it is cut", (random) => {
  const stream = randomStream(random);
  const whole = traceOf(stream, []);
  assert.deepEqual(traceOf(stream, randomCuts(random, stream.length)), whole);
  assert.deepEqual(traceOf(stream, Array.from(stream, (_, index) => index)), whole);
});

fuzz("every check answers any line with a value", (random) => {
  const text = Array.from({ length: randomBelow(random, 6) }, () => pick(random, WORDS)).join(" ");
  const raw = randomBelow(random, 2) === 0 ? utf8Bytes(text) : randomBytes(random, 40);
  const line = lineOf(raw.filter((byte) => byte !== 0x0a), pick(random, ["V1", "V2"]));
  const refusals = [
    checkPub(line),
    checkMpub(line),
    parseDpub(line, 1000),
    parseSpubDefer(line, 1000),
    checkSub(line),
    parseRdy(line, 2500),
    checkFin(line),
    checkTouch(line),
    parseReq(line, 1000),
    checkRegistration(Verb.REGISTER, line),
    unknownCommand(line),
  ];
  const sequence = parseSequence(Verb.SPUB, line);
  const isSequence = typeof sequence === "number" && sequence >= 0 && sequence < 2 ** 53 - 1;
  assert.ok(isSequence || sequence instanceof ProtocolError);
  for (const refusal of refusals) {
    if (typeof refusal === "number") assert.ok(refusal >= 0 && refusal <= 2500);
    else assert.ok(refusal === undefined || refusal instanceof ProtocolError);
  }
});

fuzz("IDENTIFY answers any body with settings or a refusal", (random) => {
  const keys = ["client_id", "heartbeat_interval", "snappy", "sample_rate", "deflate_level", "x"]
    .concat("sluice_producer", "sluice_outcomes", "feature_negotiation");
  const values = [
    `"${"0f".repeat(16)}"`,
    "1",
    "-1",
    "0",
    "1e9",
    "0.5",
    '"x"',
    "true",
    "null",
    "[]",
    "{}",
    "60000",
  ];
  const count = randomBelow(random, 4);
  const fields = Array.from(
    { length: count },
    () => `"${pick(random, keys)}":${pick(random, values)}`,
  );
  const body = utf8Bytes(`{${fields.join(",")}}`);
  if (randomBelow(random, 3) === 0) body[randomBelow(random, body.length)] = random.u32() & 0xff;
  decodeLookupIdentify(body);
  const request = decodeIdentify(body);
  if (request instanceof ProtocolError) return;
  const result = negotiateIdentify(request, {
    ...IDENTIFY_OPTIONS_DEFAULT,
    version: "1",
    producers: randomBelow(random, 2) === 0,
  });
  assert.ok(result instanceof ProtocolError || result.reply.length > 0);
});

fuzz("the frame decoder tells the same of any bytes, however they are cut", (random) => {
  const stream = randomBytes(random, 120);
  for (
    let at = 0;
    at + 4 < stream.length && randomBelow(random, 4) > 0;
    at += 4 + stream[at + 3]!
  ) {
    stream.set([0, 0, 0, 4 + randomBelow(random, 30)], at);
  }
  const whole = framesOf(stream, []);
  assert.deepEqual(framesOf(stream, randomCuts(random, stream.length)), whole);
  assert.deepEqual(framesOf(stream, Array.from(stream, (_, index) => index)), whole);
});

function framesOf(stream: Uint8Array, cuts: readonly number[]): string[] {
  const decoder = new FrameDecoder(100);
  const seen: string[] = [];
  let start = 0;
  for (const end of [...cuts, stream.length]) {
    const chunk = stream.slice(start, end);
    decoder.feed(chunk);
    let event = decoder.next();
    for (; event === FrameEvent.FRAME; event = decoder.next()) {
      seen.push(`${decoder.type} ${decoder.buffer.subarray(decoder.start, decoder.end).join()}`);
    }
    if (event === FrameEvent.BAD_FRAME) return [...seen, "BAD_FRAME"];
    chunk.fill(0xee);
    start = end;
  }
  return [...seen, `END ${decoder.isBetweenFrames}`];
}
