/**
 * Scripts of HTTP requests with the answers that nsqd (or nsqlookupd) gives and ours are to give. Has
 * no tests of its own.
 *
 *     # A comment; the first one is the title.
 *     flags --snappy=false                    for the start of the service
 *     POST /pub?topic=t body: hello           body: is the rest of the line; \n \\ \xNN,
 *                                             \L{...} is JSON behind its length in four bytes,
 *                                             \Z9; is the letter z so many times
 *     = 200 text+ OK                          the answer of both
 *
 *     GET /info
 *     ours 200 json+ {"version":"<any>"}      where they differ: the answer of each, and why
 *     theirs 200 json+ {"version":"1.3.0"}
 *     why we add our own version behind that of NSQ
 *
 *     open v2 IDENTIFY\n...                   a connection that sends this and is left open;
 *     until 200 json+ ...                     as `=`, asked again until it is so
 *     close                                   all that was opened
 *
 * An answer is the status, the kind of content (`json`, `text`, `html`, `none`; `+` behind it for the
 * header that all of NSQ's API answers have), `allow=` and `location=` when there are such headers,
 * and the body. `<any>` stands for any text, `<n>` for an integer. Connections are closed at the end.
 */
import { concatBytes, utf8Bytes } from "@sluice/shared/protocol";
import { eventually } from "../integration/wait.ts";

/** How long it may take until an answer is as it is to become. */
const PATIENCE_MS = 5_000;

/** Who is asked. */
export type Side = "ours" | "theirs";

export interface Answers {
  readonly ours: string;
  readonly theirs: string;
  /** Why they differ; empty when they do not. */
  readonly why: string;
}

export type Step =
  | { readonly kind: "open"; readonly line: number; readonly bytes: Uint8Array }
  | { readonly kind: "close"; readonly line: number }
  | {
    readonly kind: "ask";
    readonly line: number;
    readonly method: string;
    readonly path: string;
    readonly body: Uint8Array | null;
    readonly patient: boolean;
    readonly answers: Answers;
  };

export interface HttpScript {
  readonly title: string;
  /** What the service is to be started with. */
  readonly flags: readonly string[];
  readonly steps: readonly Step[];
}

/** Where a script is played. */
export interface HttpStage {
  readonly side: Side;
  readonly httpPort: number;
  readonly tcpPort: number;
}

/** Throws with the line when it cannot be read. */
export function parseHttpScript(text: string): HttpScript {
  const lines = text.split("\n").map((content, index) => ({ content: content.trim(), index }));
  const title = lines[0]?.content.replace(/^#\s*/, "") ?? "";
  const steps: Step[] = [];
  const flags: string[] = [];
  let at = 0;
  const answer = (word: string) => {
    const { content, index } = lines[at] ?? { content: "", index: -1 };
    if (!content.startsWith(`${word} `)) throw new Error(`line ${index + 1} is no "${word}"`);
    at++;
    return content.slice(word.length + 1);
  };
  while (at < lines.length) {
    const { content, index } = lines[at] ?? { content: "", index: 0 };
    at++;
    if (content === "" || content.startsWith("#")) continue;
    const line = index + 1;
    if (content.startsWith("flags ")) {
      flags.push(...content.split(" ").slice(1));
      continue;
    }
    if (content.startsWith("open ")) {
      steps.push({ kind: "open", line, bytes: unescaped(content.slice("open ".length)) });
      continue;
    }
    if (content === "close") {
      steps.push({ kind: "close", line });
      continue;
    }
    const request = /^([A-Z]+) (\/\S*)(?: body: ?(.*))?$/.exec(content);
    if (request === null) throw new Error(`line ${line} is no request: ${content}`);
    const [, method = "", path = "", body] = request;
    const next = lines[at]?.content ?? "";
    const patient = next.startsWith("until ");
    let answers: Answers;
    if (next.startsWith("=") || patient) {
      const both = answer(patient ? "until" : "=");
      answers = { ours: both, theirs: both, why: "" };
    } else {
      answers = { ours: answer("ours"), theirs: answer("theirs"), why: answer("why") };
    }
    const bytes = body === undefined ? null : unescaped(body);
    steps.push({ kind: "ask", line, method, path, body: bytes, patient, answers });
  }
  return { title, flags, steps };
}

/** Plays a script and returns what was not as it should be, a text for each. */
export async function playHttpScript(script: HttpScript, stage: HttpStage): Promise<string[]> {
  const wrong: string[] = [];
  const open: Deno.Conn[] = [];
  try {
    for (const step of script.steps) {
      if (step.kind === "close") {
        for (const connection of open.splice(0)) connection.close();
        continue;
      }
      if (step.kind === "open") {
        const connection = await Deno.connect({ hostname: "127.0.0.1", port: stage.tcpPort });
        open.push(connection);
        await writeAll(connection, step.bytes);
        continue;
      }
      const expected = step.answers[stage.side];
      const pattern = patternOf(expected);
      let answer = await ask(stage, step);
      if (step.patient && !pattern.test(answer)) {
        await eventually(`line ${step.line}`, async () => {
          answer = await ask(stage, step);
          return pattern.test(answer);
        }, PATIENCE_MS).catch(() => {
          // What it is instead is told below.
        });
      }
      if (pattern.test(answer)) continue;
      wrong.push(
        `line ${step.line}, ${step.method} ${step.path}:\n  want ${expected}\n  got  ${answer}`,
      );
    }
  } finally {
    for (const connection of open) connection.close();
  }
  return wrong;
}

async function ask(
  stage: HttpStage,
  { method, path, body }: Extract<Step, { kind: "ask" }>,
): Promise<string> {
  const response = await fetch(`http://127.0.0.1:${stage.httpPort}${path}`, {
    method,
    redirect: "manual",
    ...(body === null ? {} : { body: new Uint8Array(body) }),
  });
  const text = await response.text();
  const { headers, status } = response;
  const type = headers.get("content-type") ?? "";
  const kinds: Readonly<Record<string, string>> = {
    "application/json; charset=utf-8": "json",
    "text/plain; charset=utf-8": "text",
    "text/html; charset=utf-8": "html",
    "": "none",
  };
  const isApi = headers.get("x-nsq-content-type") === "nsq; version=1.0";
  // Go leaves out the type of an empty text; nobody can tell.
  const kind = text === "" && type.startsWith("text/plain") ? "none" : kinds[type] ?? type;
  const parts = [String(status), kind + (isApi ? "+" : "")];
  for (const name of ["allow", "location"]) {
    const value = headers.get(name);
    if (value !== null) parts.push(`${name}=${value.replaceAll(", ", ",")}`);
  }
  if (text !== "") parts.push(text.trimEnd().replaceAll("\n", "\\n"));
  return parts.join(" ");
}

async function writeAll(connection: Deno.Conn, bytes: Uint8Array): Promise<void> {
  for (let written = 0; written < bytes.length;) {
    written += await connection.write(bytes.subarray(written));
  }
}

function patternOf(expected: string): RegExp {
  const source = expected.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")
    .replaceAll("<any>", ".*?")
    .replaceAll("<n>", "-?\\d+");
  return new RegExp(`^${source}$`);
}

/** Text with escapes as bytes; see the module. */
function unescaped(text: string): Uint8Array {
  const parts: Uint8Array[] = [];
  const escapes = /\\x([0-9a-f]{2})|\\L(\{[^}]*\})|\\Z(\d+);|\\(n|\\)|([^\\]+)/g;
  for (const [, hex, json, repeats, letter, plain = ""] of text.matchAll(escapes)) {
    if (hex !== undefined) parts.push(Uint8Array.of(Number.parseInt(hex, 16)));
    else if (json !== undefined) {
      parts.push(Uint8Array.of(0, 0, json.length >>> 8, json.length & 255), utf8Bytes(json));
    } else if (repeats !== undefined) parts.push(new Uint8Array(Number(repeats)).fill(0x7a));
    else parts.push(utf8Bytes(letter === "n" ? "\n" : letter ?? plain));
  }
  return concatBytes(...parts);
}
