/**
 * How `load.ts` reaches a server: a connection in clear, under TLS, compressed, or with HTTP on it, and
 * what comes back for a publish. In clear there is no promise and no copy more than the runtime's own.
 */
import {
  DeflateDecoder,
  DeflateEncoder,
  encodeIdentify,
  encodeMpub,
  encodeMpubBody,
  encodePub,
  FRAME_HEADER_BYTES,
  FrameDecoder,
  FrameEvent,
  FrameType,
  HEARTBEAT_TEXT,
  MAGIC_V2,
  OK_TEXT,
  readInt32,
  SnappyDecoder,
  SnappyEncoder,
  utf8Bytes,
  utf8Text,
} from "@sluice/shared/protocol";
import type { Connection } from "@sluice/shared/runtime";
import { CompressedConnection } from "@sluice/shared/server";

/** What a load goes over. */
export const TRANSPORTS = ["plain", "tls", "snappy", "deflate", "http"] as const;
export type Transport = typeof TRANSPORTS[number];

/** Whom to connect to, and how. */
export interface LinkOptions {
  /** `host:port`; of HTTP if that is the transport. */
  readonly address: string;
  readonly transport: Transport;
  /** The certificate that has signed the server's, which is for `localhost`, as PEM. */
  readonly authority: string;
}

/** The answers to publishes of one connection, one publish at a time. */
export interface PublishReplies {
  /** A heartbeat has come since this was last set to false. */
  heartbeat: boolean;
  /** Where the next read of the connection goes. */
  room(): Uint8Array;
  /** Takes what was read, and tells whether the publish is confirmed. Throws if it is refused. */
  take(bytes: number): boolean;
}

const CLIENT = { client_id: "bench", user_agent: "sluice-bench" };
const REPLY_BYTES_MAX = 4096;
/** What a server gives a client that asks for none. */
const DEFLATE_LEVEL = 6;
/** HTTP is asked for one thing at a time, so this can only be the end of the answer. */
const HTTP_OK_END = utf8Bytes(`\r\n\r\n${OK_TEXT}`);
const HTTP_STATUS_END = "HTTP/1.1 200".length;

/** A connection that is identified and upgraded, or one that takes requests of HTTP. */
export async function openLink(
  { address, transport, authority }: LinkOptions,
): Promise<Connection> {
  const separator = address.lastIndexOf(":");
  const plain = await Deno.connect({
    hostname: address.slice(0, separator),
    port: Number(address.slice(separator + 1)),
  });
  plain.setNoDelay(true);
  const link = new SocketLink(plain, address);
  if (transport === "http") return link;
  await link.writeAll(MAGIC_V2);
  if (transport === "plain") {
    await link.writeAll(encodeIdentify(CLIENT));
    await readResponse(link);
    return link;
  }
  const feature = transport === "tls" ? "tls_v1" : transport;
  const request = { ...CLIENT, feature_negotiation: true, [feature]: true };
  await link.writeAll(encodeIdentify(request));
  const reply: Record<string, unknown> = JSON.parse(await readResponse(link));
  if (reply[feature] !== true) throw new Error(`Cannot connect: the server has no ${feature}`);
  const upgraded = transport === "tls"
    ? new SocketLink(
      await Deno.startTls(plain, { hostname: "localhost", caCerts: [authority] }),
      address,
    )
    : transport === "snappy"
    ? new CompressedConnection(link, new SnappyEncoder(), new SnappyDecoder())
    : new CompressedConnection(link, new DeflateEncoder(DEFLATE_LEVEL), new DeflateDecoder());
  await readResponse(upgraded);
  return upgraded;
}

/** What is sent to publish `bodies` to `topic`. */
export function encodePublish(
  { address, transport }: LinkOptions,
  topic: string,
  bodies: readonly Uint8Array[],
): Uint8Array {
  const isBatch = bodies.length > 1;
  if (transport !== "http") {
    return isBatch ? encodeMpub(topic, bodies) : encodePub(topic, bodies[0]!);
  }
  const body = isBatch ? encodeMpubBody(bodies) : bodies[0]!;
  const path = isBatch ? `/mpub?topic=${topic}&binary=true` : `/pub?topic=${topic}`;
  const head = utf8Bytes(
    `POST ${path} HTTP/1.1\r\nHost: ${address}\r\nContent-Length: ${body.length}\r\n\r\n`,
  );
  const request = new Uint8Array(head.length + body.length);
  request.set(head);
  request.set(body, head.length);
  return request;
}

/** The answers of a connection that was just opened over `transport`. */
export function publishReplies(transport: Transport): PublishReplies {
  return transport === "http" ? new HttpReplies() : new FrameReplies();
}

/** A socket of the runtime as what the layers are put on. */
class SocketLink implements Connection {
  readonly localAddress = "";
  readonly #socket: Deno.Conn;

  constructor(socket: Deno.Conn, readonly remoteAddress: string) {
    this.#socket = socket;
  }

  read(into: Uint8Array): Promise<number | null> {
    return this.#socket.read(into);
  }

  async writeAll(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length;) at += await this.#socket.write(bytes.subarray(at));
  }

  closeWrite(): void {
    this.#socket.closeWrite().catch(() => {});
  }

  close(): void {
    this.#socket.close();
  }
}

/** Answers to PUB and MPUB. */
class FrameReplies implements PublishReplies {
  heartbeat = false;
  readonly #buffer = new Uint8Array(REPLY_BYTES_MAX);
  readonly #decoder = new FrameDecoder(1 << 20);

  room(): Uint8Array {
    return this.#buffer;
  }

  take(bytes: number): boolean {
    const decoder = this.#decoder;
    let isConfirmed = false;
    decoder.feed(this.#buffer, 0, bytes);
    while (decoder.next() === FrameEvent.FRAME) {
      if (decoder.type === FrameType.ERROR) throw new Error(`Cannot publish: ${decoder.text()}`);
      if (decoder.end - decoder.start === HEARTBEAT_TEXT.length) this.heartbeat = true;
      else isConfirmed = true;
    }
    return isConfirmed;
  }
}

/** Answers to `/pub` and `/mpub`: status 200 and the body `OK`, or an error. */
class HttpReplies implements PublishReplies {
  heartbeat = false;
  readonly #buffer = new Uint8Array(REPLY_BYTES_MAX);
  /** Of the answer so far. */
  #length = 0;

  room(): Uint8Array {
    return this.#length === 0 ? this.#buffer : this.#buffer.subarray(this.#length);
  }

  take(bytes: number): boolean {
    this.#length += bytes;
    const buffer = this.#buffer;
    const length = this.#length;
    if (length < HTTP_STATUS_END) return false;
    const isOk = buffer[9] === 0x32 && buffer[10] === 0x30 && buffer[11] === 0x30;
    if (!isOk || length === REPLY_BYTES_MAX) {
      throw new Error(`Cannot publish: ${utf8Text(buffer, 0, length)}`);
    }
    const end = length - HTTP_OK_END.length;
    for (let at = 0; at < HTTP_OK_END.length; at++) {
      if (buffer[end + at] !== HTTP_OK_END[at]) return false;
    }
    this.#length = 0;
    return true;
  }
}

/** The text of the next response. Reads no byte more, since what follows may be TLS or compressed. */
async function readResponse(link: Connection): Promise<string> {
  const header = await readExactly(link, FRAME_HEADER_BYTES);
  const text = utf8Text(await readExactly(link, readInt32(header, 0) - 4));
  if (readInt32(header, 4) !== FrameType.RESPONSE) throw new Error(`Cannot connect: ${text}`);
  return text;
}

async function readExactly(link: Connection, bytes: number): Promise<Uint8Array> {
  const into = new Uint8Array(bytes);
  for (let at = 0; at < bytes;) {
    const count = await link.read(into.subarray(at));
    if (count === null) throw new Error("Cannot connect: the server closed the connection");
    at += count;
  }
  return into;
}
