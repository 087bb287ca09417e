/** The sources together, and files that change under them. */
import { deepStrictEqual as equal, match, ok, rejects } from "node:assert/strict";
import { type AskHttp, type Disk, replaceFile } from "../runtime/mod.ts";
import { Logger, type Secret, secret } from "../telemetry/mod.ts";
import { SeededRandom, SimClock, SimDisk } from "../testing/mod.ts";
import type { Credentials } from "./authorizer.ts";
import { Authorization, type AuthorizationSettings, POLL_MS } from "./open.ts";
import { AuthorizationFileError } from "./watched_file.ts";

function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}
const REPLY = { ttl: 60, authorizations: [{ topic: "t", channels: [], permissions: ["publish"] }] };

function grantsFile(name: string, token: string): string {
  return JSON.stringify({
    identity: [{ name, token, allow: [{ scopes: ["publish"], topics: ["*"] }] }],
  });
}

class Stage {
  readonly disk: Disk = new SimDisk();
  readonly clock = new SimClock();
  readonly lines: string[] = [];
  asked = 0;
  readonly #askHttp: AskHttp = () => {
    this.asked++;
    const body = bytes(JSON.stringify({ ...REPLY, identity: "by service" }));
    return Promise.resolve({ status: 200, body });
  };

  async write(path: string, text: string): Promise<void> {
    await this.disk.makeDirectory("/etc");
    await replaceFile(this.disk, path, bytes(text));
  }

  open(settings: Partial<AuthorizationSettings>, addresses: readonly string[] = []) {
    return Authorization.open({
      grantsFile: "",
      tokenSecretFile: "",
      tokenPublicKeyFile: "",
      audience: "",
      issuer: "",
      servers: { addresses, method: "GET", connectTimeoutMs: 1, timeoutMs: 1 },
      ...settings,
    }, {
      disk: this.disk,
      clock: this.clock,
      random: new SeededRandom(1),
      askHttp: this.#askHttp,
      logger: new Logger({ sink: (line) => this.lines.push(line), clock: this.clock }),
    });
  }
}

async function identityOf(
  { authorizer }: Authorization,
  token: string | null,
  more: Partial<Credentials> = {},
): Promise<string> {
  const one: Secret<Uint8Array> | null = token === null ? null : secret(bytes(token));
  const { grants } = await authorizer.authorize({
    secret: one,
    remoteIp: "192.0.2.7",
    isTls: false,
    commonName: "",
    isCertificateVerified: false,
    ...more,
  });
  return grants.identity;
}

Deno.test("without a source nothing is required, and nothing is watched", async () => {
  const stage = new Stage();
  const authorization = await stage.open({});
  equal(
    [authorization.authorizer.isRequired, authorization.servers, stage.clock.pendingTimers],
    [false, null, 0],
  );
  await authorization.close();
});

Deno.test("the nearest source that knows a token decides", async () => {
  const stage = new Stage();
  await stage.write("/etc/grants", grantsFile("by file", "local"));
  const authorization = await stage.open({ grantsFile: "/etc/grants" }, ["a:1"]);
  const { authorizer } = authorization;
  equal([authorizer.isRequired, authorizer.takesCertificates], [true, true]);
  equal([await identityOf(authorization, "local"), stage.asked], ["by file", 0]);
  equal([await identityOf(authorization, "remote"), stage.asked], ["by service", 1]);
  equal([await identityOf(authorization, null), stage.asked], ["", 1]);
  equal([authorizer.unknownCount, authorizer.unavailableCount], [1, 0]);
  await authorization.close();
});

Deno.test("a file is read again when it changes, and keeps its last good content", async () => {
  const stage = new Stage();
  await stage.write("/etc/grants", grantsFile("one", "SECRET1"));
  const authorization = await stage.open({ grantsFile: "/etc/grants" });
  equal(await identityOf(authorization, "SECRET1"), "one");
  await stage.write("/etc/grants", grantsFile("two", "SECRET2"));
  await stage.clock.run(POLL_MS);
  equal(await identityOf(authorization, "SECRET1"), "");
  equal(await identityOf(authorization, "SECRET2"), "two");
  equal([authorization.staleFiles, stage.lines.length], [0, 1]);
  await stage.write("/etc/grants", '{"identity":[{"token":"SECRET3"');
  await stage.clock.run(3 * POLL_MS);
  equal([authorization.staleFiles, await identityOf(authorization, "SECRET2")], [1, "two"]);
  match(stage.lines[1] ?? "", /ERROR.*what it said before holds.*reason="the file is not valid/);
  equal(stage.lines.length, 2, "a fault is logged once");
  await stage.disk.remove("/etc/grants");
  await stage.clock.run(2 * POLL_MS);
  equal([authorization.staleFiles, await identityOf(authorization, "SECRET2")], [1, "two"]);
  await stage.write("/etc/grants", grantsFile("four", "SECRET4"));
  await stage.clock.run(POLL_MS);
  equal([authorization.staleFiles, await identityOf(authorization, "SECRET4")], [0, "four"]);
  ok(!stage.lines.some((line) => line.includes("SECRET")));
  await authorization.close();
  equal(stage.clock.pendingTimers, 0);
});

Deno.test("a file that cannot be used at the start stops the start, and names the setting", async () => {
  const stage = new Stage();
  await stage.write("/etc/bad", '{"identity":[{"token":"SECRET"}');
  await stage.write("/etc/short", "SECRET");
  await stage.write("/etc/large", " ".repeat(1_048_577));
  const rows: readonly (readonly [Partial<AuthorizationSettings>, RegExp])[] = [
    [{ grantsFile: "/etc/none" }, /Cannot use --grants-file=\/etc\/none: /],
    [{ grantsFile: "/etc/bad" }, /--grants-file=\/etc\/bad: the file is not valid JSON$/],
    [{ grantsFile: "/etc/large" }, /1048577 bytes, more than 1048576/],
    [{ tokenSecretFile: "/etc/short" }, /--jwt-secret-file=\/etc\/short: the secret has less than/],
    [{ tokenPublicKeyFile: "/etc/short" }, /--jwt-public-key-file=\/etc\/short: it is neither/],
  ];
  for (const [settings, message] of rows) {
    await rejects(stage.open(settings), (error: unknown) => {
      ok(error instanceof AuthorizationFileError, String(error));
      match(error.message, message);
      return !error.message.includes("SECRET");
    });
  }
  equal(stage.clock.pendingTimers, 0);
});
