import { deepEqual, equal, match } from "node:assert/strict";
import { HttpProcess, TemporaryFolder } from "./process.ts";
import { RawClient } from "./raw_client.ts";
import { eventually } from "./wait.ts";

interface ReceivedSpan {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string;
  readonly attributes: readonly {
    readonly key: string;
    readonly value: { readonly stringValue?: string; readonly doubleValue?: number };
  }[];
}

/** Takes spans as OTLP over HTTP in JSON, those of Sluice. */
class Receiver implements AsyncDisposable {
  readonly spans: ReceivedSpan[] = [];
  readonly bodies: string[] = [];
  readonly #server: Deno.HttpServer<Deno.NetAddr>;

  constructor() {
    this.#server = Deno.serve(
      { port: 0, hostname: "127.0.0.1", onListen: () => {} },
      (request) => this.#take(request),
    );
  }

  get url(): string {
    return `http://127.0.0.1:${this.#server.addr.port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.shutdown();
  }

  async #take(request: Request): Promise<Response> {
    const text = await request.text();
    this.bodies.push(text);
    if (new URL(request.url).pathname === "/v1/traces") {
      for (const { scopeSpans } of JSON.parse(text).resourceSpans) {
        for (const { scope, spans } of scopeSpans) {
          if (scope.name === "sluice") this.spans.push(...spans);
        }
      }
    }
    return Response.json({});
  }
}

/** Starts a broker with variables in its environment. */
async function broker(
  environment: readonly string[],
  flags: readonly string[],
): Promise<HttpProcess> {
  const process = new HttpProcess("broker", "env", [
    ...environment,
    Deno.execPath(),
    "run",
    "--quiet",
    "-P=broker",
    "broker/main.ts",
    "--tcp-address=127.0.0.1:0",
    "--http-address=127.0.0.1:0",
    ...flags,
  ]);
  await process.ready();
  return process;
}

function attributesOf(span: ReceivedSpan): Record<string, unknown> {
  return Object.fromEntries(span.attributes.map(({ key, value }) => [
    key,
    value.stringValue ?? value.doubleValue,
  ]));
}

Deno.test("A message that is published over HTTP, delivered and finished is three spans of the caller's trace", async () => {
  await using folder = await TemporaryFolder.create();
  await using receiver = new Receiver();
  await using service = await broker([
    "OTEL_DENO=true",
    "OTEL_DENO_CONSOLE=ignore",
    "OTEL_EXPORTER_OTLP_PROTOCOL=http/json",
    `OTEL_EXPORTER_OTLP_ENDPOINT=${receiver.url}`,
    "OTEL_BSP_SCHEDULE_DELAY=100",
  ], [`--data-path=${folder.path}`, "--trace-sample=1"]);
  await using client = await RawClient.connect(service.tcpPort);
  await client.sub("orders", "mail");
  client.onMessage = ({ id }) => client.fin(id);
  client.rdy(1);
  const traceId = "0af7651916cd43dd8448eb211c80319c";
  const caller = "b7ad6b7169203331";
  const response = await fetch(`http://${service.httpAddress}/pub?topic=orders`, {
    method: "POST",
    headers: { traceparent: `00-${traceId}-${caller}-01` },
    body: "body-of-the-message",
  });
  equal(await response.text(), "OK");
  const named = (name: string) => receiver.spans.find((span) => span.name === name);
  await eventually("three spans", () => receiver.spans.length >= 3);
  const [publish, deliver, finish] = [named("publish")!, named("deliver")!, named("finish")!];
  deepEqual(receiver.spans.map((span) => span.traceId), [traceId, traceId, traceId]);
  deepEqual(
    [publish.parentSpanId, deliver.parentSpanId, finish.parentSpanId],
    [caller, publish.spanId, deliver.spanId],
  );
  const { "messaging.message.id": id, ...said } = attributesOf(deliver);
  match(String(id), /^[0-9a-f]{16}$/);
  deepEqual(said, {
    "messaging.system": "sluice",
    "messaging.destination.name": "orders",
    "messaging.consumer.group.name": "mail",
    "messaging.message.body.size": 19,
    "sluice.attempts": 1,
    "sluice.outcome": "finished",
  });
  equal(receiver.bodies.some((text) => text.includes("body-of-the-message")), false);
});

Deno.test("A broker that is to trace without telemetry in its environment says so and works", async () => {
  await using folder = await TemporaryFolder.create();
  await using service = await broker([], [`--data-path=${folder.path}`, "--trace-sample=0.5"]);
  await service.logged(/trace-sample has no effect: OTEL_DENO=true is not in the environment/);
  equal((await service.post("/pub?topic=t", "a")).text, "OK");
});
