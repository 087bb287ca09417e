/**
 * The HTTP API as an OpenAPI 3.1 document, `GET /v1/openapi.json`, and as the table in docs/API.md.
 *
 * Each route is declared once in a table of operations beside this module; who may use it comes from
 * `route_rules.ts`. A test compares the tables with the routes there are, in both directions, and
 * what is answered with the schemas.
 */
import { type HttpRoute, jsonTextReply } from "@sluice/shared/http";
import { REPORTED_VERSION } from "@sluice/shared/runtime";
import type { RouteNeed } from "@sluice/shared/server";
import { MANAGE_OPERATIONS } from "./openapi_manage.ts";
import { MESSAGE_OPERATIONS } from "./openapi_messages.ts";
import { NODE_OPERATIONS } from "./openapi_node.ts";
import { NSQ_OPERATIONS } from "./openapi_nsq.ts";
import type { Operation, Operations } from "./openapi_operation.ts";
import { object, type Schema, TEXT } from "./openapi_schema.ts";
import { NODE_SCHEMAS } from "./openapi_node_schemas.ts";
import { STATS_OPERATIONS, STATS_SCHEMAS } from "./openapi_stats.ts";
import { ROUTE_RULES } from "./route_rules.ts";

export const OPENAPI_PATH = "/v1/openapi.json";

/** All routes. */
export const OPERATIONS: Operations = {
  ...NSQ_OPERATIONS,
  ...NODE_OPERATIONS,
  ...STATS_OPERATIONS,
  ...MANAGE_OPERATIONS,
  ...MESSAGE_OPERATIONS,
};

const ERROR: Schema = object({ message: TEXT, detail: TEXT }, ["detail"]);
const SCHEMAS: Readonly<Record<string, Schema>> = {
  Error: ERROR,
  ...NODE_SCHEMAS,
  ...STATS_SCHEMAS,
};

/** The route of the document. */
export function openApiRoute(): HttpRoute {
  let text: string | null = null;
  return {
    method: "GET",
    path: OPENAPI_PATH,
    handle: () => jsonTextReply(text ??= JSON.stringify(openApiDocument())),
  };
}

/** The document, as JSON. */
export function openApiDocument() {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const [name, operation] of Object.entries(OPERATIONS)) {
    const { method, path } = partsOf(name);
    const written = path.replace(/:(\w+)/g, "{$1}");
    (paths[written] ??= {})[method.toLowerCase()] = operationDocument(name, path, operation);
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "Sluice broker",
      version: REPORTED_VERSION,
      description: "nsqd's HTTP API and the native one. Objects may get more fields with time.",
    },
    paths,
    components: {
      schemas: SCHEMAS,
      securitySchemes: { bearer: { type: "http", scheme: "bearer" } },
    },
  };
}

/** The rows of the table of routes: method, path, scope, summary. */
export function routeRows(): readonly (readonly [string, string, string, string])[] {
  return Object.entries(OPERATIONS).map(([name, { summary }]) => {
    const { method, path } = partsOf(name);
    return [method, `\`${path}\``, scopeText(name), summary];
  });
}

function operationDocument(name: string, path: string, operation: Operation) {
  const { summary, description, query = {}, body } = operation;
  const parameters = [
    ...[...path.matchAll(/:(\w+)/g)].map(([, parameter = ""]) => ({
      name: parameter,
      in: "path",
      required: true,
      schema: TEXT,
    })),
    ...Object.entries(query).map(([parameter, facts]) => ({
      name: parameter,
      in: "query",
      required: facts.required ?? false,
      description: facts.description,
      schema: facts.schema ?? TEXT,
    })),
  ];
  const rule = ROUTE_RULES[name];
  const isOpen = rule === undefined || rule === "open";
  return {
    operationId: operationId(name),
    summary,
    ...(description === undefined ? {} : { description }),
    "x-sluice-scope": scopeText(name),
    security: isOpen ? [] : [{ bearer: [] }],
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(body === undefined ? {} : { requestBody: bodyDocument(body) }),
    responses: answersDocument(operation),
  };
}

function bodyDocument(body: Schema | string) {
  if (typeof body === "string") return { content: { [body]: {} } };
  return { content: { "application/json": { schema: body } } };
}

function answersDocument({ answers, refusals = {} }: Operation) {
  const documents: Record<string, unknown> = {};
  for (const [status, { description, schema, type }] of Object.entries(answers)) {
    documents[status] = {
      description,
      ...(schema !== undefined
        ? { content: { "application/json": { schema } } }
        : type !== undefined
        ? { content: { [type]: { schema: TEXT } } }
        : {}),
    };
  }
  for (const [status, codes] of Object.entries(refusals)) {
    documents[status] = {
      description: `\`message\` is ${codes.map((code) => `\`${code}\``).join(", ")}.`,
      content: { "application/json": { schema: { $ref: "#/components/schemas/Error" } } },
    };
  }
  return documents;
}

/** As `postTopicCreate`. */
function operationId(name: string): string {
  const { method, path } = partsOf(name);
  const words = path.replace(/^\/v1/, "").split(/\W+|_/).filter((word) => word !== "");
  return method.toLowerCase() + (path.startsWith("/v1") ? "V1" : "") +
    words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join("");
}

/** What a token needs, as in `admin on the topic`. */
function scopeText(name: string): string {
  const rule: RouteNeed | "open" | undefined = ROUTE_RULES[name];
  if (rule === undefined || rule === "open") return "open";
  return rule.on === "node" ? rule.scope : `${rule.scope} on the ${rule.on}`;
}

function partsOf(name: string): { method: string; path: string } {
  const [method = "", path = ""] = name.split(" ");
  return { method, path };
}
