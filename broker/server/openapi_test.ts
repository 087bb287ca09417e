/** The description of the HTTP API against the routes there are, and against what they answer. */
import { deepStrictEqual as equal, fail, ok } from "node:assert/strict";
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import { MetricsRegistry } from "@sluice/shared/telemetry";
import { brokerRoutes } from "./http.ts";
import { worldHttp, worldHttpOptions } from "./http_world_test.ts";
import { openApiDocument, OPERATIONS, routeRows } from "./openapi.ts";
import { pub, World } from "./world_test.ts";

interface Responses {
  readonly responses: Readonly<
    Record<string, { readonly content?: Readonly<Record<string, { readonly schema?: unknown }>> }>
  >;
}

/** Validates answers; an object may have no field that the description does not know. */
class Checker {
  readonly #ajv = new Ajv2020({ strict: false, allErrors: true });
  readonly #document = closed(openApiDocument()) as ReturnType<typeof openApiDocument>;
  readonly #validators = new Map<string, ValidateFunction>();

  constructor() {
    this.#ajv.addSchema(this.#document, "api");
  }

  /** The media type that is documented for an answer; fails when the answer is not. */
  async check(name: string, response: Response): Promise<string> {
    const text = await response.text();
    const [method = "", path = ""] = name.split(" ");
    const written = path.replace(/:(\w+)/g, "{$1}");
    const operation = this.#document.paths[written]?.[method.toLowerCase()] as
      | Responses
      | undefined;
    ok(operation !== undefined, `${name} is documented`);
    const answer = operation.responses[String(response.status)];
    ok(answer !== undefined, `${name} documents ${response.status}: ${text}`);
    const types = Object.keys(answer.content ?? {});
    if (!types.includes("application/json")) return text;
    const pointer = ["paths", written, method.toLowerCase(), "responses", String(response.status)]
      .map((part) => part.replaceAll("~", "~0").replaceAll("/", "~1")).join("/");
    const reference = `api#/${pointer}/content/application~1json/schema`;
    let validate = this.#validators.get(reference);
    if (validate === undefined) {
      validate = this.#ajv.compile({ $ref: reference });
      this.#validators.set(reference, validate);
    }
    const value: unknown = JSON.parse(text);
    if (!validate(value)) {
      fail(`${name} ${response.status}: ${this.#ajv.errorsText(validate.errors)} in ${text}`);
    }
    return text;
  }
}

/** Every object is closed, so that a field that is not described is found. */
function closed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(closed);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).map(([name, inner]) => [name, closed(inner)] as const);
  const schema = Object.fromEntries(entries);
  if (
    schema["type"] === "object" && "properties" in schema && !("additionalProperties" in schema)
  ) {
    return { ...schema, additionalProperties: false };
  }
  return schema;
}

/** A request, and the status that it gets. In order: later ones find what earlier ones have made. */
type Asked = readonly [name: string, path: string, status: number, body?: string];

const CHANNEL = "/v1/topics/:topic/channels/:channel";

const REQUESTS: readonly Asked[] = [
  ["GET /ping", "/ping", 200],
  ["GET /info", "/info", 200],
  ["POST /topic/create", "/topic/create?topic=t", 200],
  ["POST /topic/create", "/topic/create?topic=%20", 400],
  ["POST /channel/create", "/channel/create?topic=t&channel=c", 200],
  ["POST /channel/create", "/channel/create?topic=none&channel=c", 404],
  ["POST /pub", "/pub?topic=t", 200, "a"],
  ["POST /pub", "/pub?topic=t&defer=1000", 200, "later"],
  ["POST /pub", "/pub?topic=t", 400, ""],
  ["POST /mpub", "/mpub?topic=t", 200, "a\nb"],
  ["GET /stats", "/stats?format=json", 200],
  ["GET /stats", "/stats?format=json&include_mem=false&topic=none", 200],
  ["GET /metrics", "/metrics", 200],
  ["GET /config/:opt", "/config/none", 400],
  ["PUT /config/:opt", "/config/name", 400, "bad"],
  ["POST /topic/pause", "/topic/pause?topic=t", 200],
  ["POST /topic/unpause", "/topic/unpause?topic=t", 200],
  ["POST /topic/empty", "/topic/empty?topic=none", 404],
  ["POST /topic/empty", "/topic/empty?topic=t", 200],
  ["POST /channel/pause", "/channel/pause?topic=t&channel=c", 200],
  ["POST /channel/unpause", "/channel/unpause?topic=t&channel=c", 200],
  ["POST /channel/unpause", "/channel/unpause?topic=t&channel=none", 404],
  ["POST /v1/reload", "/v1/reload", 200],
  ["GET /v1/health", "/v1/health", 200],
  ["GET /v1/health", "/v1/health?probe=write", 200],
  ["GET /v1/health", "/v1/health?probe=read", 400],
  ["POST /v1/drain", "/v1/drain", 200, '{"enabled":true,"freeze_deliveries":true}'],
  ["POST /v1/drain", "/v1/drain", 400, '{"enabled":1}'],
  ["GET /v1/health", "/v1/health", 503],
  ["POST /v1/drain", "/v1/drain", 200, '{"enabled":false}'],
  ["GET /v1/drain", "/v1/drain", 200],
  ["GET /v1/openapi.json", "/v1/openapi.json", 200],
  ["GET /v1/capabilities", "/v1/capabilities", 200],
  ["POST /v1/manage/topics/:action", "/v1/manage/topics/create", 200, '{"topic":"m"}'],
  ["POST /v1/manage/topics/:action", "/v1/manage/topics/create", 400, "{}"],
  ["POST /v1/manage/topics/:action", "/v1/manage/topics/pause", 404, '{"topic":"none"}'],
  [
    "POST /v1/manage/topics/:action",
    "/v1/manage/topics/pause",
    409,
    '{"topic":"m","expected_revision":99}',
  ],
  [
    "POST /v1/manage/channels/:action",
    "/v1/manage/channels/tombstone",
    200,
    '{"topic":"m","channel":"c","tombstone_ms":1000}',
  ],
  [
    "POST /v1/manage/channels/:action",
    "/v1/manage/channels/create",
    409,
    '{"topic":"m","channel":"c"}',
  ],
  [`GET ${CHANNEL}/peek`, "/v1/topics/t/channels/c/peek", 200],
  [`GET ${CHANNEL}/peek`, "/v1/topics/t/channels/none/peek", 404],
  [`GET ${CHANNEL}/peek`, "/v1/topics/t/channels/c/peek?count=x", 400],
  [`GET ${CHANNEL}/deferred`, "/v1/topics/t/channels/c/deferred", 200],
  [`DELETE ${CHANNEL}/deferred/:id`, "/v1/topics/t/channels/c/deferred/0001000000000003", 200],
  [`DELETE ${CHANNEL}/deferred/:id`, "/v1/topics/t/channels/c/deferred/0001000000000003", 404],
  [`POST ${CHANNEL}/move`, "/v1/topics/t/channels/c/move", 400, "{}"],
  [`POST ${CHANNEL}/move`, "/v1/topics/t/channels/c/move", 200, '{"to_topic":"u"}'],
  ["PUT /v1/log-level", "/v1/log-level", 400, '{"level":"bad"}'],
  ["PUT /v1/log-level", "/v1/log-level", 200, '{"level":"debug","for_ms":1000}'],
  ["GET /v1/log-level", "/v1/log-level", 200],
  ["GET /v1/manage/tombstones", "/v1/manage/tombstones", 200],
  ["GET /v1/stats", "/v1/stats?include_clients=true&include_mem=true", 200],
  ["GET /v1/stats", "/v1/stats?topic=none", 200],
  ["GET /v1/stats", "/v1/stats?topic=;", 400],
  ["GET /v1/observe/head", "/v1/observe/head", 200],
  ["GET /v1/observe", "/v1/observe?topic=t", 200],
  ["GET /v1/registry/head", "/v1/registry/head", 200],
  ["GET /v1/registry", "/v1/registry", 200],
  ["POST /v1/storage/scrub", "/v1/storage/scrub", 202],
  ["POST /v1/storage/scrub", "/v1/storage/scrub", 200],
  ["GET /v1/storage/scrub", "/v1/storage/scrub", 200],
  ["PUT /v1/topics/:topic/policy", "/v1/topics/t/policy", 200, '{"ack_mode":"write_ack"}'],
  ["PUT /v1/topics/:topic/policy", "/v1/topics/t/policy", 400, "{"],
  ["GET /v1/topics/:topic/policy", "/v1/topics/t/policy", 200],
  ["GET /v1/topics/:topic/policy", "/v1/topics/none/policy", 404],
  ["POST /channel/empty", "/channel/empty?topic=t&channel=c", 200],
  ["POST /channel/delete", "/channel/delete?topic=t&channel=c", 200],
  ["POST /topic/delete", "/topic/delete?topic=t", 200],
];
/** Answers whose shape is of no JSON, or that a door of a test has no value for. */
const UNASKED = ["GET /config/:opt 200", "PUT /config/:opt 200"];

Deno.test("every route is described, and every description has a route", () =>
  World.use({}, async (world) => {
    const routes = brokerRoutes(
      world.broker,
      world.server.sessions,
      new MetricsRegistry(),
      worldHttpOptions(),
    ).map(({ method, path }) => `${method} ${path}`);
    const missing = routes.filter((name) => !Object.hasOwn(OPERATIONS, name));
    equal(missing, [], "describe a new route in openapi_*.ts, and ask for it in REQUESTS");
    equal(Object.keys(OPERATIONS).filter((name) => !routes.includes(name)), []);
    equal(new Set(routes).size, routes.length);
    await Promise.resolve();
  }));

Deno.test("what is answered has the shape that is described, for every route", () =>
  World.use({}, async (world) => {
    const checker = new Checker();
    const handler = worldHttp(world);
    const client = await world.client(pub("t", "a"), "SUB t d\n", "RDY 1\n");
    const seen = new Set<string>();
    for (const [name, path, status, body] of REQUESTS) {
      const [method = ""] = name.split(" ");
      const request = new Request(`http://127.0.0.1:4151${path}`, {
        method,
        ...(body === undefined ? {} : { body }),
      });
      const response = await world.clock.runUntil(
        Promise.resolve(handler(request, "127.0.0.1:5000")),
        10_000,
      );
      equal(response.status, status, `${name}: ${path}`);
      await checker.check(name, response);
      seen.add(`${name} ${status}`);
    }
    const promised = Object.entries(OPERATIONS).flatMap(([name, { answers }]) =>
      Object.keys(answers).filter((status) => Number(status) < 400).map((status) =>
        `${name} ${status}`
      )
    );
    equal(promised.filter((answer) => !seen.has(answer) && !UNASKED.includes(answer)), []);
    client.close();
    await world.broker.scrubber.stop();
  }));

Deno.test("the description is one that other tools can read: ids are unique, references lead somewhere", () => {
  const document = openApiDocument();
  const operations = Object.values(document.paths).flatMap((path) => Object.values(path)) as {
    readonly operationId: string;
  }[];
  const ids = operations.map(({ operationId }) => operationId);
  equal(ids.filter((id, index) => ids.indexOf(id) !== index), []);
  const known = Object.keys(document.components.schemas);
  for (const [, name = ""] of JSON.stringify(document).matchAll(/schemas\/(\w+)"/g)) {
    ok(known.includes(name), `there is a schema ${name}`);
  }
  for (const [method, path, scope, summary] of routeRows()) {
    ok(
      /^[A-Z]/.test(summary) && summary.endsWith("."),
      `${method} ${path} is told of in a sentence`,
    );
    ok(scope.length > 0);
  }
});
