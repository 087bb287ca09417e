/**
 * nsqd and our broker side by side with one authorization service: the same conversations get the same
 * frames, and the service the same requests. Skipped, with the reason printed, without NSQ; see
 * peers.ts.
 */
import { deepEqual, ok } from "node:assert/strict";
import {
  encodeAuth,
  encodeDpub,
  encodeMpub,
  encodePub,
  encodeSub,
  FrameDecoder,
  FrameEvent,
  MAGIC_V2,
  utf8Bytes,
} from "@sluice/shared/protocol";
import { findPeers } from "./peers.ts";
import { HttpProcess, Service, TemporaryFolder } from "./process.ts";
import { int32, join } from "./raw_client.ts";
import { within } from "./wait.ts";

const peers = await findPeers();
if ("missing" in peers) console.log(`nsqd is not asked about AUTH: ${peers.missing}`);

function allow(topic: string, channels: readonly string[] | null, ...permissions: string[]) {
  return { topic, channels, permissions };
}

/** What the service says of a secret: a status, or a document. */
const ANSWERS: Readonly<Record<string, unknown>> = {
  good: {
    ttl: 1000,
    identity: "joe",
    identity_url: "http://x/",
    authorizations: [
      allow("^t", ["^c", "^$"], "publish", "subscribe"),
      allow("pubonly", ["^c$"], "publish"),
      allow("none", null, "publish"),
    ],
  },
  "sp ace&é/%~+": { ttl: 5, authorizations: [allow("", [""], "publish")] },
  OTHER_CASE: {
    TTL: 5,
    Authorizations: [{ Topic: "", Channels: [""], Permissions: ["publish"] }],
  },
  nothing: { ttl: 5 },
  no_ttl: { authorizations: [allow("", [""], "publish")] },
  text_ttl: { ttl: "5", authorizations: [] },
  half_ttl: { ttl: 5.5, authorizations: [] },
  permission: { ttl: 5, authorizations: [allow("t", ["c"], "own")] },
  pattern: { ttl: 5, authorizations: [allow("(", ["c"], "publish")] },
  lookahead: { ttl: 5, authorizations: [allow("t", ["(?=c)"], "publish")] },
  text: "text",
  forbidden: 403,
  broken: 500,
};

const BODY = utf8Bytes("x");

/** What is sent, each part once the one before is answered. */
function conversations(): readonly (readonly Uint8Array[])[] {
  const auth = (secret: string) => encodeAuth(utf8Bytes(secret));
  const publishes = (topic: string) => [
    encodePub(topic, BODY),
    encodeDpub(topic, 10, BODY),
    encodeMpub(topic, [BODY]),
  ];
  const alone = [
    ...publishes("t"),
    encodeSub("t", "c"),
    utf8Bytes("SUB t$ c\n"),
    utf8Bytes("PUB t$\n"),
    join(utf8Bytes("PUB t\n"), int32(0)),
    utf8Bytes("SUB t\n"),
    utf8Bytes("AUTH x\n"),
    join(utf8Bytes("AUTH\n"), int32(0)),
    join(utf8Bytes("AUTH\n"), int32(-1)),
    join(utf8Bytes("AUTH\n"), int32(6_000_000)),
  ];
  const afterGood = [
    auth("good"),
    ...["t1", "other", "pubonly", "none", "mytest"].flatMap(publishes),
    encodeSub("t1", "c1"),
    encodeSub("t1", "d"),
    encodeSub("pubonly", "c"),
    encodeSub("other", "c"),
  ];
  return [
    ...alone.map((part) => [part]),
    ...Object.keys(ANSWERS).map((secret) => [auth(secret), encodePub("q", BODY)]),
    [auth("unknown")],
    ...afterGood.map((part) => [auth("good"), part]),
    [auth("good"), encodeSub("t2", "c"), auth("good")],
    [auth("good"), encodeSub("t3", "c"), encodePub("t3", BODY), encodePub("other", BODY)],
  ];
}

/** The frames that come back, and `end` if the broker hangs up. */
async function talk(port: number, parts: readonly Uint8Array[]): Promise<string[]> {
  const connection = await Deno.connect({ hostname: "127.0.0.1", port });
  const decoder = new FrameDecoder(1 << 20);
  const buffer = new Uint8Array(65_536);
  const frames: string[] = [];
  try {
    for (const [index, part] of parts.entries()) {
      await connection.write(index === 0 ? join(MAGIC_V2, part) : part);
      while (decoder.next() !== FrameEvent.FRAME) {
        const bytes = await within("an answer", connection.read(buffer));
        if (bytes === null) return [...frames, "end"];
        decoder.feed(buffer, 0, bytes);
      }
      const { type, start, end } = decoder;
      frames.push(`${type} ${new TextDecoder().decode(decoder.buffer.subarray(start, end))}`);
      if (type === 1) {
        const more = await within("the end", connection.read(buffer).catch(() => null));
        return more === null ? [...frames, "end"] : frames;
      }
    }
    return frames;
  } finally {
    connection.close();
  }
}

Deno.test({
  name: "AUTH gets the frames of nsqd, and its service the same requests",
  // nsqd is not everywhere; the reason is printed above.
  ignore: "missing" in peers,
  fn: async () => {
    ok(!("missing" in peers));
    const nsqd = peers.paths.get("nsqd");
    ok(nsqd !== undefined);
    let requests: string[] = [];
    const server = Deno.serve(
      { hostname: "127.0.0.1", port: 0, onListen: () => {} },
      (request) => {
        const { pathname, search, searchParams } = new URL(request.url);
        requests.push(`${request.method} ${pathname}${search} ${request.headers.get("accept")}`);
        const said = ANSWERS[searchParams.get("secret") ?? ""] ?? 404;
        if (typeof said === "number") return new Response(null, { status: said });
        return Response.json(said);
      },
    );
    const flag = `--auth-http-address=127.0.0.1:${server.addr.port}`;
    await using folder = await TemporaryFolder.create();
    await using other = await TemporaryFolder.create();
    await using broker = await Service.broker(folder.path, [flag]);
    await using peer = new HttpProcess("nsqd", nsqd, [
      "--tcp-address=127.0.0.1:0",
      "--http-address=127.0.0.1:0",
      `--data-path=${other.path}`,
      flag,
    ]);
    await peer.ready();
    for (const parts of conversations()) {
      const asked: string[][] = [];
      const said: string[][] = [];
      for (const port of [peer.tcpPort, broker.tcpPort]) {
        requests = [];
        said.push(await talk(port, parts));
        asked.push(requests);
      }
      const shown = parts.map((part) => new TextDecoder().decode(part)).join(" then ");
      deepEqual(said[1], said[0], shown);
      // Where our broker asks once more than nsqd or less, a client would see it in the end.
      deepEqual(asked[1], asked[0], shown);
    }
    ok(conversations().length > 45);
    await server.shutdown();
  },
});
