import assert from "node:assert/strict";
import {
  CLOSE_WAIT_FRAME,
  encodeErrorFrame,
  encodeMessageFrame,
  HEARTBEAT_FRAME,
  OK_FRAME,
  ProtocolError,
} from "@sluice/shared/protocol";
import { sendWelcome, WELCOME_TOPIC } from "./welcome.ts";

/** What the fake services do. Each frame list is sent in answer to the command it is named after. */
interface Script {
  publishStatus?: number;
  /** Lookups answered 404 before the producer shows up. */
  lookupsUntilFound?: number;
  onSub: Uint8Array[];
  /** By number of FIN. */
  onFin?: Uint8Array[][];
  onCls?: Uint8Array[];
  /** Hang up in answer to SUB. */
  hangUp?: boolean;
  onCommand?(command: string): void;
}

/** Runs a demonstration against fake services; also the commands that the broker saw. */
async function run(
  script: Script,
  signal = AbortSignal.timeout(10_000),
): Promise<{ seen: string[]; report: Awaited<ReturnType<typeof sendWelcome>> }> {
  const seen: string[] = [];
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  let lookups = 0;
  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen() {} }, async (request) => {
    const url = new URL(request.url);
    if (url.pathname === "/pub") {
      seen.push(`publish ${url.searchParams.get("topic")} ${await request.text()}`);
      return new Response("OK", { status: script.publishStatus ?? 200 });
    }
    if (lookups++ < (script.lookupsUntilFound ?? 0)) return new Response("{}", { status: 404 });
    return Response.json({
      producers: [{ broadcast_address: "127.0.0.1", tcp_port: listener.addr.port }],
    });
  });
  const broker = serveBroker(listener, script, seen);
  const url = `http://127.0.0.1:${server.addr.port}`;
  try {
    const report = await sendWelcome({ gatewayUrl: url, discoveryUrl: url }, "wanted", signal);
    return { seen, report };
  } finally {
    listener.close();
    await broker;
    await server.shutdown();
  }
}

async function serveBroker(listener: Deno.TcpListener, script: Script, seen: string[]) {
  let fins = 0;
  try {
    using conn = await listener.accept();
    const chunk = new Uint8Array(1024);
    let text = "";
    for (;;) {
      const bytes = await conn.read(chunk);
      if (bytes === null) return;
      text += new TextDecoder().decode(chunk.subarray(0, bytes));
      const lines = text.split("\n");
      text = lines.pop() ?? "";
      for (const line of lines) {
        // The binary size and the JSON of IDENTIFY stand right before SUB.
        const command = /(?:SUB|RDY|FIN|NOP|CLS).*$/.exec(line)?.[0];
        if (command === undefined) continue;
        seen.push(command);
        script.onCommand?.(command);
        if (script.hangUp === true) return;
        let frames: Uint8Array[] = [];
        if (command.startsWith("SUB")) frames = script.onSub;
        if (command.startsWith("FIN")) frames = script.onFin?.[fins++] ?? [];
        if (command === "CLS") frames = script.onCls ?? [CLOSE_WAIT_FRAME];
        for (const frame of frames) await conn.write(frame);
      }
    }
  } catch (error) {
    // Closed by the test, or reset by the client that gave up.
    if (
      error instanceof Deno.errors.BadResource || error instanceof Deno.errors.ConnectionReset ||
      error instanceof Deno.errors.BrokenPipe || error instanceof Deno.errors.Interrupted
    ) return;
    throw error;
  }
}

function message(sequence: number, body: string): Uint8Array {
  return encodeMessageFrame(
    { timestampMs: 1, attempts: 3, nodeId: 1, sequence },
    new TextEncoder().encode(body),
  );
}

const ID_1 = "0001000000000001";
const ID_2 = "0001000000000002";

Deno.test("sendWelcome() publishes, looks up, receives and finishes its message", async () => {
  const { seen, report } = await run({ onSub: [OK_FRAME, OK_FRAME, message(1, "wanted")] });
  assert.deepEqual(seen, [
    `publish ${WELCOME_TOPIC} wanted`,
    "SUB welcome up",
    "RDY 1",
    `FIN ${ID_1}`,
    "CLS",
  ]);
  assert.equal(report.id, ID_1);
  assert.equal(report.attempts, 3);
  assert.equal(report.body, "wanted");
  assert.match(report.address, /^127\.0\.0\.1:\d+$/);
});

Deno.test("sendWelcome() asks again until discovery knows the topic", async () => {
  const { report } = await run({ lookupsUntilFound: 3, onSub: [message(1, "wanted")] });
  assert.equal(report.id, ID_1);
});

Deno.test("sendWelcome() finishes leftovers, answers heartbeats and waits for CLOSE_WAIT", async () => {
  const { seen, report } = await run({
    onSub: [OK_FRAME, message(1, "left over")],
    onFin: [[HEARTBEAT_FRAME, message(2, "wanted")]],
    onCls: [OK_FRAME, HEARTBEAT_FRAME, CLOSE_WAIT_FRAME],
  });
  assert.equal(report.id, ID_2);
  assert.deepEqual(seen.slice(3, 6), [`FIN ${ID_1}`, "NOP", `FIN ${ID_2}`]);
});

Deno.test("sendWelcome() rejects with what the services say", async () => {
  await assert.rejects(run({ publishStatus: 503, onSub: [] }), /publishing was answered 503: OK/);
  const refusal = encodeErrorFrame(new ProtocolError("E_INVALID", "no"));
  await assert.rejects(run({ onSub: [refusal] }), /the broker says E_INVALID no/);
  await assert.rejects(
    run({ onSub: [message(1, "wanted")], onCls: [refusal] }),
    /the broker says E_INVALID no/,
  );
  await assert.rejects(run({ onSub: [new Uint8Array(8)] }), /malformed frame/);
  await assert.rejects(run({ onSub: [], hangUp: true }), /closed the connection|reset/);
});

Deno.test("sendWelcome() gives up with the signal's reason, wherever it stands", async () => {
  for (const last of ["at once", "SUB welcome up", "RDY 1", `FIN ${ID_1}`, "CLS"]) {
    const controller = new AbortController();
    const giveUp = () => controller.abort(new Error(`enough at ${last}`));
    if (last === "at once") giveUp();
    const script: Script = {
      onSub: last === "RDY 1" ? [] : [message(1, "wanted")],
      onCls: [],
      onCommand: (command) => {
        if (command === last) giveUp();
      },
    };
    await assert.rejects(run(script, controller.signal), new RegExp(`enough at ${last}`));
  }
});
