/** AUTH over TCP as in contract section 1.12, and what is ours beyond it. */
import { deepStrictEqual as equal, match, ok } from "node:assert/strict";
import {
  AuthorizationUnavailable,
  Authorizer,
  type Credentials,
  Grants,
  GRANTS_BYTES_MAX,
  Pattern,
  type Scope,
  SECRET_BYTES_MAX,
} from "@sluice/shared/authorization";
import {
  CommandDecoder,
  CommandEvent,
  encodeAuth,
  encodeIdentify,
  encodeMpub,
  ProtocolError,
  utf8Bytes,
  Verb,
} from "@sluice/shared/protocol";
import { secret } from "@sluice/shared/telemetry";
import { settle, SimClock } from "@sluice/shared/testing";
import {
  CLEAR,
  GRACE_MS,
  Handshakes,
  SessionAccess,
  type SessionPeer,
} from "@sluice/shared/server";
import { clientStats } from "./stats.ts";
import { type Client, int32, pub, sized, World, type WorldOptions } from "./world_test.ts";

const REFUSED = "E_UNAUTHORIZED AUTH no authorizations found";

/** A source whose answers a test sets, and may hold back. */
class FakeSource {
  takesCertificates = false;
  readonly asked: Credentials[] = [];
  grants: Grants | null = new Grants("", "", []);
  validMs = 60_000;
  isAvailable = true;
  #held: Promise<void> | null = null;

  hold(): () => void {
    let release = () => {};
    this.#held = new Promise((resolve) => release = resolve);
    return () => {
      this.#held = null;
      release();
    };
  }

  async authorize(credentials: Credentials) {
    this.asked.push(credentials);
    await this.#held;
    if (!this.isAvailable) throw new AuthorizationUnavailable("it is away");
    return this.grants === null ? null : { grants: this.grants, validMs: this.validMs };
  }
}

function grantsOf(
  ...grants: readonly (readonly [scopes: string, topic: string, ...channels: string[]])[]
): Grants {
  return new Grants(
    "joe",
    "http://x/",
    grants.map(([scopes, topic, ...channels]) => ({
      scopes: scopes.split(" ") as Scope[],
      topics: [Pattern.regexp(topic)],
      channels: channels.map((channel) => Pattern.regexp(channel)),
    })),
  );
}

interface Stage {
  readonly world: World;
  readonly source: FakeSource;
  readonly authorizer: Authorizer;
}

/** A world whose clients need authorization. */
function stage(
  promise: string,
  test: (stage: Stage) => Promise<void>,
  { rechecks = true, ...options }: WorldOptions & { rechecks?: boolean } = {},
): void {
  Deno.test(promise, async () => {
    const source = new FakeSource();
    const authorizer = new Authorizer([source]);
    const session = { ...options.session, authorization: { authorizer, rechecks } };
    await World.use(
      { ...options, session },
      (world) => test({ world, source, authorizer }),
    );
    equal(authorizer.heldBytes, 0, "all grants are given back");
  });
}

function auth(secret: string): Uint8Array {
  return encodeAuth(utf8Bytes(secret));
}

const ALL = grantsOf(["consume publish", ".*", ".*"]);
const REPLY = '{"identity":"joe","identity_url":"http://x/","permission_count":1}';

stage("AUTH answers identity and the number of authorizations", async ({ world, source }) => {
  source.grants = grantsOf(["consume", "a", "b"], ["publish", "c", ".*"], ["consume", "d"]);
  const client = await world.client(auth("opensesame"));
  equal(client.take(), ['{"identity":"joe","identity_url":"http://x/","permission_count":3}']);
  const [asked] = source.asked;
  equal(new TextDecoder().decode(asked?.secret?.reveal()), "opensesame");
  match(asked?.remoteIp ?? "", /^[\w.]+$/);
  equal([asked?.isTls, asked?.commonName], [false, ""]);
});

stage("AUTH has nsqd's error for everything that can be wrong", async ({ world, source }) => {
  const refusals: readonly (readonly [readonly (string | Uint8Array)[], readonly string[]])[] = [
    [["AUTH x\n"], ["E_INVALID AUTH invalid number of parameters"]],
    [["AUTH\n", int32(0)], ["E_BAD_BODY AUTH invalid body size 0"]],
    [["AUTH\n", int32(5001)], ["E_BAD_BODY AUTH body too big 5001 > 5000"]],
    [[auth("x")], [REFUSED]],
  ];
  for (const [sent, frames] of refusals) {
    equal((await world.client(...sent)).take(), [...frames, "end"]);
  }
  source.isAvailable = false;
  equal((await world.client(auth("x"))).take(), ["E_AUTH_FAILED AUTH failed", "end"]);
  source.isAvailable = true;
  source.grants = ALL;
  equal((await world.client(auth("x"), auth("x"))).take(), [
    REPLY,
    "E_INVALID AUTH already set",
    "end",
  ]);
  equal((await world.client(auth("x"), "SUB t c\n", auth("x"))).take(), [
    REPLY,
    "OK",
    "E_INVALID cannot AUTH in current state",
    "end",
  ]);
});

stage("commands before AUTH are refused by name, in nsqd's order of checks", async ({ world }) => {
  const rows: readonly (readonly [string | Uint8Array, string])[] = [
    ["SUB t c\n", "E_AUTH_FIRST AUTH required before SUB"],
    ["SUB t$ c\n", 'E_BAD_TOPIC SUB topic name "t$" is not valid'],
    ["SUB t c$\n", 'E_BAD_CHANNEL SUB channel name "c$" is not valid'],
    [pub("t", "a"), "E_AUTH_FIRST AUTH required before PUB"],
    ["PUB t$\n", 'E_BAD_TOPIC PUB topic name "t$" is not valid'],
    [sized("DPUB t 5\n", utf8Bytes("a")), "E_AUTH_FIRST AUTH required before DPUB"],
    // MPUB is authorized before its body, the others after.
    ["MPUB t\n", "E_AUTH_FIRST AUTH required before MPUB"],
    ["PUB t\n" + "\0\0\0\0", "E_BAD_MESSAGE PUB invalid message body size 0"],
  ];
  for (const [sent, text] of rows) equal((await world.client(sent)).take(), [text, "end"]);
  equal(world.broker.topics.size, 0);
});

stage("nothing of a large message gets to the log before it is authorized", async (stage) => {
  const { world, source } = stage;
  source.grants = grantsOf(["publish", "^t$", ".*"]);
  const large = (topic: string) => `PUB ${topic}\n\0\0\x01\x2c` + "x".repeat(200);
  for (
    const [sent, frames] of [
      [[large("t")], ["E_AUTH_FIRST AUTH required before PUB", "end"]],
      [[auth("x"), large("u")], [
        REPLY,
        'E_UNAUTHORIZED AUTH failed for PUB on "u" ""',
        "end",
      ]],
    ] as const
  ) equal((await world.client(...sent)).take(), frames);
  equal(world.broker.storage.large.counters.partBytes, 0);
  const allowed = await world.client(auth("x"), large("t"), "x".repeat(100));
  equal(allowed.take(), [REPLY, "OK"]);
  equal(world.broker.storage.large.counters.partBytes, 300);
}, { storage: { largeBodyBytes: 250 } });

stage("IDENTIFY, NOP and heartbeats need no AUTH", async ({ world }) => {
  const client = await world.client(encodeIdentify({ client_id: "a" }), "NOP\n");
  equal(client.take(), ["OK"]);
  await world.clock.run(30_000);
  equal(client.take(), ["_heartbeat_"]);
});

stage("each command is allowed or denied by topic, channel and permission", async (stage) => {
  const { world, source } = stage;
  source.grants = grantsOf(
    ["publish", "^pub$", ".*"],
    ["publish", "^named$", "^c$"],
    ["publish", "^none$"],
    ["consume", "^sub$", "^c$"],
    ["consume publish", "test", ""],
  );
  const rows: readonly (readonly [string | Uint8Array, string])[] = [
    [pub("pub", "a"), "OK"],
    [encodeMpub("pub", [utf8Bytes("a")]), "OK"],
    [sized("DPUB pub 0\n", utf8Bytes("a")), "OK"],
    [pub("pub2", "a"), 'E_UNAUTHORIZED AUTH failed for PUB on "pub2" ""'],
    [encodeMpub("zzz", [utf8Bytes("a")]), 'E_UNAUTHORIZED AUTH failed for MPUB on "zzz" ""'],
    [sized("DPUB zzz 0\n", utf8Bytes("a")), 'E_UNAUTHORIZED AUTH failed for DPUB on "zzz" ""'],
    // To publish, a channel pattern has to match nothing.
    [pub("named", "a"), 'E_UNAUTHORIZED AUTH failed for PUB on "named" ""'],
    [pub("none", "a"), 'E_UNAUTHORIZED AUTH failed for PUB on "none" ""'],
    [pub("sub", "a"), 'E_UNAUTHORIZED AUTH failed for PUB on "sub" ""'],
    // Patterns are not anchored.
    [pub("mytest2", "a"), "OK"],
    ["SUB mytest2 any\n", "OK"],
    ["SUB sub c\n", "OK"],
    ["SUB sub c2\n", 'E_UNAUTHORIZED AUTH failed for SUB on "sub" "c2"'],
    ["SUB pub c\n", 'E_UNAUTHORIZED AUTH failed for SUB on "pub" "c"'],
  ];
  for (const [sent, text] of rows) {
    const client = await world.client(auth("x"), sent);
    equal(client.take().slice(1), text === "OK" ? [text] : [text, "end"]);
  }
  equal([...world.broker.topics.keys()].sort(), ["mytest2", "pub", "sub"]);
});

stage("an AUTH under way holds back its own connection and no other", async ({ world, source }) => {
  source.grants = ALL;
  const other = await world.client(auth("x"));
  equal(other.take(), [REPLY]);
  const release = source.hold();
  const client = await world.client(auth("x"), pub("t", "a"), "SUB t c\n", "RDY 1\n");
  equal(client.take(), []);
  await other.send(pub("t", "b"));
  equal(other.take(), ["OK"]);
  equal(world.broker.topics.get("t")?.messageCount, 1);
  release();
  await settle();
  equal(client.take(), [REPLY, "OK", "OK", "b #1"]);
});

stage("a connection that closes during AUTH is forgotten, whatever comes of it", async (stage) => {
  const { world, source } = stage;
  source.grants = ALL;
  const release = source.hold();
  const client = await world.client(auth("x"));
  client.close();
  const kept = await world.client(auth("x"));
  await world.clock.run(120_000);
  release();
  await settle();
  equal(kept.take().filter((frame) => frame !== "_heartbeat_"), [REPLY]);
});

stage("a stop does not wait for an authorization that does not come", async ({ world, source }) => {
  const release = source.hold();
  await world.client(auth("x"));
  await world.clock.runUntil(world.server.close(), 2_000);
  release();
});

stage("grants that have expired are asked for again at the next command", async (stage) => {
  const { world, source } = stage;
  source.grants = grantsOf(["publish", ".*", ".*"]);
  source.validMs = 1000;
  const client = await world.client(auth("x"), pub("t", "a"));
  await world.clock.run(999);
  await client.send(pub("t", "b"));
  equal([client.take(), source.asked.length], [[REPLY, "OK", "OK"], 1]);
  await world.clock.run(1);
  await client.send(pub("t", "c"), pub("t", "d"));
  equal([client.take(), source.asked.length], [["OK", "OK"], 2]);
  source.grants = grantsOf(["publish", "^other$", ".*"]);
  await world.clock.run(1000);
  await client.send(pub("t", "e"));
  equal(client.take(), ['E_UNAUTHORIZED AUTH failed for PUB on "t" ""', "end"]);
  equal(world.broker.topics.get("t")?.messageCount, 4);
});

stage("an expired connection gets nsqd's error when its grants cannot be had", async (stage) => {
  const { world, source } = stage;
  source.grants = ALL;
  source.validMs = 1000;
  const [one, two] = [await world.client(auth("x")), await world.client(auth("x"))];
  one.take();
  two.take();
  await world.clock.run(1000);
  source.isAvailable = false;
  await one.send(encodeMpub("t", [utf8Bytes("a")]));
  equal(one.take(), ["E_AUTH_FAILED AUTH failed", "end"]);
  source.isAvailable = true;
  source.grants = new Grants("", "", []);
  await two.send("SUB t c\n");
  equal(two.take(), ['E_UNAUTHORIZED AUTH failed for SUB on "t" "c"', "end"]);
});

stage("grants that are valid for no time at all are good for one command", async (stage) => {
  const { world, source } = stage;
  source.grants = ALL;
  source.validMs = 0;
  const client = await world.client(auth("x"), pub("t", "a"), pub("t", "b"));
  equal([client.take(), source.asked.length], [[REPLY, "OK", "OK"], 3]);
});

async function subscribed({ world, source }: Stage, validMs: number): Promise<Client> {
  source.grants = ALL;
  source.validMs = validMs;
  const client = await world.client(
    encodeIdentify({ heartbeat_interval: 60_000 }),
    auth("x"),
    "SUB t c\n",
    "RDY 5\n",
    pub("t", "a"),
  );
  equal(client.take(), ["OK", REPLY, "OK", "OK", "a #1"]);
  return client;
}

stage("a live subscription whose grant is gone is closed", async (stage) => {
  const { world, source } = stage;
  const client = await subscribed(stage, 10_000);
  await world.clock.run(10_000);
  equal([client.take(), source.asked.length], [[], 2]);
  source.grants = grantsOf(["consume", "^other$", ".*"]);
  await world.clock.run(9_999);
  equal(client.take(), []);
  await world.clock.run(1);
  equal(client.take(), ['E_UNAUTHORIZED AUTH failed for SUB on "t" "c"', "end"]);
  await world.clock.run(2_000);
  equal(world.counts("t", "c"), [1, 0, 0]);
});

stage("a live subscription outlives an outage of the source, for a while", async (stage) => {
  const { world, source } = stage;
  const client = await subscribed(stage, 10_000);
  source.isAvailable = false;
  await world.clock.run(60_000);
  equal(client.take().includes("end"), false);
  source.isAvailable = true;
  await client.send("NOP\n");
  await world.clock.run(60_000);
  ok(!client.take().includes("end"));
  source.isAvailable = false;
  for (let passedMs = 0; passedMs < GRACE_MS + 20_000; passedMs += 30_000) {
    await client.send("NOP\n");
    await world.clock.run(30_000);
  }
  equal(client.take().slice(-2), ["E_AUTH_FAILED AUTH failed", "end"]);
});

stage(
  "without rechecks a live subscription stays, as with nsqd",
  async (stage) => {
    const client = await subscribed(stage, 1_000);
    stage.source.grants = new Grants("", "", []);
    await stage.world.clock.run(10_000);
    equal([client.take(), stage.source.asked.length], [[], 1]);
  },
  { rechecks: false },
);

stage("a secret that is too long is unknown, and nobody is asked", async (stage) => {
  const { world, source } = stage;
  source.grants = ALL;
  equal((await world.client(auth("x".repeat(SECRET_BYTES_MAX + 1)))).take(), [REFUSED, "end"]);
  equal(source.asked.length, 0);
}, { session: { bodyBytesMax: 20_000 } });

stage("grants beyond the memory for them are not available", async (stage) => {
  const { world, source, authorizer } = stage;
  source.grants = ALL;
  authorizer.heldBytes = GRANTS_BYTES_MAX;
  equal((await world.client(auth("x"))).take(), ["E_AUTH_FAILED AUTH failed", "end"]);
  authorizer.heldBytes = 0;
  equal((await world.client(auth("x"))).take(), [REPLY]);
});

stage("a verified certificate that a source knows needs no AUTH", async (stage) => {
  const { world, source, authorizer } = stage;
  const line = new CommandDecoder();
  line.feed(utf8Bytes("  V2PUB t\n"), 0, 10);
  while (line.next() !== CommandEvent.LINE);
  const peer = {
    remoteIp: "1.2.3.4",
    isTls: true,
    commonName: "shop",
    isCertificateVerified: true,
  };
  const check = async (peer: SessionPeer) => {
    const access = new SessionAccess(
      { authorizer, rechecks: true },
      world.clock,
      () => peer,
      () => {},
    );
    const first = access.checkPublish(Verb.PUB, line.line);
    await access.pending;
    const second = access.checkPublish(Verb.PUB, line.line);
    access.close();
    return [first, second].map((answer) => answer instanceof ProtocolError ? answer.code : answer);
  };
  source.grants = ALL;
  equal(await check(peer), ["E_AUTH_FIRST", "E_AUTH_FIRST"]);
  source.takesCertificates = true;
  equal(await check(peer), ["pending", null]);
  equal(source.asked, [{ ...peer, secret: null }]);
  equal(await check({ ...peer, isCertificateVerified: false }), ["E_AUTH_FIRST", "E_AUTH_FIRST"]);
  equal(await check({ ...peer, commonName: "" }), ["E_AUTH_FIRST", "E_AUTH_FIRST"]);
  source.grants = null;
  equal(await check(peer), ["pending", "E_AUTH_FIRST"]);
  source.isAvailable = false;
  equal(await check(peer), ["pending", "E_AUTH_FAILED"]);
});

for (const clientPolicy of ["require", "require-verify"] as const) {
  const settings = () => ({
    certificate: "",
    key: "",
    authorities: null,
    clientPolicy,
    versionMin: "TLSv1.2" as const,
  });
  stage(
    `the name in a certificate reaches the source, by policy ${clientPolicy}`,
    async (stage) => {
      const { world, source } = stage;
      source.grants = ALL;
      source.takesCertificates = true;
      const client = await world.client();
      const tlsState = { version: "TLS1.3", cipherSuite: "", commonName: "test.local" };
      for (const { connection } of world.server.sessions) {
        Object.defineProperty(connection, "tlsState", { value: tlsState });
      }
      await client.send(pub("t", "a"));
      // Anybody can make a certificate with any name: only one that was verified is enough.
      const isCertificateVerified = clientPolicy === "require-verify";
      const refusal = ["E_AUTH_FIRST AUTH required before PUB", "end"];
      equal(client.take(), isCertificateVerified ? ["OK"] : refusal);
      await world.client(auth("x"));
      equal(source.asked.slice(0, 1).map(({ remoteIp: _, ...shown }) => shown), [
        isCertificateVerified
          ? { secret: null, isTls: true, commonName: "test.local", isCertificateVerified }
          : { secret: secret(utf8Bytes("x")), ...CLEAR },
      ]);
    },
    { session: { tls: { settings, required: false, handshakes: new Handshakes(new SimClock()) } } },
  );
}

stage("a subscription that is lost to another error is not revoked on top", async (stage) => {
  const client = await subscribed(stage, 1_000);
  stage.source.grants = new Grants("", "", []);
  await client.send("RDY x\n");
  await stage.world.clock.run(1_500);
  equal(client.take(), ["E_INVALID RDY could not parse count x", "end"]);
});

stage("/stats tells who a client is once it is authorized", async ({ world, source }) => {
  source.grants = ALL;
  await world.client(auth("x"));
  await world.client();
  const [one, two] = [...world.server.sessions].map(clientStats);
  equal([one?.authed, one?.auth_identity, one?.auth_identity_url], [true, "joe", "http://x/"]);
  equal(Object.keys(two ?? {}).filter((key) => key.startsWith("auth")), []);
});
