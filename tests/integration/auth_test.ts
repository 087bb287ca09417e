/** nsqjs and HTTP against a broker process that asks an authorization service, and a grants file. */
import { deepEqual, equal, ok } from "node:assert/strict";
import { TestReader, TestWriter } from "./nsqjs.ts";
import { Service, TemporaryFolder } from "./process.ts";
import { eventually } from "./wait.ts";

/** An authorization service: the secret is the topic that may be published to and consumed from. */
class AuthService implements AsyncDisposable {
  readonly asked: URLSearchParams[] = [];
  readonly #server: Deno.HttpServer<Deno.NetAddr>;

  constructor() {
    this.#server = Deno.serve(
      { hostname: "127.0.0.1", port: 0, onListen: () => {} },
      (request) => {
        const { searchParams } = new URL(request.url);
        this.asked.push(searchParams);
        const topic = `^${searchParams.get("secret")}$`;
        const permissions = ["publish", "subscribe"];
        return Response.json({
          ttl: 1,
          identity: "joe",
          authorizations: [{ topic, channels: [".*"], permissions }],
        });
      },
    );
  }

  get address(): string {
    return `127.0.0.1:${this.#server.addr.port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.shutdown();
  }
}

async function answer(
  broker: Service,
  path: string,
  token: string,
  body?: string,
): Promise<number> {
  const response = await fetch(`http://${broker.httpAddress}${path}`, {
    headers: { Authorization: `Bearer ${token}` },
    ...(body === undefined ? {} : { method: "POST", body }),
  });
  await response.body?.cancel();
  return response.status;
}

Deno.test("nsqjs publishes and consumes with a secret that an authorization service knows", async () => {
  await using folder = await TemporaryFolder.create();
  await using service = new AuthService();
  // The first address answers nobody: asking goes on to the other one.
  const gone = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  gone.close();
  await using broker = await Service.broker(folder.path, [
    `--auth-http-address=127.0.0.1:${gone.addr.port}`,
    `--auth-http-address=${service.address}`,
  ]);
  const authSecret = "orders";
  await using writer = await TestWriter.connect(broker.tcpPort, { authSecret });
  await using reader = new TestReader("orders", "mail", {
    nsqdTCPAddresses: [broker.tcpAddress],
    authSecret,
  });
  await writer.publish("orders", "one");
  await reader.received(1);
  // Both connections outlive what the service said at first.
  const { length } = service.asked;
  await eventually("the subscription to be looked at again", () => service.asked.length > length);
  await writer.publish("orders", ["two", "three"]);
  await reader.received(3);
  deepEqual([...reader.bodies].sort(), ["one", "three", "two"]);
  deepEqual(reader.errors, []);
  equal(service.asked[0]?.get("remote_ip"), "127.0.0.1");

  equal(await answer(broker, "/pub?topic=orders", authSecret, "four"), 200);
  equal(await answer(broker, "/pub?topic=other", authSecret, "four"), 403);
  equal(await answer(broker, "/stats", authSecret), 403);
  equal((await broker.get("/ping")).status, 200);
  equal((await broker.get("/stats")).status, 401);
  await reader.received(4);
  ok(!/secret|Bearer/.test(broker.log), "the log holds no secret");
});

Deno.test("a broker process takes changed grants from its file", async () => {
  await using folder = await TemporaryFolder.create();
  await using etc = await TemporaryFolder.create();
  const path = `${etc.path}/grants.toml`;
  const write = (token: string) =>
    Deno.writeTextFileSync(
      path,
      `[[identity]]\nname = "operator"\ntoken = "${token}"\n` +
        `allow = [{ scopes = ["read", "admin"], topics = ["*"] }]\n`,
    );
  write("first-token");
  await using broker = await Service.broker(folder.path, [`--grants-file=${path}`]);
  equal(await answer(broker, "/topic/create?topic=t", "first-token", ""), 200);
  equal(await answer(broker, "/stats", "second-token"), 401);
  write("second-token");
  await eventually(
    "the new token",
    async () => await answer(broker, "/stats", "second-token") === 200,
  );
  await eventually(
    "the old token to go",
    async () => await answer(broker, "/stats", "first-token") === 401,
  );
  ok(broker.log.includes("Admin action") && broker.log.includes("identity=operator"));
  ok(!broker.log.includes("-token"));
});
