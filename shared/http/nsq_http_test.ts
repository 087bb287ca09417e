import { deepStrictEqual as equal, match, rejects } from "node:assert/strict";
import { InvariantError } from "../runtime/mod.ts";
import { Logger } from "../telemetry/mod.ts";
import { HttpError } from "./http_error.ts";
import { channelArguments, topicArgument } from "./name_argument.ts";
import { type HttpRoute, nsqHttp } from "./nsq_http.ts";
import {
  emptyReply,
  errorReply,
  jsonReply,
  pingReply,
  textReply,
  tlsRequiredReply,
} from "./reply.ts";

const JSON_TYPE = "application/json; charset=utf-8";
const TEXT_TYPE = "text/plain; charset=utf-8";
const NSQ = "nsq; version=1.0";

const ROUTES: HttpRoute[] = [
  { method: "GET", path: "/ping", handle: () => pingReply("OK") },
  { method: "GET", path: "/topics", handle: () => jsonReply({ topics: [] }) },
  { method: "POST", path: "/pub", handle: () => textReply("OK") },
  { method: "POST", path: "/topic/create", handle: (call) => created(topicArgument(call.query)) },
  {
    method: "POST",
    path: "/channel/create",
    handle: (call) => created(...Object.values(channelArguments(call.query))),
  },
  {
    method: "GET",
    path: "/config/:option",
    handle: (call) => textReply(`get ${call.pathParameter("option")}`),
  },
  {
    method: "PUT",
    path: "/config/:option",
    handle: async (call) => textReply(`put ${await call.request.text()} by ${call.remoteAddress}`),
  },
  { method: "GET", path: "/refused", handle: () => Promise.reject(new HttpError(418, "TEAPOT")) },
  {
    method: "GET",
    path: "/broken",
    handle: () => {
      throw new Error("out of paper");
    },
  },
  {
    method: "GET",
    path: "/odd",
    handle: () => Promise.reject("no error object"),
  },
  {
    method: "GET",
    path: "/invariant",
    handle: () => {
      throw new InvariantError("pages are numbered");
    },
  },
];

function created(...names: string[]): Response {
  return names.length > 0 ? emptyReply() : errorReply(500, "NOTHING");
}

function newApp() {
  const lines: string[] = [];
  const logger = new Logger({ sink: (line) => lines.push(line), clock: { wallMs: () => 0 } });
  return { app: nsqHttp({ routes: ROUTES, logger }), lines };
}

/** Status, body, and the headers that matter, in one line each. */
async function asked(method: string, path: string): Promise<string[]> {
  const response = await newApp().app.request(path, { method });
  const shown = [`${response.status} ${await response.text()}`];
  for (const name of ["content-type", "x-nsq-content-type", "allow", "location"]) {
    const value = response.headers.get(name);
    if (value !== null) shown.push(`${name}: ${value}`);
  }
  return shown;
}

const API_ERROR = [`content-type: ${JSON_TYPE}`, `x-nsq-content-type: ${NSQ}`];

Deno.test("nsqHttp() gives each kind of reply its content type and the API header", async () => {
  equal(await asked("GET", "/topics"), ['200 {"topics":[]}', ...API_ERROR]);
  equal(await asked("POST", "/pub"), [
    "200 OK",
    `content-type: ${TEXT_TYPE}`,
    `x-nsq-content-type: ${NSQ}`,
  ]);
  equal(await asked("POST", "/topic/create?topic=t"), ["200 ", `x-nsq-content-type: ${NSQ}`]);
  equal(await asked("GET", "/ping"), ["200 OK", `content-type: ${TEXT_TYPE}`]);
});

Deno.test("nsqHttp() answers 404 for an unknown path with any method", async () => {
  for (const method of ["GET", "POST", "OPTIONS", "FOO"]) {
    for (const path of ["/nope", "/", "/topics/more", "/config", "/nope/", "/TOPICS"]) {
      equal(await asked(method, path), ['404 {"message":"NOT_FOUND"}', ...API_ERROR], path);
    }
  }
});

Deno.test("nsqHttp() answers 405 with Allow for another method, HEAD included", async () => {
  const cases = [
    ["POST", "/topics", "GET, OPTIONS"],
    ["FOO", "/topics", "GET, OPTIONS"],
    ["GET", "/pub", "OPTIONS, POST"],
    ["DELETE", "/config/x", "GET, OPTIONS, PUT"],
  ] as const;
  for (const [method, path, allow] of cases) {
    const expected = ['405 {"message":"METHOD_NOT_ALLOWED"}', ...API_ERROR, `allow: ${allow}`];
    equal(await asked(method, path), expected);
  }
  for (const [path, allow] of [["/topics", "GET, OPTIONS"], ["/pub", "OPTIONS, POST"]] as const) {
    equal(await asked("HEAD", path), ["405 ", ...API_ERROR, `allow: ${allow}`]);
  }
});

Deno.test("nsqHttp() answers OPTIONS with an empty 200 and Allow", async () => {
  equal(await asked("OPTIONS", "/topics"), ["200 ", "allow: GET, OPTIONS"]);
  equal(await asked("OPTIONS", "/pub"), ["200 ", "allow: OPTIONS, POST"]);
});

Deno.test("nsqHttp() redirects a trailing slash, keeping the query and the method", async () => {
  equal(await asked("GET", "/topics/"), ["301 ", "location: /topics"]);
  equal(await asked("GET", "/topics/?a=b%20c"), ["301 ", "location: /topics?a=b%20c"]);
  equal(await asked("GET", "/config/x/"), ["301 ", "location: /config/x"]);
  equal(await asked("POST", "/pub/?topic=t"), ["307 ", "location: /pub?topic=t"]);
});

Deno.test("nsqHttp() passes path parameters, the request and the remote address on", async () => {
  equal((await asked("GET", "/config/log%20level"))[0], "200 get log level");
  const { app } = newApp();
  const request = new Request("http://host/config/x", { method: "PUT", body: "debug" });
  const response = await app.fetch(request, { remoteAddress: "127.0.0.1:9" });
  equal(await response.text(), "put debug by 127.0.0.1:9");
});

Deno.test("nsqHttp() answers a broken query only where a handler looks at it", async () => {
  const invalid = ['400 {"message":"INVALID_REQUEST"}', ...API_ERROR];
  equal(await asked("POST", "/topic/create?topic=%zz"), invalid);
  equal(await asked("POST", "/topic/create?topic=t&x=%"), invalid);
  equal((await asked("GET", "/topics?x=%zz"))[0], '200 {"topics":[]}');
});

Deno.test("topicArgument() and channelArguments() refuse in nsqd's order, from the query only", async () => {
  const cases = [
    ["/topic/create", "MISSING_ARG_TOPIC"],
    ["/topic/create?topic=", "INVALID_ARG_TOPIC"],
    ["/topic/create?topic=a$", "INVALID_ARG_TOPIC"],
    [`/topic/create?topic=${"a".repeat(65)}`, "INVALID_ARG_TOPIC"],
    ["/channel/create?channel=c", "MISSING_ARG_TOPIC"],
    ["/channel/create?topic=a$&channel=c", "INVALID_ARG_TOPIC"],
    ["/channel/create?topic=a", "MISSING_ARG_CHANNEL"],
    ["/channel/create?topic=a&channel=c$", "INVALID_ARG_CHANNEL"],
  ] as const;
  for (const [path, code] of cases) {
    equal(await asked("POST", path), [`400 {"message":"${code}"}`, ...API_ERROR]);
  }
  const form = new URLSearchParams({ topic: "t" });
  const response = await newApp().app.request("/topic/create", { method: "POST", body: form });
  equal(await response.json(), { message: "MISSING_ARG_TOPIC" });
  equal((await asked("POST", "/channel/create?topic=a&channel=c%23ephemeral"))[0], "200 ");
});

Deno.test("nsqHttp() answers a thrown HttpError as it says and logs nothing", async () => {
  const { app, lines } = newApp();
  const response = await app.request("/refused");
  equal([response.status, await response.json()], [418, { message: "TEAPOT" }]);
  equal(lines, []);
});

Deno.test("nsqHttp() answers 500 for a handler that throws anything else and logs why", async () => {
  const { app, lines } = newApp();
  for (const [path, why] of [["/broken", /out of paper/], ["/odd", /no error object/]] as const) {
    const response = await app.request(path);
    equal([response.status, await response.json()], [500, { message: "INTERNAL_ERROR" }]);
    match(lines.pop() ?? "", why);
  }
});

Deno.test("nsqHttp() lets a broken invariant through to the server", async () => {
  await rejects(async () => await newApp().app.request("/invariant"), InvariantError);
});

Deno.test("tlsRequiredReply() has nsqd's text to the space", async () => {
  const response = tlsRequiredReply(4152);
  equal(response.status, 403);
  equal(await response.text(), '{"message": "TLS_REQUIRED", "https_port": 4152}');
});

Deno.test("nsqHttp() redirects whatever stands in the Host header", async () => {
  const app = nsqHttp({
    routes: [{ method: "GET", path: "/stats", handle: () => new Response() }],
    logger: new Logger({ sink: () => {}, clock: { wallMs: () => 0 } }),
  });
  // The runtime hands the header on as it came, and such a URL cannot be parsed.
  const request = new Proxy(new Request("http://host/stats/?x=/"), {
    get: (target, name) =>
      name === "url" ? "http://a b/stats/?x=/#f/" : Reflect.get(target, name, target),
  });
  const response = await app.fetch(request);
  equal(response.headers.get("location"), "/stats?x=/");
});
