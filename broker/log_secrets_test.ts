/**
 * A scan: secrets of every kind and bodies of messages go through a broker that logs everything, also
 * where they are not right or come out of step, and none of them is in any line.
 */
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { startUp } from "@sluice/shared/config";
import {
  encodeAuth,
  encodeIdentify,
  encodeMpub,
  encodePub,
  encodeSub,
  utf8Bytes,
} from "@sluice/shared/protocol";
import { HttpAskError, replaceFile, type ServeHttpOptions } from "@sluice/shared/runtime";
import {
  SeededRandom,
  settle,
  SimClock,
  SimDisk,
  SimNetwork,
  tlsPair,
} from "@sluice/shared/testing";
import { brokerSettings } from "./config.ts";
import { Client, sized } from "./server/world_test.ts";
import { Service } from "./service.ts";

/** What must not be seen, by where it goes in. */
const SECRETS = {
  authUrl: "s3cret-of-auth-url",
  grantsToken: "s3cret-of-grants-file",
  jwtKey: "s3cret-of-token-signing-0123456789",
  auth: "s3cret-of-AUTH",
  wrongAuth: "s3cret-that-nobody-knows",
  bearer: "s3cret-of-bearer",
  query: "s3cret-in-query",
  header: "s3cret-in-header",
  reply: "s3cret-in-reply",
  body: "s3cret-of-body",
  command: "s3cret-as-command",
  parameter: "s3cret-as-parameter",
};

class World {
  readonly disk = new SimDisk();
  readonly clock = new SimClock();
  readonly network = new SimNetwork();
  readonly lines: string[] = [];
  readonly asked: string[] = [];
  #http: ServeHttpOptions | null = null;

  async start(format: "text" | "json"): Promise<Service> {
    await this.disk.makeDirectory("/etc");
    await this.write("/etc/grants", grants(SECRETS.grantsToken));
    await this.write("/etc/jwt", SECRETS.jwtKey);
    const pair = tlsPair("server");
    const declaration = brokerSettings("host");
    const started = startUp(declaration, {
      args: [
        "--ring-bytes=32MiB",
        "--data-path=/data",
        "--log-level=debug",
        `--log-format=${format}`,
        "--tls-cert=/cert",
        "--tls-key=/key",
        `--auth-http-address=http://auth:1/auth?key=${SECRETS.authUrl}`,
        "--grants-file=/etc/grants",
        "--jwt-secret-file=/etc/jwt",
      ],
      env: () => undefined,
      readFile: () => "",
      print: () => {},
      log: (line) => this.lines.push(line),
      clock: this.clock,
    });
    ok(started !== null);
    const { values, logger } = started;
    return await Service.start({ declaration, values, hostname: "host", nodeIdGiven: false }, {
      disk: this.disk,
      clock: this.clock,
      random: new SeededRandom(1),
      network: this.network,
      serveHttp: (options) => {
        this.#http = options;
        return {
          hostname: options.hostname,
          port: options.port,
          shutdown: () => Promise.resolve(),
        };
      },
      serveHttps: ({ hostname, port }) =>
        Promise.resolve({ hostname, port, shutdown: () => Promise.resolve(), renew: () => {} }),
      readTextFile: (path) => Promise.resolve(path === "/cert" ? pair.cert : pair.key),
      httpGet: () => Promise.reject(new Error("nobody is asked")),
      askHttp: ({ url }) => {
        this.asked.push(url);
        if (url.includes(SECRETS.wrongAuth)) return Promise.reject(new HttpAskError("timeout"));
        if (!url.includes(SECRETS.auth)) return Promise.reject(new Error(`no answer of ${url}`));
        const text = `{"ttl": "${SECRETS.reply}"}`;
        return Promise.resolve({ status: 200, body: utf8Bytes(text) });
      },
      logger,
      memory: () => ({}),
      onBroken: (error) => {
        throw error;
      },
    });
  }

  async write(path: string, text: string): Promise<void> {
    await replaceFile(this.disk, path, utf8Bytes(text));
  }

  async tcp(...parts: (string | Uint8Array)[]): Promise<Client> {
    const client = new Client(await this.network.connect("0.0.0.0", 4150, 1000));
    client.read();
    await client.send("  V2", ...parts);
    return client;
  }

  async http(method: string, path: string, token: string, body?: string): Promise<number> {
    ok(this.#http !== null);
    const request = new Request(`http://127.0.0.1:4151${path}`, {
      method,
      headers: { Authorization: `Bearer ${token}`, "X-Key": SECRETS.header },
      ...(body === undefined ? {} : { body }),
    });
    return (await this.#http.handler(request, "127.0.0.1:5")).status;
  }
}

function grants(token: string): string {
  const allow = [{ scopes: ["publish", "consume", "read", "admin"], topics: ["*"] }];
  return JSON.stringify({ identity: [{ name: "shop", token, allow }] });
}

for (const format of ["text", "json"] as const) {
  Deno.test(`no secret and no body is in any line of a log at debug, as ${format}`, async () => {
    const world = new World();
    const service = await world.start(format);
    const body = utf8Bytes(SECRETS.body);
    const known = encodeAuth(utf8Bytes(SECRETS.grantsToken));
    const clients = [
      await world.tcp(
        encodeIdentify({ feature_negotiation: true, client_id: "me" }),
        known,
        encodePub("t", body),
        encodeMpub("t", [body, body]),
        encodeSub("t", "c"),
        "RDY 1\n",
      ),
      await world.tcp(encodeAuth(utf8Bytes(SECRETS.auth))),
      await world.tcp(encodeAuth(utf8Bytes(SECRETS.wrongAuth))),
      await world.tcp(encodeAuth(utf8Bytes(SECRETS.bearer)), encodePub("t", body)),
      await world.tcp(`AUTH ${SECRETS.command}\n`),
      await world.tcp(`${SECRETS.command}\n`),
      await world.tcp(known, sized("PUB t\n", body, 3)),
      await world.tcp(known, `PUB ${SECRETS.parameter}!\n`),
      await world.tcp(known, `DPUB t ${SECRETS.parameter}\n`),
      await world.tcp(known, encodeSub("t", "d"), `RDY ${SECRETS.parameter}\n`),
      await world.tcp(known, encodeSub("t", "d"), `REQ 0123456789abcdef ${SECRETS.parameter}\n`),
      await world.tcp(sized("IDENTIFY\n", utf8Bytes(`{"x": "${SECRETS.body}"`))),
    ];
    equal(clients[0]!.take().at(-1), `${SECRETS.body} #1`);
    const token = SECRETS.grantsToken;
    equal(await world.http("POST", "/pub?topic=t", token, SECRETS.body), 200);
    await world.http("POST", `/mpub?topic=t&key=${SECRETS.query}`, token, SECRETS.body);
    await world.http("POST", "/pub?topic=t", SECRETS.bearer, SECRETS.body);
    await world.http("GET", `/stats?access_token=${SECRETS.query}`, SECRETS.bearer);
    await world.http("GET", `/stats?topic=%zz${SECRETS.query}`, token);
    await world.http("GET", `/${SECRETS.query}/x?y=${SECRETS.query}`, token);
    await world.http("PUT", "/v1/topics/t/policy", token, `{"${SECRETS.body}": 1}`);
    equal(await world.http("PUT", "/config/log_level", token, SECRETS.body), 400);
    equal(await world.http("GET", "/config/auth_http_addresses", token), 200);
    await world.write("/etc/grants", `{"identity": [{"token": "${SECRETS.grantsToken}" oops`);
    await world.write("/etc/jwt", "short");
    await world.clock.run(130_000);
    await world.clock.runUntil(service.stop(), 20_000);
    await settle();
    for (const client of clients) client.close();

    ok(world.asked.some((url) => url.includes(SECRETS.authUrl)), "the key of the URL was used");
    ok(world.lines.length > 40, `${world.lines.length} lines`);
    for (const [name, secret] of Object.entries(SECRETS)) {
      const parts = [secret, btoa(secret), encodeURIComponent(secret)];
      const found = world.lines.find((line) => parts.some((part) => line.includes(part)));
      equal(found, undefined, name);
    }
    equal(world.lines.find((line) => line.includes("PRIVATE KEY")), undefined);
  });
}
