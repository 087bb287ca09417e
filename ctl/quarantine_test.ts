/** `sluicectl quarantine` against a gateway that answers as it is told to. */
import { deepStrictEqual as equal, match, ok } from "node:assert/strict";
import { type AskHttp, HttpAskError } from "@sluice/shared/runtime";
import { SimClock, SimDisk } from "@sluice/shared/testing";
import { run } from "./cli.ts";
import type { QuarantinedPublish } from "./gateway_door.ts";

const ADDRESS = "--gateway-http-address=gateway:4151";
const AMBIGUOUS = "ambiguous: broker:4150 was away for too long";

function entry(id: number, changes: Partial<QuarantinedPublish> = {}): QuarantinedPublish {
  return {
    id,
    topic: "orders",
    messages: 1,
    bytes: 5,
    reason: "E_BAD_MESSAGE PUB message too big 5 > 4",
    spooled: "2026-05-01T08:00:00.000Z",
    broker: "broker:4150",
    ...changes,
  };
}

/** A gateway with a quarantine. */
class Stage {
  readonly disk = new SimDisk();
  readonly asked: string[] = [];
  readonly entries: Map<number, QuarantinedPublish>;
  body = new TextEncoder().encode("hello");
  /** In place of every answer. */
  answer: { status: number; text: string } | string | null = null;
  out = "";
  err = "";

  constructor(...entries: QuarantinedPublish[]) {
    this.entries = new Map(entries.map((one) => [one.id, one]));
  }

  readonly askHttp: AskHttp = ({ method, url, headers }) => {
    const { pathname, searchParams } = new URL(url);
    const token = headers["Authorization"];
    this.asked.push(`${method} ${url}${token === undefined ? "" : ` ${token}`}`);
    if (typeof this.answer === "string") return Promise.reject(new HttpAskError(this.answer));
    if (this.answer !== null) return reply(this.answer.status, this.answer.text);
    const [, , , name, action] = pathname.split("/");
    if (name === undefined) {
      const from = Number(searchParams.get("from"));
      const limit = Number(searchParams.get("limit"));
      const found = [...this.entries.values()].filter(({ id }) => id >= from);
      const next = found[limit]?.id ?? null;
      return reply(200, JSON.stringify({ entries: found.slice(0, limit), next }));
    }
    const id = Number(name);
    const found = this.entries.get(id);
    if (found === undefined || (found.topic === "" && method !== "DELETE")) {
      return reply(404, '{"message":"NOT_IN_QUARANTINE"}');
    }
    if (action === "body") return Promise.resolve({ status: 200, body: this.body });
    this.entries.delete(id);
    return reply(200, "");
  };

  run(...args: string[]): Promise<number> {
    return run(["quarantine", ...args], {
      disk: this.disk,
      clock: new SimClock(),
      askHttp: this.askHttp,
      out: (bytes) => this.out += new TextDecoder().decode(bytes),
      err: (text) => this.err += text,
      errIsTerminal: false,
    });
  }
}

function reply(status: number, text: string) {
  return Promise.resolve({ status, body: new TextEncoder().encode(text) });
}

Deno.test("list is a table, in the order of the ids", async () => {
  const stage = new Stage(
    entry(8),
    entry(4096, { topic: "", spooled: null, broker: null, reason: "damaged: no checksum" }),
  );
  equal(await stage.run("list", ADDRESS), 0);
  equal(
    stage.out,
    [
      "ID    TOPIC   MESSAGES  BYTES  SPOOLED                   BROKER       REASON",
      "8     orders  1         5      2026-05-01T08:00:00.000Z  broker:4150  " +
      "E_BAD_MESSAGE PUB message too big 5 > 4",
      "4096  -       1         5      -                         -            damaged: no checksum",
      "",
    ].join("\n"),
  );
  equal([stage.err, stage.asked], ["", [
    "GET http://gateway:4151/v1/quarantine?from=0&limit=100",
  ]]);
  const empty = new Stage();
  equal(await empty.run("list", ADDRESS), 0);
  match(empty.out, /^ID .* REASON\n$/);
});

Deno.test("list stops at its limit and says how it goes on; --all goes on by itself", async () => {
  const many = Array.from({ length: 1_234 }, (_, at) => entry(at * 8));
  const stage = new Stage(...many);
  equal(await stage.run("list", ADDRESS, "--limit=3"), 0);
  equal(stage.out.split("\n").length, 1 + 3 + 1);
  match(stage.err, /go on with --from=24, or use --all/);
  const rest = new Stage(...many);
  equal(await rest.run("list", ADDRESS, "--from=9800", "--json"), 0);
  const { entries, next } = JSON.parse(rest.out);
  equal([entries.length, entries[0].id, next], [9, 9800, null]);
  const all = new Stage(...many);
  equal(await all.run("list", ADDRESS, "--all", "--json"), 0);
  equal([JSON.parse(all.out).entries, JSON.parse(all.out).next], [many, null]);
  equal(all.asked.length, 3);
});

Deno.test("what others have written does not reach the terminal as it is", async () => {
  const stage = new Stage(entry(8, { reason: `\x1b[2J${"x".repeat(200)}` }));
  stage.body = new TextEncoder().encode("\x1b]0;title\x07\nline");
  equal(await stage.run("list", ADDRESS), 0);
  match(stage.out, /\\x1b\[2Jx{73}\.\.\.\n/);
  equal(await stage.run("show", ADDRESS, "8"), 0);
  match(stage.out, /\\x1b\]0;title\\x07\\nline/);
  ok(!stage.out.includes("\x1b"));
});

Deno.test("show tells what is known of one and how its body begins", async () => {
  const stage = new Stage(entry(8), entry(16));
  equal(await stage.run("show", ADDRESS, "8"), 0);
  match(stage.out, /^id {7}8\ntopic {4}orders\n[^]*reason {3}E_BAD_MESSAGE[^]*\n\nhello\n$/);
  const json = new Stage(entry(8));
  equal(await json.run("show", ADDRESS, "8", "--json"), 0);
  equal(JSON.parse(json.out), { ...entry(8), body_base64: "aGVsbG8=" });
  const raw = new Stage(entry(8));
  equal(await raw.run("show", ADDRESS, "8", "--body"), 0);
  equal(raw.out, "hello");
  const long = new Stage(entry(8));
  long.body = new Uint8Array(5_000).fill(0x61);
  equal(await long.run("show", ADDRESS, "8"), 0);
  match(long.out, /\na{1024}\.\.\.\n$/);
});

Deno.test("show of what is not there, or cannot be read, ends with 1", async () => {
  const stage = new Stage(entry(16));
  equal(await stage.run("show", ADDRESS, "8"), 1);
  equal([stage.out, stage.err], ["", "8 is not in quarantine\n"]);
  for (const flags of [[], ["--body"], ["--json"]]) {
    const damaged = new Stage(entry(8, { topic: "" }));
    equal(await damaged.run("show", ADDRESS, "8", ...flags), 1);
    match(damaged.out + damaged.err, /cannot be read|"body_base64": null/);
  }
});

Deno.test("retry and drop do it to each that is named, and end with 1 when one is not there", async () => {
  for (const [command, method, path] of [["retry", "POST", "/retry"], ["drop", "DELETE", ""]]) {
    const stage = new Stage(entry(8), entry(16, { reason: AMBIGUOUS }), entry(24));
    equal(await stage.run(command!, ADDRESS, "8", "16"), 0);
    equal(stage.asked, [
      `${method} http://gateway:4151/v1/quarantine/8${path}`,
      `${method} http://gateway:4151/v1/quarantine/16${path}`,
    ]);
    equal([[...stage.entries.keys()], stage.err], [[24], ""]);
    match(stage.out, /^8 .*\n16 .*\n$/);
    equal(await stage.run(command!, ADDRESS, "8", "24"), 1);
    equal([[...stage.entries.keys()], stage.err], [
      [],
      "8 is not in quarantine, or cannot be read\n",
    ]);
  }
  const json = new Stage(entry(8));
  equal(await json.run("drop", ADDRESS, "8", "16", "--json"), 1);
  equal(JSON.parse(json.out), { done: [8], missing: [16], left: [] });
});

Deno.test("retry --all leaves what may be at a broker, unless that is asked for", async () => {
  const entries = [entry(8), entry(16, { reason: AMBIGUOUS }), entry(24, { topic: "" }), entry(32)];
  const stage = new Stage(...entries);
  equal(await stage.run("retry", ADDRESS, "--all"), 1);
  equal([...stage.entries.keys()], [16, 24]);
  match(stage.err, /^2 were left/);
  const both = new Stage(...entries.slice(0, 2));
  equal(await both.run("retry", ADDRESS, "--all", "--ambiguous"), 0);
  equal(both.entries.size, 0);
  const empty = new Stage();
  equal(await empty.run("retry", ADDRESS, "--all"), 0);
  equal(empty.err, "The quarantine is empty\n");
});

Deno.test("drop --all gives nothing up before --yes is said", async () => {
  const many = Array.from({ length: 700 }, (_, at) => entry(at * 8));
  const stage = new Stage(...many);
  equal(await stage.run("drop", ADDRESS, "--all"), 2);
  equal([stage.entries.size, stage.out], [700, ""]);
  match(stage.err, /^700 publishes would be given up for good: say --yes/);
  const done = new Stage(...many);
  equal(await done.run("drop", ADDRESS, "--all", "--yes", "--json"), 0);
  equal([done.entries.size, JSON.parse(done.out).done.length], [0, 700]);
});

Deno.test("a token comes from a file or from the command line; HTTPS is asked by URL", async () => {
  const stage = new Stage();
  stage.disk.writeDurable("/token", new TextEncoder().encode("secret\n"));
  const https = "--gateway-http-address=https://gateway:4152/";
  equal(await stage.run("list", https, "--token-file=/token"), 0);
  equal(await stage.run("list", https, "--token=other"), 0);
  equal(stage.asked, [
    "GET https://gateway:4152/v1/quarantine?from=0&limit=100 Bearer secret",
    "GET https://gateway:4152/v1/quarantine?from=0&limit=100 Bearer other",
  ]);
  equal(await stage.run("list", ADDRESS, "--token-file=/nothing"), 2);
  match(stage.err, /\/nothing/);
});

Deno.test("a gateway that cannot be asked, refuses, or is none ends with 2 and the reason", async () => {
  const answers = [
    ["no connection within 5000 ms", /Cannot ask gateway:4151: no connection/],
    [{ status: 403, text: '{"message":"FORBIDDEN"}' }, /answers 403: .*FORBIDDEN/],
    [{ status: 503, text: '{"message":"SPOOL_FAILED"}' }, /answers 503: .*SPOOL_FAILED/],
    [{ status: 404, text: '{"message":"NOT_FOUND"}' }, /answers 404/],
  ] as const;
  for (const [answer, reason] of answers) {
    for (const args of [["list"], ["show", "8"], ["retry", "8"], ["drop", "8"]]) {
      const stage = new Stage(entry(8));
      stage.answer = answer;
      equal(await stage.run(...args, ADDRESS), 2, args.join(" "));
      match(stage.err, reason);
      equal(stage.out, "");
    }
  }
  const texts = [
    "",
    "null",
    "[]",
    "{}",
    '{"entries":[],"next":0}',
    '{"entries":[],"next":-1}',
    '{"entries":[{}],"next":null}',
    JSON.stringify({ entries: [{ ...entry(8), id: "8" }], next: null }),
    JSON.stringify({ entries: [{ ...entry(8), reason: null }], next: null }),
  ];
  for (const text of texts) {
    const stage = new Stage();
    stage.answer = { status: 200, text };
    equal(await stage.run("list", ADDRESS, "--all"), 2, text);
    match(stage.err, /what is no list of a quarantine/);
  }
});

Deno.test("a command line that cannot be followed says why, and nothing is asked", async () => {
  for (
    const [args, reason] of [
      [["list"], /--gateway-http-address is missing/],
      [["list", "--gateway-http-address=:::"], /takes HOST:PORT, not ":::"/],
      [["list", ADDRESS, "--limit=x"], /--limit takes an integer/],
      [["list", ADDRESS, "--limit=5", "--all"], /--all and --limit/],
      [["list", ADDRESS, "8"], /"8" is one argument too many/],
      [["list", ADDRESS, "--token=a", "--token-file=b"], /--token and --token-file/],
      [["show", ADDRESS], /ID is missing/],
      [["show", ADDRESS, "x"], /an id is a number, not "x"/],
      [["show", ADDRESS, "8", "--body", "--json"], /--body and --json/],
      [["retry", ADDRESS], /ID is missing, or --all/],
      [["retry", ADDRESS, "8", "--all"], /ids and --all/],
      [["retry", ADDRESS, "8", "--ambiguous"], /--ambiguous goes with --all/],
      [["drop", ADDRESS], /ID is missing, or --all/],
      [["drop", ADDRESS, "-1"], /Unknown option/],
      [["give", ADDRESS], /there is no command "give"/],
    ] as const
  ) {
    const stage = new Stage(entry(8));
    equal(await stage.run(...args), 2, args.join(" "));
    match(stage.err, reason);
    match(stage.err, /\nTry "sluicectl quarantine/);
    equal(stage.asked, []);
  }
});

Deno.test("--help says what each takes", async () => {
  for (const command of ["list", "show", "retry", "drop"]) {
    const stage = new Stage();
    equal(await stage.run(command, "--help"), 0);
    match(stage.out, /--gateway-http-address HOST:PORT/);
    match(stage.out, /\nExit codes: 0 /);
  }
  const stage = new Stage();
  equal(await stage.run("retry", "--help"), 0);
  match(stage.out, /Usage: sluicectl quarantine retry \[ID \.\.\.\]/);
});
