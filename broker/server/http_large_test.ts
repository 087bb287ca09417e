/** Large bodies over HTTP, asked without a socket. */
import { deepStrictEqual as equal } from "node:assert/strict";
import { encodeMpubBody, encodeSub, utf8Bytes } from "@sluice/shared/protocol";
import { settle } from "@sluice/shared/testing";
import { HttpPublisher } from "./http_publish.ts";
import { World, type WorldOptions } from "./world_test.ts";

/** Parts of 4 KiB; bodies above 1000 bytes are large. */
const OPTIONS: WorldOptions = { storage: { largeBodyBytes: 1000 } };
const MESSAGE_BYTES_MAX = 100_000;

interface HttpWorld {
  readonly world: World;
  readonly publisher: HttpPublisher;
}

function http(
  promise: string,
  test: (world: HttpWorld) => Promise<void>,
  options: WorldOptions = {},
): void {
  Deno.test(promise, () =>
    World.use({ ...OPTIONS, ...options }, (world) =>
      test({
        world,
        publisher: new HttpPublisher(world.broker, {
          messageBytesMax: MESSAGE_BYTES_MAX,
          bodyBytesMax: 2 * MESSAGE_BYTES_MAX,
          deferMsMax: 3_600_000,
          maxDeflateLevel: 6,
          bodyTimeoutMs: 60_000,
        }),
      })));
}

/** A body whose pieces come when they are sent. */
class SlowBody {
  readonly stream: ReadableStream<Uint8Array<ArrayBuffer>>;
  cancelled = false;
  #controller!: ReadableStreamDefaultController<Uint8Array<ArrayBuffer>>;

  constructor() {
    this.stream = new ReadableStream({
      start: (controller) => {
        this.#controller = controller;
      },
      cancel: () => {
        this.cancelled = true;
      },
    });
  }

  async send(text: string): Promise<void> {
    this.#controller.enqueue(new Uint8Array(utf8Bytes(text)));
    await settle();
  }

  async end(): Promise<void> {
    this.#controller.close();
    await settle();
  }

  async break(): Promise<void> {
    this.#controller.error(new Error("the peer is gone"));
    await settle();
  }
}

function request(query: string, body: BodyInit, bytes?: number): Request {
  return new Request(`http://127.0.0.1:4151/pub?${query}`, {
    method: "POST",
    body,
    headers: bytes === undefined ? {} : { "Content-Length": String(bytes) },
  });
}

async function answer(response: Promise<Response>): Promise<[number, string]> {
  const { status, body } = await response;
  return [status, await new Response(body).text()];
}

function refused(status: number, code: string): [number, string] {
  return [status, JSON.stringify({ message: code })];
}

function bodyOf(bytes: number): string {
  let text = "";
  for (let at = 0; text.length < bytes; at++) text += `${at};`;
  return text.slice(0, bytes);
}

async function messages(world: World, topic: string): Promise<string[]> {
  const consumer = await world.client(encodeSub(topic, "c"), "RDY 10\n");
  for (let round = 0; round < 10; round++) await settle();
  return consumer.take().slice(1);
}

// Failures ---------------------------------------------------------------------------------------

http(
  "a large body that breaks off is no message: 408, and nothing is held",
  async ({ world, publisher }) => {
    const body = new SlowBody();
    const answering = answer(publisher.publish(request("topic=t", body.stream, 50_000)));
    await body.send(bodyOf(20_000));
    equal(world.broker.uploads.size, 1);
    await body.break();
    equal(await answering, refused(408, "BODY_INCOMPLETE"));
    equal([world.broker.uploads.size, world.broker.topics.size], [0, 0]);
  },
);

http(
  "a large body that stalls is given up after a minute without a part",
  async ({ world, publisher }) => {
    const body = new SlowBody();
    const answering = answer(publisher.publish(request("topic=t", body.stream, 50_000)));
    await body.send(bodyOf(5000));
    await world.clock.run(50_000);
    await body.send(bodyOf(5000));
    await world.clock.run(50_000);
    equal(world.broker.uploads.size, 1, "a part was completed within the minute");
    await world.clock.run(12_000);
    equal(await answering, refused(408, "BODY_INCOMPLETE"));
    equal([world.broker.uploads.size, body.cancelled], [0, true]);
  },
);

http(
  "a body without a length is refused as soon as it is above the limit",
  async ({ world, publisher }) => {
    const body = new SlowBody();
    const answering = answer(publisher.publish(request("topic=t", body.stream)));
    await body.send(bodyOf(MESSAGE_BYTES_MAX));
    await body.send("x");
    equal(await answering, refused(413, "MSG_TOO_BIG"));
    equal([world.broker.uploads.size, world.broker.topics.size], [0, 0]);
  },
);

http(
  "a large body with a wrong argument is refused before it is read",
  async ({ world, publisher }) => {
    const rows: [query: string, status: number, code: string][] = [
      ["", 400, "MISSING_ARG_TOPIC"],
      ["topic=$", 400, "INVALID_TOPIC"],
      ["topic=t&defer=x", 400, "INVALID_DEFER"],
    ];
    for (const [query, status, code] of rows) {
      const body = new SlowBody();
      const answering = answer(publisher.publish(request(query, body.stream, 5000)));
      equal(await answering, refused(status, code));
      await settle();
      equal(body.cancelled, true);
    }
    equal(world.broker.topics.size, 0);
    const tooLarge = publisher.publish(request("topic=t", bodyOf(5), MESSAGE_BYTES_MAX + 1));
    equal(await answer(tooLarge), refused(413, "MSG_TOO_BIG"));
  },
);

http("without memory for a part a large body gets 429", async ({ world, publisher }) => {
  const bodies = [new SlowBody(), new SlowBody()];
  const answers = bodies.map((body) =>
    answer(publisher.publish(request("topic=t", body.stream, 50_000)))
  );
  for (const body of bodies) await body.send(bodyOf(10_000));
  const third = publisher.publish(request("topic=t", bodyOf(5000), 5000));
  equal(await answer(third), refused(429, "TOO_MANY_BYTES"));
  for (const body of bodies) await body.break();
  equal((await Promise.all(answers)).map(([status]) => status), [408, 408]);
  equal(world.broker.stagedBytes, 0);
}, { broker: { publishBytesMax: 8192 } });

// Promises ---------------------------------------------------------------------------------------

http(
  "bodies of every size are published, with and without a length",
  async ({ world, publisher }) => {
    const sizes = [1, 999, 1000, 1001, 4096, 4097, 60_000];
    for (const size of sizes) {
      const body = bodyOf(size);
      equal(await answer(publisher.publish(request(`topic=a${size}`, body, size))), [200, "OK"]);
      const slow = new SlowBody();
      const answering = answer(publisher.publish(request(`topic=b${size}`, slow.stream)));
      for (let at = 0; at < size; at += 700) await slow.send(body.slice(at, at + 700));
      await slow.end();
      equal(await answering, [200, "OK"]);
      for (const topic of ["a", "b"]) {
        equal(await messages(world, `${topic}${size}`), [`${body} #1`], `${topic}${size}`);
      }
    }
    equal(world.broker.storage.large.counters.published, 8);
    const empty = new SlowBody();
    const answering = answer(publisher.publish(request("topic=t", empty.stream)));
    await empty.end();
    equal(await answering, refused(400, "MSG_EMPTY"));
  },
);

http("a deferred large body is due from its last byte on", async ({ world, publisher }) => {
  const body = bodyOf(9000);
  equal(await answer(publisher.publish(request("topic=t&defer=5000", body, 9000))), [200, "OK"]);
  const consumer = await world.client(encodeSub("t", "c"), "RDY 10\n");
  equal(consumer.take(), ["OK"]);
  await world.clock.run(5001);
  for (let round = 0; round < 10; round++) await settle();
  equal(consumer.take(), [`${body} #1`]);
});

http("mpub stores what is large in it in parts, text and binary", async ({ world, publisher }) => {
  const bodies = ["a", bodyOf(50_000), "b"];
  const text = request("topic=text", bodies.join("\n"), bodies.join("\n").length);
  equal(await answer(publisher.publishMany(text)), [200, "OK"]);
  equal(await messages(world, "text"), bodies.map((body) => `${body} #1`));
  const content = new Uint8Array(encodeMpubBody(bodies.map(utf8Bytes)));
  const binary = request("topic=binary&binary=true", content, content.length);
  equal(await answer(publisher.publishMany(binary)), [200, "OK"]);
  equal(await messages(world, "binary"), bodies.map((body) => `${body} #1`));
  equal(world.broker.storage.large.counters.published, 2);
}, { broker: { publishBytesMax: 1 << 20 } });
