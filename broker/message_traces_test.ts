import { deepStrictEqual as equal } from "node:assert/strict";
import { encodeSub } from "@sluice/shared/protocol";
import type { Span, TraceContext, Tracer } from "@sluice/shared/runtime";
import { SeededRandom, settle } from "@sluice/shared/testing";
import { messageTraces, TRACED_MAX } from "./message_traces.ts";
import { worldHttp } from "./server/http_world_test.ts";
import { pub, World, type WorldOptions } from "./server/world_test.ts";

const REMOTE = { traceId: "a".repeat(32), spanId: "b".repeat(16) };

/** Notes each span as `name parent outcome`, once it has ended. */
class NotedTracer implements Tracer {
  readonly ended: string[] = [];
  readonly attributes: Record<string, unknown>[] = [];
  openCount = 0;
  #count = 0;

  begin(name: string, kind: string, parent: TraceContext | null, attributes: object): Span {
    this.openCount++;
    const spanId = `${name}${++this.#count}`;
    this.attributes.push({ name, kind, ...attributes });
    const traceId = parent?.traceId ?? `trace of ${spanId}`;
    return {
      context: { traceId, spanId, isSampled: true },
      end: (outcome) => {
        this.openCount--;
        this.ended.push(`${spanId} < ${parent?.spanId ?? "-"} ${outcome["sluice.outcome"]}`);
      },
    };
  }

  take(): string[] {
    return this.ended.splice(0);
  }
}

async function traced(
  share: number,
  test: (world: World, tracer: NotedTracer) => Promise<void>,
  options: WorldOptions = {},
): Promise<void> {
  await World.use(options, async (world) => {
    const tracer = new NotedTracer();
    world.broker.traces = messageTraces(world.broker, tracer, new SeededRandom(1));
    world.broker.traces.share = share;
    await test(world, tracer);
  });
}

Deno.test("a message that is published, delivered and finished has three spans of one trace", async () => {
  await traced(1, async (world, tracer) => {
    const client = await world.client(encodeSub("t", "c"), "RDY 1\n");
    const release = world.disk.hold();
    await client.send(pub("t", "hello"));
    equal([tracer.openCount, tracer.take()], [1, []], "not before it is on disk");
    release();
    await settle();
    equal([tracer.openCount, tracer.take()], [1, ["publish1 < - confirmed"]]);
    await client.send(`FIN ${client.ids[0]}\n`);
    equal(tracer.take(), ["deliver2 < publish1 finished"]);
    await world.clock.run(20);
    equal([tracer.openCount, tracer.take()], [0, ["finish3 < deliver2 durable"]]);
    const id = client.ids[0];
    const known = {
      "messaging.system": "sluice",
      "messaging.destination.name": "t",
      "messaging.message.id": id,
    };
    const consumed = { ...known, "messaging.consumer.group.name": "c" };
    const size = { "messaging.message.body.size": 5 };
    equal(tracer.attributes, [
      { name: "publish", kind: "producer", ...known, ...size },
      { name: "deliver", kind: "consumer", ...consumed, ...size, "sluice.attempts": 1 },
      { name: "finish", kind: "internal", ...consumed },
    ]);
  });
});

Deno.test("each attempt has a span, which says how it ended", async () => {
  await traced(1, async (world, tracer) => {
    const client = await world.client(encodeSub("t", "c"), "RDY 1\n", pub("t", "a"));
    tracer.take();
    await client.send(`REQ ${client.ids[0]} 0\n`);
    equal(tracer.take(), ["deliver2 < publish1 requeued"]);
    await client.send(`TOUCH ${client.ids[0]}\n`);
    equal(tracer.take(), []);
    client.close();
    await settle();
    const other = await world.client(encodeSub("t", "c"), "RDY 1\n");
    equal(tracer.take(), ["deliver3 < publish1 redelivered"]);
    await other.send(`FIN ${client.ids[0]}\n`);
    await world.clock.run(20);
    equal(tracer.take(), ["deliver4 < publish1 finished", "finish5 < deliver4 durable"]);
  });
});

Deno.test("a publish over HTTP continues the trace of its request, if that is to be kept", async () => {
  await traced(Number.MIN_VALUE, async (world, tracer) => {
    const door = worldHttp(world);
    const publish = async (path: string, flags: string, body: string) => {
      const traceparent = `00-${REMOTE.traceId}-${REMOTE.spanId}-${flags}`;
      const request = new Request(`http://h${path}`, {
        method: "POST",
        headers: flags === "" ? {} : { traceparent },
        body,
      });
      equal((await world.clock.runUntil(Promise.resolve(door(request, "a:1")), 1000)).status, 200);
      return tracer.take();
    };
    equal(await publish("/pub?topic=t", "01", "a"), [`publish1 < ${REMOTE.spanId} confirmed`]);
    equal(await publish("/mpub?topic=t", "01", "a\nb"), [
      `publish2 < ${REMOTE.spanId} confirmed`,
      `publish3 < ${REMOTE.spanId} confirmed`,
    ]);
    equal(await publish("/pub?topic=t", "00", "a"), []);
    equal(await publish("/pub?topic=t", "", "a"), []);
    equal(await publish("/pub?topic=t", "zz", "a"), []);
  });
});

Deno.test("a share of all messages is traced, drawn at random", async () => {
  await traced(0.25, async (world, tracer) => {
    const client = await world.client();
    for (let at = 0; at < 400; at++) await client.send(pub("t", "a"));
    const count = tracer.take().length;
    equal(count > 60 && count < 140, true, `${count} of 400`);
  });
});

Deno.test("what is remembered of messages is bounded, and the oldest is forgotten", () => {
  const tracer = new NotedTracer();
  const log = { durableEnd: Infinity };
  const traces = messageTraces(
    { storage: { nodeId: 1, confirmableEnd: Infinity, log }, await: () => {} },
    tracer,
    new SeededRandom(1),
  );
  traces.share = 1;
  const to = { topic: "t", channel: "c" };
  const publish = (sequence: number) =>
    traces.published({ topic: "t", sequence, bytes: 1, position: 5, isRelaxed: false });
  for (let sequence = 0; sequence < TRACED_MAX + 1; sequence++) {
    publish(sequence);
    traces.delivered(to, sequence, 1, 1);
  }
  equal(tracer.openCount, TRACED_MAX);
  const forgotten = tracer.take().filter((line) => line.endsWith("forgotten"));
  equal(forgotten, ["deliver2 < publish1 forgotten"]);
  traces.delivered(to, 0, 2, 1);
  traces.answered(to, 0, "finished", 5);
  equal(tracer.take(), []);
  // Nothing becomes durable any more: no more publishes are traced than are remembered.
  log.durableEnd = 0;
  for (let at = 0; at < TRACED_MAX + 10; at++) publish(at + 100_000);
  equal(tracer.openCount, 2 * TRACED_MAX);
  traces.failed(new Error("broken"));
  equal(tracer.take().every((line) => line.endsWith("failed")), true);
});
