/**
 * `/pub` and `/mpub`: contract section 3.2. A 200 is sent once the messages are on disk, or
 * as the topic's mode says.
 *
 * A body of `/pub` that is, or may be, above the broker's threshold goes to the log in parts while it
 * arrives; every other body is in memory whole.
 *
 * With the headers `Sluice-Producer` and `Sluice-Sequence` a request is one publish of that producer: a
 * repeat stores nothing and gets the 200 of the first one, with {@linkcode DUPLICATE_HEADER}, once that is
 * on disk. A batch must fit one group then, so that all of it is stored or nothing.
 */
import {
  type BatchParts,
  batchParts,
  errorReply,
  HttpError,
  onePart,
  publishDeferMs,
  publishQuery,
  publishTopic,
  readBody,
  textReply,
} from "@sluice/shared/http";
import { parseProducerId, PRODUCER_SEQUENCE_MAX } from "@sluice/shared/protocol";
import { InvariantError, parseTraceparent, type TraceContext } from "@sluice/shared/runtime";
import {
  type Broker,
  clientOf,
  type LargeUpload,
  type Origin,
  PRODUCER_ATTRIBUTE_BYTES,
} from "../broker.ts";
import type { Topic } from "../queue/mod.ts";
import { ConnectionStage } from "./connection_stage.ts";
import { ChunkReader } from "./chunk_reader.ts";
import { DRAINING, refusal, ThrottledError } from "./http_refusal.ts";

/** Limits of publishing over HTTP. */
export interface HttpPublisherOptions {
  readonly messageBytesMax: number;
  readonly bodyBytesMax: number;
  /** Bounds `defer`. */
  readonly deferMsMax: number;
  readonly maxDeflateLevel: number;
  /** How long a peer may take to send a body. */
  readonly bodyTimeoutMs: number;
  /** What each connection may have of the memory for publishes; all of it when absent. */
  readonly stage?: ConnectionStage;
}

/** When a publish that was refused for want of disk space, or by a drain, may be tried again. */
const RETRY_AFTER: readonly [string, string][] = [["Retry-After", "1"]];
const PRODUCER_HEADER = "Sluice-Producer";
const SEQUENCE_HEADER = "Sluice-Sequence";
/** Says that the publish was stored before. */
export const DUPLICATE_HEADER = "Sluice-Duplicate";
const SEQUENCE_REGEXP = /^\d{1,16}$/;

/** Who publishes. */
export interface PublishSource {
  /** As `host:port`, which stands for the connection. */
  readonly remoteAddress: string;
  /** Who it is known as; empty or absent when nobody has asked. */
  readonly identity?: string;
}

/** Somebody in a test. */
const NOBODY: PublishSource = { remoteAddress: "" };

/** Carries out publishes over HTTP. */
export class HttpPublisher {
  readonly #broker: Broker;
  readonly #options: HttpPublisherOptions;
  readonly #stage: ConnectionStage;

  constructor(broker: Broker, options: HttpPublisherOptions) {
    this.#broker = broker;
    this.#options = options;
    this.#stage = options.stage ?? new ConnectionStage(Infinity);
  }

  publish(request: Request, from: PublishSource = NOBODY): Promise<Response> {
    const { messageBytesMax } = this.#options;
    if (this.#mayBeLarge(request)) return this.#publishStream(request, from);
    return this.#answer(request, from, messageBytesMax, "MSG_TOO_BIG", async (body) => {
      if (body.length === 0) throw new HttpError(400, "MSG_EMPTY");
      const query = publishQuery(request.url);
      const topic = this.#topic(query);
      const dueMs = this.#dueMs(query);
      return await this.#write(
        topic,
        body,
        onePart(body.length),
        dueMs,
        await this.#origin(request),
        this.#parent(request),
        from,
      );
    });
  }

  /** Whether the body, within the limit as far as is known, may be one for a large message. */
  #mayBeLarge({ headers, body }: Request): boolean {
    const { messageBytesMax } = this.#options;
    const declared = Number(headers.get("content-length") ?? messageBytesMax);
    return body !== null && declared <= messageBytesMax && this.#broker.isLarge(declared);
  }

  /** Publishes a body as it arrives. What comes without a length is gathered up to the threshold. */
  async #publishStream(request: Request, from: PublishSource): Promise<Response> {
    const broker = this.#broker;
    const gatheredMax = request.headers.has("content-length")
      ? 0
      : broker.storage.large.bodyBytesMin;
    const reader = new ChunkReader(request.body!);
    let isLate = false;
    const late = () => {
      isLate = true;
      reader.cancel().catch(() => {});
    };
    broker.exit.add(late);
    if (!this.#take(from, gatheredMax)) {
      broker.exit.remove(late);
      await reader.cancel();
      return errorReply(429, "TOO_MANY_BYTES");
    }
    const timer = broker.clock.setTimer(this.#options.bodyTimeoutMs, late);
    let upload: LargeUpload | null = null;
    let gathered = new Uint8Array(0);
    let bytes = 0;
    try {
      this.#admitFrom(from);
      const query = publishQuery(request.url);
      // A topic is made when the message is there; one that is full need not wait for that.
      this.#admit(broker.topics.get(publishTopic(query)));
      this.#dueMs(query);
      const origin = await this.#origin(request);
      while (true) {
        const chunk = await reader.read().catch(() => undefined);
        if (isLate || chunk === undefined) throw this.#incomplete();
        if (chunk === null) break;
        const before = bytes;
        bytes += chunk.length;
        if (bytes > this.#options.messageBytesMax) throw new HttpError(413, "MSG_TOO_BIG");
        if (upload === null && bytes <= gatheredMax) {
          if (bytes > gathered.length) gathered = grown(gathered, before, bytes, gatheredMax);
          gathered.set(chunk, before);
          continue;
        }
        if (upload === null) {
          upload = broker.beginUpload(late);
          if (upload === null) throw new HttpError(429, "TOO_MANY_BYTES");
          timer.cancel();
          await this.#feed(upload, gathered.subarray(0, before));
        }
        await this.#feed(upload, chunk);
      }
      if (bytes === 0) throw new HttpError(400, "MSG_EMPTY");
      const topic = this.#topic(query);
      const dueMs = this.#dueMs(query);
      let isRepeat = false;
      if (upload === null) {
        isRepeat = await this.#write(
          topic,
          gathered,
          onePart(bytes),
          dueMs,
          origin,
          this.#parent(request),
          from,
        );
      } else {
        this.#admit(topic);
        const { into, firstEnd } = await this.#finish(
          upload,
          topic,
          dueMs,
          origin,
          this.#parent(request),
        );
        isRepeat = firstEnd !== null;
        if (!isRepeat) this.#count(from, 1);
        await broker.confirmable(into, firstEnd ?? broker.position);
      }
      return okReply(isRepeat);
    } catch (error) {
      reader.cancel().catch(() => {});
      if (error instanceof HttpError) return httpErrorReply(error);
      const refused = refusal(error);
      if (refused.code === "STORAGE_FAULT") {
        broker.logger.error("Cannot publish over HTTP", { error: String(error) });
      }
      return httpErrorReply(refused);
    } finally {
      timer.cancel();
      broker.exit.remove(late);
      upload?.abandon();
      this.#giveBack(from, gatheredMax);
    }
  }

  /** Has an upload take all of `bytes`, waiting for room. */
  async #feed(upload: LargeUpload, bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length;) {
      at += upload.receive(bytes, at, bytes.length);
      if (at < bytes.length) await this.#broker.room();
    }
  }

  publishMany(request: Request, from: PublishSource = NOBODY): Promise<Response> {
    const { bodyBytesMax } = this.#options;
    return this.#answer(request, from, bodyBytesMax, "BODY_TOO_BIG", async (body) => {
      const query = publishQuery(request.url);
      const topic = this.#topic(query);
      const dueMs = this.#dueMs(query);
      const parts = batchParts(query, body, this.#options);
      const origin = await this.#origin(request);
      return await this.#write(topic, body, parts, dueMs, origin, this.#parent(request), from);
    });
  }

  /** Reads a body, within the memory that all publishes share until they are on disk. `publish` tells of a repeat. */
  async #answer(
    request: Request,
    from: PublishSource,
    bytesMax: number,
    tooLarge: string,
    publish: (body: Uint8Array) => Promise<boolean>,
  ): Promise<Response> {
    const broker = this.#broker;
    const declared = Number(request.headers.get("content-length") ?? bytesMax);
    if (!(declared <= bytesMax)) {
      await request.body?.cancel();
      return errorReply(413, tooLarge);
    }
    try {
      this.#admit();
      this.#admitFrom(from);
    } catch (error) {
      await request.body?.cancel();
      if (error instanceof HttpError) return httpErrorReply(error);
      throw error;
    }
    if (!this.#take(from, declared)) {
      await request.body?.cancel();
      return errorReply(429, "TOO_MANY_BYTES");
    }
    try {
      return okReply(await publish(await this.#receive(request, bytesMax, tooLarge)));
    } catch (error) {
      if (error instanceof HttpError) return httpErrorReply(error);
      if (error instanceof InvariantError) throw error;
      broker.logger.error("Cannot publish over HTTP", { error: String(error) });
      return errorReply(500, "INTERNAL_ERROR");
    } finally {
      this.#giveBack(from, declared);
    }
  }

  async #receive(request: Request, bytesMax: number, tooLarge: string): Promise<Uint8Array> {
    const late = new AbortController();
    const abort = () => late.abort();
    const { clock, exit } = this.#broker;
    const timer = clock.setTimer(this.#options.bodyTimeoutMs, abort);
    exit.add(abort);
    try {
      const body = await readBody(request, bytesMax, late.signal);
      if (body.kind === "too_large") throw new HttpError(413, tooLarge);
      if (body.kind === "cut") throw this.#incomplete();
      return body.bytes;
    } finally {
      exit.remove(abort);
      timer.cancel();
    }
  }

  /** For a body that has not arrived whole: nobody waits for the rest of it once the broker stops. */
  #incomplete(): HttpError {
    if (this.#broker.exiting) return new HttpError(503, "EXITING");
    return new HttpError(408, "BODY_INCOMPLETE");
  }

  /** Takes memory for a body that arrives; false when the connection or all of them have too much. */
  #take({ remoteAddress }: PublishSource, bytes: number): boolean {
    if (!this.#stage.take(remoteAddress, bytes)) return false;
    if (this.#broker.stage(bytes)) return true;
    this.#stage.giveBack(remoteAddress, bytes);
    return false;
  }

  #giveBack({ remoteAddress }: PublishSource, bytes: number): void {
    this.#stage.giveBack(remoteAddress, bytes);
    this.#broker.unstage(bytes);
  }

  /** Throws `HttpError` for a client that publishes too fast. */
  #admitFrom(from: PublishSource): void {
    const { limits } = this.#broker;
    if (!limits.limitsClients) return;
    try {
      limits.admitClient(clientOf(from.identity ?? "", from.remoteAddress));
    } catch (error) {
      throw refusal(error);
    }
  }

  /** A client has published so many messages. */
  #count(from: PublishSource, messages: number): void {
    const { limits } = this.#broker;
    if (!limits.limitsClients) return;
    limits.publishedBy(clientOf(from.identity ?? "", from.remoteAddress), messages);
  }

  /** Throws `HttpError` while publishes are refused, to a topic if one is given. */
  #admit(topic?: Topic): void {
    try {
      this.#broker.admit();
      if (topic !== undefined) this.#broker.admitTo(topic);
    } catch (error) {
      throw refusal(error);
    }
  }

  #topic(query: ReadonlyMap<string, string>): Topic {
    const name = publishTopic(query);
    try {
      return this.#broker.ensureTopic(name);
    } catch (error) {
      throw refusal(error);
    }
  }

  /** When the messages are due, Unix ms; 0 for at once. */
  #dueMs(query: ReadonlyMap<string, string>): number {
    const deferMs = publishDeferMs(query, this.#options.deferMsMax);
    return deferMs === 0 ? 0 : this.#broker.clock.wallMs() + deferMs;
  }

  /** The trace that a request continues; null when it does not say, or none are made. */
  #parent({ headers }: Request): TraceContext | null {
    return this.#broker.traces === null ? null : parseTraceparent(headers.get("traceparent"));
  }

  /** Whose publish a request is; null when its headers do not say. */
  async #origin({ headers }: Request): Promise<Origin | null> {
    const id = headers.get(PRODUCER_HEADER);
    const text = headers.get(SEQUENCE_HEADER);
    if (id === null && text === null) return null;
    const producer = parseProducerId(id ?? "");
    if (producer === null) throw new HttpError(400, "INVALID_PRODUCER");
    const sequence = text !== null && SEQUENCE_REGEXP.test(text) ? Number(text) : Infinity;
    if (sequence > PRODUCER_SEQUENCE_MAX) throw new HttpError(400, "INVALID_SEQUENCE");
    try {
      await this.#broker.storage.allowProducers();
    } catch (error) {
      throw refusal(error);
    }
    return { producer, sequence };
  }

  /**
   * Writes the messages, in one group when they fit one, and waits for the disk. Returns whether they
   * are a repeat: then only for the first ones.
   */
  async #write(
    topic: Topic,
    body: Uint8Array,
    parts: BatchParts,
    dueMs: number,
    origin: Origin | null,
    parent: TraceContext | null,
    from: PublishSource,
  ): Promise<boolean> {
    const broker = this.#broker;
    this.#admitFrom(from);
    const isWhole = broker.storage.fitsGroup(body.length, parts.count) &&
      !broker.isLarge(parts.largest);
    if (origin !== null && !isWhole) throw new HttpError(413, "BODY_TOO_BIG");
    this.#admit(topic);
    const bytes = body.length + (origin === null ? 0 : PRODUCER_ATTRIBUTE_BYTES);
    while (isWhole && !broker.hasRoom(bytes, parts.count)) {
      await broker.room();
      this.#admit(topic);
    }
    let into = topic;
    let left = parts.count;
    try {
      if (origin !== null) {
        // From here on nobody else has a turn before all of it is written.
        if (into.deleted) into = broker.ensureTopic(into.state.name);
        const firstEnd = broker.repeatEnd(into, origin);
        if (firstEnd !== null) {
          await broker.confirmable(into, firstEnd);
          return true;
        }
        broker.admitOrigin(into, origin);
      }
      for (const { start, end } of parts.each()) {
        if (broker.isLarge(end - start)) {
          into = await this.#writeLarge(into, body, start, end, dueMs, parent);
          continue;
        }
        while (!isWhole && !broker.hasRoom(end - start, 1)) await broker.room();
        if (into.deleted) into = broker.ensureTopic(into.state.name);
        if (parent !== null) broker.traces?.continue(parent);
        // Only what is whole has an origin; its last message has it.
        broker.publish(into, body, start, end, dueMs, --left === 0 ? origin : null);
      }
      this.#count(from, parts.count);
      await broker.confirmable(into, broker.position);
      return false;
    } catch (error) {
      throw refusal(error);
    }
  }

  /**
   * Makes a message of an upload, waiting for room; returns the topic that has it, and for a repeat where
   * the first one ends.
   */
  async #finish(
    upload: LargeUpload,
    topic: Topic,
    dueMs: number,
    origin: Origin | null = null,
    parent: TraceContext | null = null,
  ): Promise<{ into: Topic; firstEnd: number | null }> {
    const broker = this.#broker;
    for (let into = topic;; await broker.room()) {
      if (into.deleted) into = broker.ensureTopic(into.state.name);
      const firstEnd = origin === null ? null : broker.repeatEnd(into, origin);
      if (firstEnd !== null) return { into, firstEnd };
      if (origin !== null) broker.admitOrigin(into, origin);
      broker.traces?.continue(parent);
      if (upload.finish(into, dueMs, origin)) return { into, firstEnd };
      broker.traces?.continue(null);
    }
  }

  /** Writes one message of a body in memory as a large one; returns the topic that has it. */
  async #writeLarge(
    topic: Topic,
    body: Uint8Array,
    start: number,
    end: number,
    dueMs: number,
    parent: TraceContext | null,
  ): Promise<Topic> {
    const broker = this.#broker;
    const upload = broker.uploadOfMemory();
    try {
      for (let at = start; at < end;) {
        at += upload.store(body, at, end);
        if (at < end) await broker.room();
      }
      return (await this.#finish(upload, topic, dueMs, null, parent)).into;
    } finally {
      upload.abandon();
    }
  }
}

/** The first `length` bytes in memory for at least `needed`. */
function grown(
  bytes: Uint8Array,
  length: number,
  needed: number,
  bytesMax: number,
): Uint8Array<ArrayBuffer> {
  const larger = new Uint8Array(Math.max(needed, Math.min(bytesMax, 2 * bytes.length)));
  larger.set(bytes.subarray(0, length));
  return larger;
}

function okReply(isRepeat: boolean): Response {
  return textReply("OK", 200, isRepeat ? [[DUPLICATE_HEADER, "true"]] : []);
}

function httpErrorReply(error: HttpError): Response {
  const { status, code } = error;
  if (error instanceof ThrottledError) {
    return errorReply(status, code, [["Retry-After", String(error.retryAfterSeconds)]]);
  }
  return errorReply(status, code, code === DRAINING ? RETRY_AFTER : []);
}
