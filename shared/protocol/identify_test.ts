import assert from "node:assert/strict";
import { concatBytes, utf8Bytes } from "./bytes.ts";
import { refusalOf } from "./decode_test_trace.ts";
import { ProtocolError } from "./error_code.ts";
import {
  CLIENT_TEXT_CHARACTERS_MAX,
  type ConnectionSettings,
  decodeIdentify,
  IDENTIFY_OPTIONS_DEFAULT,
  type IdentifyOptions,
  type IdentifyResult,
  negotiateIdentify,
} from "./identify.ts";

const OPTIONS: IdentifyOptions = { ...IDENTIFY_OPTIONS_DEFAULT, version: "1.3.0" };

function identify(
  json: string,
  options: Partial<IdentifyOptions> = {},
): IdentifyResult | ProtocolError {
  const request = decodeIdentify(utf8Bytes(json));
  if (request instanceof ProtocolError) return request;
  return negotiateIdentify(request, { ...OPTIONS, ...options });
}

function accepted(fields: Record<string, unknown>, options: Partial<IdentifyOptions> = {}): {
  settings: ConnectionSettings;
  reply: Record<string, unknown>;
} {
  const result = identify(JSON.stringify({ feature_negotiation: true, ...fields }), options);
  if (result instanceof ProtocolError) throw new Error(result.text);
  return { settings: result.settings, reply: JSON.parse(result.reply) };
}

Deno.test("a body that is not the right JSON is refused", () => {
  const bodies = [
    "",
    "{",
    "[]",
    '"x"',
    "1",
    "true",
    "\ufeff{}",
    "{} x",
    '{"client_id":1}',
    '{"hostname":true}',
    '{"user_agent":[]}',
    '{"topology_zone":{}}',
    '{"feature_negotiation":"true"}',
    '{"tls_v1":1}',
    '{"snappy":0}',
    '{"deflate":"x"}',
    '{"heartbeat_interval":1000.5}',
    '{"heartbeat_interval":"1000"}',
    '{"output_buffer_size":true}',
    '{"output_buffer_timeout":[1]}',
    '{"msg_timeout":1e30}',
    '{"deflate_level":0.1}',
    '{"sample_rate":2147483648}',
    '{"sample_rate":-2147483649}',
  ];
  for (const body of bodies) {
    assert.equal(refusalOf(identify(body)), "E_BAD_BODY IDENTIFY failed to decode JSON body", body);
  }
});

Deno.test("a deeply nested body is refused or ignored, and nothing breaks", () => {
  const depth = 200_000;
  identify("[".repeat(depth));
  identify(`{"unknown":${"[".repeat(depth)}${"]".repeat(depth)}}`);
});

Deno.test("a value out of range is refused with the exact text", () => {
  const cases: [string, string][] = [
    ['{"heartbeat_interval":-2}', "heartbeat interval (-2)"],
    ['{"heartbeat_interval":999}', "heartbeat interval (999)"],
    ['{"heartbeat_interval":60001}', "heartbeat interval (60001)"],
    ['{"output_buffer_timeout":-2}', "output buffer timeout (-2)"],
    ['{"output_buffer_timeout":24}', "output buffer timeout (24)"],
    ['{"output_buffer_timeout":30001}', "output buffer timeout (30001)"],
    ['{"output_buffer_size":-2}', "output buffer size (-2)"],
    ['{"output_buffer_size":63}', "output buffer size (63)"],
    ['{"output_buffer_size":65537}', "output buffer size (65537)"],
    ['{"sample_rate":-1}', "sample rate (-1)"],
    ['{"sample_rate":100}', "sample rate (100)"],
    ['{"msg_timeout":-1}', "msg timeout (-1)"],
    ['{"msg_timeout":999}', "msg timeout (999)"],
    ['{"msg_timeout":900001}', "msg timeout (900001)"],
  ];
  for (const [body, what] of cases) {
    assert.equal(refusalOf(identify(body)), `E_BAD_BODY IDENTIFY ${what} is invalid`, body);
  }
});

Deno.test("of several bad values the first in the documented order is named", () => {
  const fields: [string, string][] = [
    ["heartbeat_interval", "heartbeat interval"],
    ["output_buffer_timeout", "output buffer timeout"],
    ["output_buffer_size", "output buffer size"],
    ["sample_rate", "sample rate"],
    ["msg_timeout", "msg timeout"],
  ];
  for (let first = 0; first < fields.length; first++) {
    const bad = Object.fromEntries(fields.slice(first).map(([key]) => [key, -3]).reverse());
    const text = `E_BAD_BODY IDENTIFY ${fields[first]![1]} (-3) is invalid`;
    assert.equal(refusalOf(identify(JSON.stringify(bad))), text);
  }
});

Deno.test("the limits are the server's", () => {
  const options = { heartbeatIntervalMsMax: 300_000 };
  assert.equal(
    accepted({ heartbeat_interval: 300_000 }, options).settings.heartbeatIntervalMs,
    300_000,
  );
  assert.equal(
    refusalOf(identify('{"heartbeat_interval":300001}', options)),
    "E_BAD_BODY IDENTIFY heartbeat interval (300001) is invalid",
  );
});

Deno.test("snappy and deflate together are refused only when both could be had", () => {
  const both = { snappy: true, deflate: true };
  assert.equal(
    refusalOf(identify(JSON.stringify({ ...both, feature_negotiation: true }))),
    "E_IDENTIFY_FAILED cannot enable both deflate and snappy compression",
  );
  assert.equal(accepted(both, { snappy: false }).reply.deflate, true);
  assert.equal(accepted(both, { deflate: false }).reply.snappy, true);
  const plain = identify(JSON.stringify(both));
  assert.ok(!(plain instanceof ProtocolError));
  assert.equal(plain.reply, "OK");
});

Deno.test("the reply has the keys of the contract in their order", () => {
  const result = identify('{"feature_negotiation":true}');
  assert.ok(!(result instanceof ProtocolError));
  assert.equal(
    result.reply,
    '{"max_rdy_count":2500,"version":"1.3.0","max_msg_timeout":900000,"msg_timeout":60000,' +
      '"tls_v1":false,"deflate":false,"deflate_level":6,"max_deflate_level":6,"snappy":false,' +
      '"sample_rate":0,"auth_required":false,"output_buffer_size":16384,' +
      '"output_buffer_timeout":250,"topology_region":"","topology_zone":""}',
  );
});

Deno.test("without feature negotiation the reply is OK, settings count and nothing is upgraded", () => {
  const result = identify(
    '{"tls_v1":true,"snappy":true,"msg_timeout":5000,"sample_rate":10,"client_id":"me"}',
    { tls: true },
  );
  assert.ok(!(result instanceof ProtocolError));
  assert.equal(result.reply, "OK");
  const { tls, snappy, deflate, messageTimeoutMs, sampleRate, clientId } = result.settings;
  assert.deepEqual([tls, snappy, deflate], [false, false, false]);
  assert.deepEqual([messageTimeoutMs, sampleRate, clientId], [5000, 10, "me"]);
});

Deno.test("0, null, absent and unknown fields leave the defaults", () => {
  const expected = identify("{}");
  const zeros = { heartbeat_interval: 0, output_buffer_timeout: 0, output_buffer_size: 0 };
  const nulls = { client_id: null, snappy: null, msg_timeout: null, sample_rate: null };
  const unknown = { short_id: "x", long_id: [1], toString: 5, __proto__x: {} };
  for (const body of ["null", ...[zeros, nulls, unknown].map((each) => JSON.stringify(each))]) {
    assert.deepEqual(identify(body), expected, body);
  }
  assert.deepEqual(identify('{"__proto__":{"client_id":"x"}}'), expected);
  assert.ok(!(expected instanceof ProtocolError));
  assert.equal(expected.settings.heartbeatIntervalMs, 30_000);
});

Deno.test("-1 switches heartbeats, the timer or the buffer off", () => {
  assert.equal(accepted({ heartbeat_interval: -1 }).settings.heartbeatIntervalMs, 0);
  assert.equal(accepted({ output_buffer_timeout: -1 }).reply.output_buffer_timeout, 0);
  const { reply } = accepted({ output_buffer_size: -1, output_buffer_timeout: 100 });
  assert.equal(reply.output_buffer_size, 1);
  assert.equal(reply.output_buffer_timeout, 0);
});

Deno.test("values at both ends of their ranges are accepted and reported", () => {
  const ends: [string, number, number][] = [
    ["output_buffer_timeout", 25, 30_000],
    ["output_buffer_size", 64, 65_536],
    ["sample_rate", 1, 99],
    ["msg_timeout", 1000, 900_000],
  ];
  for (const [key, min, max] of ends) {
    for (const value of [min, max]) assert.equal(accepted({ [key]: value }).reply[key], value);
  }
  for (const value of [1000, 60_000]) {
    assert.equal(accepted({ heartbeat_interval: value }).settings.heartbeatIntervalMs, value);
  }
});

Deno.test("an upgrade needs the offer and the wish", () => {
  for (const offered of [false, true]) {
    for (const asked of [false, true]) {
      const { settings, reply } = accepted({ tls_v1: asked }, { tls: offered });
      assert.equal(reply.tls_v1, offered && asked);
      assert.equal(settings.tls, offered && asked);
      assert.equal(accepted({ snappy: asked }, { snappy: offered }).reply.snappy, offered && asked);
      assert.equal(
        accepted({ deflate: asked }, { deflate: offered }).reply.deflate,
        offered && asked,
      );
    }
  }
});

Deno.test("outcomes of publishes need the offer, the wish and feature negotiation", () => {
  for (const offered of [undefined, false, true]) {
    const options = offered === undefined ? {} : { outcomes: offered };
    for (const asked of [false, true]) {
      const { settings, reply } = accepted({ sluice_outcomes: asked }, options);
      const has = offered === true && asked;
      assert.deepEqual([settings.outcomes, "sluice_outcomes" in reply], [has, has]);
    }
  }
  const plain = identify('{"sluice_outcomes":true}', { outcomes: true });
  assert.ok(!(plain instanceof ProtocolError));
  assert.deepEqual([plain.settings.outcomes, plain.reply], [false, "OK"]);
});

Deno.test("the deflate level is 6 unless asked for, and never above the maximum", () => {
  const cases: [Record<string, unknown>, number, number][] = [
    [{}, 6, 6],
    [{ deflate: true }, 6, 6],
    [{ deflate: true, deflate_level: 0 }, 6, 6],
    [{ deflate: true, deflate_level: -4 }, 6, 6],
    [{ deflate: true, deflate_level: 3 }, 6, 3],
    [{ deflate: true, deflate_level: 9 }, 6, 6],
    [{ deflate: true, deflate_level: 9 }, 9, 9],
    [{ deflate: true }, 2, 2],
    [{ deflate_level: 3 }, 6, 6],
  ];
  for (const [fields, deflateLevelMax, level] of cases) {
    const { reply } = accepted(fields, { deflateLevelMax });
    assert.equal(reply.deflate_level, level, JSON.stringify(fields));
    assert.equal(reply.max_deflate_level, deflateLevelMax);
  }
});

Deno.test("the reply's topology is the server's, the settings' is the client's", () => {
  const { settings, reply } = accepted(
    { topology_region: "eu", topology_zone: "eu-1" },
    { topologyRegion: "us", topologyZone: "us-2", authRequired: true },
  );
  assert.deepEqual([settings.topologyRegion, settings.topologyZone], ["eu", "eu-1"]);
  assert.deepEqual([reply.topology_region, reply.topology_zone], ["us", "us-2"]);
  assert.equal(reply.auth_required, true);
});

Deno.test("texts about the client are cut to what a connection may keep", () => {
  const long = "é".repeat(CLIENT_TEXT_CHARACTERS_MAX + 1);
  const { settings } = accepted({ client_id: long, user_agent: long.slice(1) });
  assert.equal(settings.clientId, long.slice(1));
  assert.equal(settings.userAgent, long.slice(1));
});

Deno.test("decodeIdentify() reads its part of the buffer only, and replaces what is not UTF-8", () => {
  const body = concatBytes(utf8Bytes('xx{"client_id":"a'), Uint8Array.of(0xff), utf8Bytes('"}yy'));
  const request = decodeIdentify(body, 2, body.length - 2);
  assert.ok(!(request instanceof ProtocolError));
  assert.equal(request.clientId, "a\ufffd");
});
