/**
 * Wire exchanges as text, played against any NSQ server over any network. What a server sends is
 * compared byte for byte; of a message only its time and its id are the server's choice.
 *
 *     # comment
 *     only ours: why another server need not do this
 *     flags: --max-msg-size=100  how the server is started
 *     server: lookup             it is discovery or nsqlookupd, whose frames have no type
 *     a> PUB $t\n |i32:2| hi     connection `a` (made at its first mention) sends parts
 *     a< OK                      it receives exactly the response OK
 *     a< ! E_INVALID ...         an error;   a< # body 1   a message, here the first attempt
 *     a< ~ {"version":"*"**      a response; `*` is anything without a quote, `**` anything
 *     a< hex 00 00 00 06 ...     these bytes
 *     a< end                     the end of the stream
 *     a end                      ends the direction to the server
 *     a close
 *     wait 500                   lets so many ms pass
 *     http 404 GET /p ~ {**      an answer over HTTP (200 unless given) and what it matches
 *     http POST /pub?topic=$t | body
 *     stat $t c depth=1          figures of a channel in `/stats`, `1..9` for a range; `-` for the topic's
 *     [ours] a< OK, [nsq] a< OK  a step for one side only, where they differ; a comment says why
 *
 * Parts: `hex:...`, `i32:N`, `sized:TEXT` (its length, then the text), `x:N` (N times the letter),
 * `times:N:PART`, `id:N` (the id of the Nth message that the connection received, from 0), or text
 * with `\n`, `\r` and `\s` (a space at an end); `$t` and `$u` are topics of this run. The magic is sent
 * first unless the first part is `raw:`. At the end of a script every open connection proves that
 * nothing else was sent to it.
 */
import { deepStrictEqual as equal, match, ok } from "node:assert/strict";
import { type Connection, ConnectionError } from "@sluice/shared/runtime";
import type { ScriptServer, Stage } from "./stage.ts";
import { patternExpression, playFigures, playHttp } from "./wire_http.ts";

/** A script read from its file. */
export interface WireScript {
  readonly title: string;
  /** Why it is about this server and no other; empty when any server does it. */
  readonly onlyOurs: string;
  readonly server: ScriptServer;
  readonly flags: readonly string[];
  readonly steps: readonly string[];
}

const HEADERS = ["only ours", "flags", "server"] as const;
const FRAME_TYPES = { response: 0, error: 1, message: 2 } as const;

/** Reads a script; its first line is its title. */
export function parseScript(text: string): WireScript {
  const lines = text.split("\n").map((line) => line.trimEnd()).filter((line) => line !== "");
  const header = (name: typeof HEADERS[number]) =>
    lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2) ?? "";
  return {
    title: (lines[0] ?? "").replace(/^# /, ""),
    onlyOurs: header("only ours"),
    server: header("server") === "lookup" ? "lookup" : "broker",
    flags: header("flags").split(" ").filter((flag) => flag !== ""),
    steps: lines.filter((line) =>
      !line.startsWith("#") && !HEADERS.some((name) => line.startsWith(`${name}: `))
    ),
  };
}

/** Plays a script; throws at the first difference. */
export async function playScript(
  script: WireScript,
  stage: Stage,
  side: "ours" | "nsq" = "ours",
): Promise<void> {
  const peers = new Map<string, Peer>();
  const play = (step: string, only = peers) => playStep(step, only, stage, script.server);
  try {
    for (const step of script.steps) {
      const [, forSide = side, plain = step] = /^\[(ours|nsq)\] (.*)$/.exec(step) ?? [];
      if (forSide === side) await play(plain);
    }
    for (const [name, peer] of peers) {
      if (!peer.open) continue;
      // A command that does not exist has one answer: what comes before it was not asked for.
      const error = script.server === "broker" ? "! " : "";
      await play(`${name}> BYE\\n`);
      await play(`${name}< ${error}E_INVALID invalid command BYE`);
      await play(`${name}< end`);
    }
  } finally {
    for (const peer of peers.values()) peer.close();
  }
}

async function playStep(
  step: string,
  peers: Map<string, Peer>,
  stage: Stage,
  server: ScriptServer,
): Promise<void> {
  const [, name = "", verb = "", rest = ""] = /^(\w+)(>|<|)\s?(.*)$/.exec(step) ?? [];
  if (name === "wait") return await stage.wait(Number(rest));
  if (name === "http" || name === "stat") {
    return await at(step, () => {
      return (name === "http" ? playHttp : playFigures)(topics(rest, stage.prefix), stage);
    });
  }
  let peer = peers.get(name);
  if (peer === undefined) {
    peer = new Peer(
      await stage.until(stage.network.connect(stage.host, stage.port, 5_000)),
      stage.prefix,
      server,
    );
    peers.set(name, peer);
    const magic = server === "broker" ? "  V2" : "  V1";
    if (!rest.startsWith("raw:")) await stage.until(peer.send(magic));
  }
  const open = peer;
  await at(step, async () => {
    if (verb === ">") return await stage.until(open.send(rest));
    if (verb === "<") return await stage.until(open.expect(rest));
    if (rest === "end") return open.end();
    if (rest === "close") return open.close();
    throw new Error("there is no such step");
  });
}

/** Names the step in what it throws. */
async function at(step: string, play: () => Promise<void>): Promise<void> {
  try {
    await play();
  } catch (error) {
    throw new Error(`At "${step}": ${error instanceof Error ? error.message : error}`, {
      cause: error,
    });
  }
}

/** Puts the topics of this run in. */
function topics(text: string, prefix: string): string {
  return text.replaceAll(/\$([tu])/g, `${prefix}$1`);
}

class Peer {
  open = true;
  readonly #connection: Connection;
  readonly #prefix: string;
  readonly #server: ScriptServer;
  readonly #ids: string[] = [];
  #buffer = new Uint8Array(0);

  constructor(connection: Connection, prefix: string, server: ScriptServer) {
    this.#connection = connection;
    this.#server = server;
    this.#prefix = prefix;
  }

  async send(parts: string): Promise<void> {
    await this.#connection.writeAll(concat(parts.split("|").map((part) => this.#part(part))));
  }

  end(): void {
    this.#connection.closeWrite();
    this.open = false;
  }

  close(): void {
    this.#connection.close();
    this.open = false;
  }

  async expect(what: string): Promise<void> {
    const [kind = "", ...words] = what.split(" ");
    const rest = this.#named(words.join(" "));
    if (kind === "end") {
      this.open = false;
      equal(this.#buffer.toHex(), "");
      return equal(await this.#more(), false, "the stream ends here");
    }
    if (kind === "hex") {
      const expected = Uint8Array.fromHex(rest.replaceAll(" ", ""));
      return equal(spaced(await this.#take(expected.length)), spaced(expected));
    }
    const data = await this.#frame();
    if (this.#server === "lookup") {
      const text = new TextDecoder().decode(data.subarray(4));
      return kind === "~" ? match(text, patternExpression(rest)) : equal(text, this.#named(what));
    }
    if (kind === "~") return this.#matches(data, rest);
    if (kind === "#") return this.#message(data, rest);
    const [type, text] = kind === "!"
      ? [FRAME_TYPES.error, rest]
      : [FRAME_TYPES.response, this.#named(what)];

    const spelled = text.replaceAll("\\s", " ");
    equal(shown(data), shown(frame(type, new TextEncoder().encode(spelled))));
  }

  /** Bytes of a whole frame. */
  async #frame(): Promise<Uint8Array> {
    const head = await this.#take(4);
    const size = new DataView(head.buffer, head.byteOffset).getInt32(0);
    ok(size >= 1 && size < 16_777_216, `a frame's size is sensible: ${size}`);
    return concat([head, await this.#take(size)]);
  }

  #matches(data: Uint8Array, pattern: string): void {
    equal(data[7], FRAME_TYPES.response);
    match(new TextDecoder().decode(data.subarray(8)), patternExpression(pattern));
  }

  #message(data: Uint8Array, rest: string): void {
    const [, body = "", attempts = ""] = /^(.*) (\d+)$/.exec(rest) ?? [];
    const id = new TextDecoder().decode(data.subarray(18, 34));
    match(id, /^[0-9a-f]{16}$/);
    this.#ids.push(id);
    const expected = new Uint8Array([
      ...data.subarray(8, 16),
      0,
      Number(attempts),
      ...data.subarray(18, 34),
      ...this.#part(body),
    ]);
    equal(shown(data), shown(frame(FRAME_TYPES.message, expected)));
  }

  #part(text: string): Uint8Array {
    const [, kind, value = ""] = /^(hex|i32|sized|x|times|id|raw):(.*)$/s.exec(text) ?? [];
    switch (kind) {
      case "hex":
        return Uint8Array.fromHex(value.replaceAll(" ", ""));
      case "i32": {
        const bytes = new Uint8Array(4);
        new DataView(bytes.buffer).setInt32(0, Number(value));
        return bytes;
      }
      case "x":
        return new Uint8Array(Number(value)).fill(0x78);
      case "times": {
        const [, count = "", part = ""] = /^(\d+):(.*)$/.exec(value) ?? [];
        return concat(Array.from({ length: Number(count) }, () => this.#part(part)));
      }
      case "sized": {
        const body = this.#part(value);
        return concat([this.#part(`i32:${body.length}`), body]);
      }
      case "id": {
        const id = this.#ids[Number(value)];
        ok(id !== undefined, `there was a message ${value}`);
        return new TextEncoder().encode(id);
      }
      default: {
        const plain = kind === "raw" ? value : text;
        const spelled = plain.replaceAll("\\n", "\n").replaceAll("\\r", "\r").replaceAll(
          "\\s",
          " ",
        );
        return new TextEncoder().encode(this.#named(spelled));
      }
    }
  }

  #named(text: string): string {
    return topics(text, this.#prefix).replaceAll(
      /\$id(\d+)/g,
      (_, index) => this.#ids[Number(index)] ?? "?",
    );
  }

  async #take(count: number): Promise<Uint8Array> {
    while (this.#buffer.length < count) {
      ok(
        await this.#more(),
        `${count} bytes more before the end; there are ${this.#buffer.length}`,
      );
    }
    const taken = this.#buffer.slice(0, count);
    this.#buffer = this.#buffer.slice(count);
    return taken;
  }

  /** Reads more; false at the end of the stream. */
  async #more(): Promise<boolean> {
    const into = new Uint8Array(65_536);
    try {
      const count = await this.#connection.read(into);
      if (count === null) return false;
      this.#buffer = concat([this.#buffer, into.subarray(0, count)]);
      return true;
    } catch (error) {
      if (!(error instanceof ConnectionError)) throw error;
      throw new Error(`the stream goes on or ends, but it broke: ${error.message}`);
    }
  }
}

function frame(type: number, data: Uint8Array): Uint8Array {
  const head = new Uint8Array(8);
  const view = new DataView(head.buffer);
  view.setInt32(0, data.length + 4);
  view.setInt32(4, type);
  return concat([head, data]);
}

/** Bytes for a comparison that people can read: in hex when they are not much text. */
function shown(bytes: Uint8Array): string {
  if (bytes.length > 4096) return `${bytes.length} bytes ${spaced(bytes.subarray(0, 64))}`;
  return `${spaced(bytes.subarray(0, 8))} ${JSON.stringify(new TextDecoder().decode(bytes))}`;
}

function spaced(bytes: Uint8Array): string {
  return bytes.toHex().replaceAll(/..(?!$)/g, "$& ");
}

function concat(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    bytes.set(part, offset);
    offset += part.length;
  }
  return bytes;
}
