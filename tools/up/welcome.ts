/**
 * One message through a running Sluice, the way a program would do it: published over HTTP through
 * the gateway, found through discovery, received and finished over the NSQ protocol. It uses the durable channel `up`
 * of the topic `welcome` and finishes what an interrupted run has left there, so that nothing piles
 * up. Ends when the message is finished, or rejects with the first error or the signal's reason.
 */
import {
  CLOSE_WAIT_TEXT,
  CLS_COMMAND,
  encodeFin,
  encodeIdentify,
  encodeRdy,
  encodeSub,
  FrameDecoder,
  FrameEvent,
  FrameType,
  HEARTBEAT_TEXT,
  MAGIC_V2,
  MESSAGE_BODY_OFFSET,
  MESSAGE_BYTES_MAX_DEFAULT,
  MESSAGE_ID_OFFSET,
  NOP_COMMAND,
  readAttempts,
} from "@sluice/shared/protocol";

/** The topic of the demonstration; examples use another one, which stays the user's. */
export const WELCOME_TOPIC = "welcome";
const WELCOME_CHANNEL = "up";
const LOOKUP_RETRY_MS = 10;
const READ_BYTES = 16 * 1024;

/** How it went. Durations are those of the steps, in milliseconds. */
export interface WelcomeReport {
  readonly body: string;
  readonly id: string;
  readonly attempts: number;
  /** The broker as `host:port`, as discovery gave it. */
  readonly address: string;
  readonly publishedMs: number;
  readonly foundMs: number;
  readonly receivedMs: number;
  readonly finishedMs: number;
}

/** Where to reach the services: addresses like `http://127.0.0.1:4151`. */
export interface WelcomeTargets {
  readonly gatewayUrl: string;
  readonly discoveryUrl: string;
}

/** Sends `body` through. `body` should be unlike any before it. */
export async function sendWelcome(
  { gatewayUrl, discoveryUrl }: WelcomeTargets,
  body: string,
  signal: AbortSignal,
): Promise<WelcomeReport> {
  const lap = stopwatch();
  await publish(gatewayUrl, body, signal);
  const publishedMs = lap();
  const { hostname, port } = await findBroker(discoveryUrl, signal);
  const foundMs = lap();
  const conn = await Deno.connect({ hostname, port });
  // Small commands in a row must not wait for the acknowledgement of the one before.
  conn.setNoDelay(true);
  const close = () => conn.close();
  signal.addEventListener("abort", close);
  try {
    const { id, attempts, finished } = await receive(conn, body);
    const receivedMs = lap();
    await finished();
    const address = `${hostname}:${port}`;
    return { body, id, attempts, address, publishedMs, foundMs, receivedMs, finishedMs: lap() };
  } catch (error) {
    // A connection that we closed ourselves fails in its own words.
    signal.throwIfAborted();
    throw error;
  } finally {
    signal.removeEventListener("abort", close);
    if (!signal.aborted) conn.close();
  }
}

/** Each call gives the milliseconds since the last. */
function stopwatch(): () => number {
  let last = performance.now();
  return () => {
    const now = performance.now();
    const lapMs = now - last;
    last = now;
    return lapMs;
  };
}

async function publish(gatewayUrl: string, body: string, signal: AbortSignal): Promise<void> {
  const response = await fetch(`${gatewayUrl}/pub?topic=${WELCOME_TOPIC}`, {
    method: "POST",
    body,
    signal,
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`publishing was answered ${response.status}: ${text}`);
}

interface LookupReply {
  readonly producers?: readonly {
    readonly broadcast_address: string;
    readonly tcp_port: number;
  }[];
}

/** Asks until the broker has told discovery about the topic, which takes a moment. */
async function findBroker(
  discoveryUrl: string,
  signal: AbortSignal,
): Promise<{ hostname: string; port: number }> {
  for (;;) {
    const response = await fetch(`${discoveryUrl}/lookup?topic=${WELCOME_TOPIC}`, { signal });
    const text = await response.text();
    if (response.ok) {
      const [producer] = (JSON.parse(text) as LookupReply).producers ?? [];
      if (producer !== undefined) {
        return { hostname: producer.broadcast_address, port: producer.tcp_port };
      }
    } else if (response.status !== 404) {
      throw new Error(`the lookup was answered ${response.status}: ${text}`);
    }
    await new Promise((resolve) => setTimeout(resolve, LOOKUP_RETRY_MS));
    signal.throwIfAborted();
  }
}

interface Received {
  readonly id: string;
  readonly attempts: number;
  /** Resolves when the broker has read our FIN. */
  finished(): Promise<void>;
}

/** Subscribes and finishes every message up to the wanted one. */
async function receive(conn: Deno.Conn, wanted: string): Promise<Received> {
  await writeAll(
    conn,
    MAGIC_V2,
    encodeIdentify({ client_id: "up", hostname: "localhost", user_agent: "sluice-up" }),
    encodeSub(WELCOME_TOPIC, WELCOME_CHANNEL),
    encodeRdy(1),
  );
  const decoder = new FrameDecoder(MESSAGE_BYTES_MAX_DEFAULT + MESSAGE_BODY_OFFSET + 4);
  const text = new TextDecoder();
  for (;;) {
    await nextFrame(conn, decoder);
    if (decoder.type === FrameType.ERROR) throw new Error(`the broker says ${decoder.text()}`);
    if (decoder.type !== FrameType.MESSAGE) continue;
    const { buffer, start, end } = decoder;
    const attempts = readAttempts(buffer, start);
    const id = buffer.slice(start + MESSAGE_ID_OFFSET, start + MESSAGE_BODY_OFFSET);
    const body = text.decode(buffer.subarray(start + MESSAGE_BODY_OFFSET, end));
    await writeAll(conn, encodeFin(id));
    if (body !== wanted) continue;
    return { id: text.decode(id), attempts, finished: () => closeConsumer(conn, decoder) };
  }
}

/** A FIN has no answer, but commands are read in order: the answer to CLS covers it. */
async function closeConsumer(conn: Deno.Conn, decoder: FrameDecoder): Promise<void> {
  await writeAll(conn, CLS_COMMAND);
  do {
    await nextFrame(conn, decoder);
    if (decoder.type === FrameType.ERROR) throw new Error(`the broker says ${decoder.text()}`);
  } while (decoder.type !== FrameType.RESPONSE || decoder.text() !== CLOSE_WAIT_TEXT);
}

/** Reads the next frame into the decoder and answers heartbeats. */
async function nextFrame(conn: Deno.Conn, decoder: FrameDecoder): Promise<void> {
  for (;;) {
    const event = decoder.next();
    if (event === FrameEvent.BAD_FRAME) throw new Error("the broker sent a malformed frame");
    if (event === FrameEvent.FRAME) {
      if (decoder.type !== FrameType.RESPONSE || decoder.text() !== HEARTBEAT_TEXT) return;
      await writeAll(conn, NOP_COMMAND);
      continue;
    }
    const chunk = new Uint8Array(READ_BYTES);
    const bytes = await conn.read(chunk);
    if (bytes === null) throw new Error("the broker closed the connection");
    decoder.feed(chunk, 0, bytes);
  }
}

async function writeAll(conn: Deno.Conn, ...commands: Uint8Array[]): Promise<void> {
  for (const command of commands) {
    for (let at = 0; at < command.length;) at += await conn.write(command.subarray(at));
  }
}
