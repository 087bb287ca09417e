/** Answers of authorization services, good, hostile and random. */
import { deepStrictEqual as equal, ok, throws } from "node:assert/strict";
import { SeededRandom } from "../testing/mod.ts";
import { AuthReplyError, parseAuthReply, TTL_SECONDS_MAX } from "./auth_reply.ts";
import { GRANT_PATTERNS_MAX, GRANTS_MAX } from "./grants.ts";

function parse(document: unknown) {
  const text = typeof document === "string" ? document : JSON.stringify(document);
  return parseAuthReply(new TextEncoder().encode(text));
}

function entry(topic: unknown, channels: unknown, permissions: unknown) {
  return { topic, channels, permissions };
}

const ENTRY = entry("t", ["c"], ["subscribe"]);

Deno.test("parseAuthReply() reads what nsqd reads", () => {
  const { grants, ttlMs, unsupported } = parse({
    ttl: 5,
    identity: "joe",
    identity_url: "http://x/",
    authorizations: [
      entry("^a$", [".*"], ["subscribe", "publish"]),
      entry("^b$", ["^c$"], ["subscribe"]),
      entry("^d$", null, null),
    ],
    unknown: [1, { a: null }],
  });
  equal([grants.identity, grants.identityUrl, grants.count, ttlMs], ["joe", "http://x/", 3, 5000]);
  equal(unsupported.size, 0);
  equal(
    [
      grants.allows("consume", "a", "x"),
      grants.allows("publish", "a", ""),
      grants.allows("consume", "b", "c"),
      grants.allows("consume", "b", "d"),
      grants.allows("publish", "b", ""),
      grants.allows("consume", "d", "x"),
      grants.allows("read", "a", ""),
      grants.allows("admin", "a", ""),
    ],
    [true, true, true, false, false, false, false, false],
  );
});

Deno.test("parseAuthReply() takes missing fields as empty and field names of any case", () => {
  equal(parse({ ttl: 1 }).grants.count, 0);
  equal(parse({ ttl: 1, authorizations: null, identity: null }).grants.identity, "");
  const { grants } = parse({
    TTL: 1,
    Identity: "joe",
    Authorizations: [{ Topic: "t", Channels: [".*"], Permissions: ["publish"] }],
  });
  equal([grants.identity, grants.allows("publish", "t", "")], ["joe", true]);
  equal(parse({ ttl: 1, authorizations: [null, {}] }).grants.count, 2);
  equal(parse({ ttl: 1, authorizations: [{}] }).grants.allows("publish", "", ""), false);
});

Deno.test("parseAuthReply() takes read and admin, which nsqd does not know", () => {
  const { grants } = parse({ ttl: 1, authorizations: [entry(".*", [".*"], ["read", "admin"])] });
  equal([grants.allows("read", "", ""), grants.allows("admin", "t", "c")], [true, true]);
});

Deno.test("parseAuthReply() refuses what nsqd refuses, and what is too much", () => {
  const rows: readonly unknown[] = [
    "",
    "null",
    "[]",
    '"text"',
    "1",
    "not JSON",
    '{"ttl":1',
    "[".repeat(500_000),
    '{"ttl":1,"authorizations":' + "[".repeat(200_000) + "]".repeat(200_000) + "}",
    '{"a":'.repeat(100_000),
    {},
    { ttl: 0 },
    { ttl: -1 },
    { ttl: 1.5 },
    { ttl: "1" },
    { ttl: 1, identity: 7 },
    { ttl: 1, identity: "x".repeat(1025) },
    { ttl: 1, authorizations: {} },
    { ttl: 1, authorizations: [7] },
    { ttl: 1, authorizations: [[]] },
    { ttl: 1, authorizations: [entry(7, [], [])] },
    { ttl: 1, authorizations: [entry("t", "c", [])] },
    { ttl: 1, authorizations: [entry("t", [7], [])] },
    { ttl: 1, authorizations: [entry("t", [], ["own"])] },
    { ttl: 1, authorizations: [entry("t", [], ["constructor"])] },
    { ttl: 1, authorizations: [entry("(", [], ["publish"])] },
    { ttl: 1, authorizations: [entry("t", ["*"], ["publish"])] },
    { ttl: 1, authorizations: Array(GRANTS_MAX + 1).fill(ENTRY) },
    { ttl: 1, authorizations: [entry("t", Array(GRANT_PATTERNS_MAX).fill("c"), [])] },
    {
      ttl: 1,
      authorizations: Array.from(
        { length: 20 },
        (_, at) => entry(`(a{1000}){1}${at}`, [`b{999}${at}`], []),
      ),
    },
  ];
  for (const row of rows) throws(() => parse(row), AuthReplyError, String(row).slice(0, 60));
  equal(parse({ ttl: 1, authorizations: Array(GRANTS_MAX).fill(ENTRY) }).grants.count, GRANTS_MAX);
});

Deno.test("parseAuthReply() believes no answer for longer than a bound", () => {
  equal(parse({ ttl: 1e15 }).ttlMs, TTL_SECONDS_MAX * 1000);
});

Deno.test("a pattern that only Go understands allows nothing, and the others go on", () => {
  const { grants, unsupported } = parse({
    ttl: 1,
    authorizations: [entry("^\\pL+$", [".*"], ["publish"]), entry("^b$", [".*"], ["publish"])],
  });
  equal([...unsupported.keys()], ["^\\pL+$"]);
  equal([grants.count, grants.allows("publish", "a", "")], [2, false]);
  equal(grants.allows("publish", "b", ""), true);
});

Deno.test("parseAuthReply() reads or refuses any answer", () => {
  const seed = Deno.env.get("SLUICE_SEED") ?? crypto.randomUUID();
  const random = new SeededRandom(seed);
  const value = (depth: number): unknown => {
    switch (random.below(depth > 0 ? 8 : 5)) {
      case 0:
        return null;
      case 1:
        return random.pick([0, 1, -1, 1.5, 1e300, true, false]);
      case 2:
        return random.pick(["", "publish", "subscribe", "admin", "^t$", ".*", "(", "\\pL", "t"]);
      case 3:
        return random.pick([[], {}]);
      case 4:
        return [random.pick(["publish", "subscribe", ".*", 7])];
      case 5:
        return Array.from({ length: random.below(4) }, () => value(depth - 1));
      default:
        return object(depth - 1);
    }
  };
  const names = ["ttl", "TTL", "identity", "authorizations", "topic", "channels", "permissions"];
  const object = (depth: number): unknown => {
    const fields = Array.from(
      { length: random.below(5) },
      () => [random.pick(names), value(depth)],
    );
    return Object.fromEntries(fields);
  };
  let read = 0;
  for (let round = 0; round < 5000; round++) {
    const whole = {
      ttl: random.chance(0.8) ? 1 : value(1),
      authorizations: random.chance(0.5) ? value(3) : [object(2), object(2)],
      identity: random.chance(0.9) ? "joe" : value(1),
    };
    let text = JSON.stringify(random.chance(0.9) ? whole : value(4));
    if (random.chance(0.1)) text = text.slice(0, random.below(text.length + 1));
    try {
      parse(text).grants.allows("publish", "t", "");
      read++;
    } catch (error) {
      ok(error instanceof AuthReplyError, `seed ${seed}: ${text}: ${error}`);
    }
  }
  ok(read > 300 && read < 4900, `${read} of 5000 are read, seed ${seed}`);
});
