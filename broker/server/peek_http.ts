/**
 * What can be done with single messages of a channel, in JSON:
 *
 * - `GET .../peek?count=&from=`: messages that are not finished, by offset, with their bodies; nothing is
 *   consumed. A body that is UTF-8 is told as text, any other in base64, and only the beginning of a long
 *   one. `next` is the offset to go on from, null at the end.
 * - `GET .../deferred?count=`: those that are deferred, the first due first, without bodies.
 * - `DELETE .../deferred/{id}`: finishes one of these; there is a line in the audit trail.
 * - `POST .../move` `{"to_topic":"t","count":100}`: moves messages that wait to another topic; see `move.ts`.
 *
 * Bodies are what consumers are trusted with, so to peek needs the scope `consume`. To move is to publish
 * anywhere, so that needs `admin` on the node.
 */
import { HttpError, type HttpRoute, jsonReply, type Query } from "@sluice/shared/http";
import { isValidName } from "@sluice/shared/protocol";
import { type Broker, type LookedMessage, MOVE_COUNT_MAX, type MoveReport } from "../broker.ts";
import type { Channel } from "../queue/mod.ts";
import { refusal } from "./http_refusal.ts";
import { FieldError, integerField, readJsonObject } from "./json_body.ts";

/** Messages of one answer; and bytes of their bodies, of each and of all. */
export const PEEK_COUNT_MAX = 1000;
export const PEEK_BODY_BYTES_MAX = 64 * 1024;
export const PEEK_BYTES_MAX = 1024 * 1024;
const COUNT_DEFAULT = 10;
const DEFERRED_COUNT_DEFAULT = 100;
const MOVE_COUNT_DEFAULT = 1000;
const CHANNEL_PATH = "/v1/topics/:topic/channels/:channel";
const ID_REGEXP = /^[0-9a-f]{16}$/;

/** The routes, for the door of a broker. */
export function messageRoutes(broker: Broker): HttpRoute[] {
  const of = (call: { pathParameter(name: string): string }) =>
    channelOf(broker, call.pathParameter("topic"), call.pathParameter("channel"));
  return [
    {
      method: "GET",
      path: `${CHANNEL_PATH}/peek`,
      handle: (call) => peek(broker, of(call), call.query),
    },
    {
      method: "GET",
      path: `${CHANNEL_PATH}/deferred`,
      handle: (call) => deferred(broker, of(call), call.query),
    },
    {
      method: "DELETE",
      path: `${CHANNEL_PATH}/deferred/:id`,
      handle: (call) => cancel(broker, of(call), call.pathParameter("id")),
    },
    {
      method: "POST",
      path: `${CHANNEL_PATH}/move`,
      handle: (call) => move(broker, of(call), call.request),
    },
  ];
}

async function peek(broker: Broker, channel: Channel, query: Query): Promise<Response> {
  const { messages, next } = await broker.look.peek(channel, {
    from: numberArgument(query, "from", 0, Number.MAX_SAFE_INTEGER),
    count: numberArgument(query, "count", COUNT_DEFAULT, PEEK_COUNT_MAX),
    bodyBytesMax: PEEK_BODY_BYTES_MAX,
    bytesMax: PEEK_BYTES_MAX,
  });
  return jsonReply({
    messages: messages.map((looked) => ({
      ...messageDocument(looked),
      ...bodyDocument(looked.message.body),
      truncated: looked.message.body.length < looked.message.bodyBytes,
    })),
    next,
  });
}

async function deferred(broker: Broker, channel: Channel, query: Query): Promise<Response> {
  const count = numberArgument(query, "count", DEFERRED_COUNT_DEFAULT, PEEK_COUNT_MAX);
  const messages = await broker.look.deferred(channel, count);
  return jsonReply({
    deferred_count: channel.deferredCount,
    messages: messages.map(messageDocument),
  });
}

async function cancel(broker: Broker, channel: Channel, id: string): Promise<Response> {
  if (!ID_REGEXP.test(id)) throw new HttpError(400, "INVALID_ID");
  try {
    broker.checkDeciding();
    const found = await broker.look.find(channel, id);
    if (found === null) throw new HttpError(404, "MESSAGE_NOT_FOUND");
    const { offset, sequence, dueMs } = found.message;
    broker.checkDeciding();
    // Somebody may have been before us.
    const place = channel.deleted
      ? null
      : channel.look(offset, sequence, dueMs, broker.clock.wallMs());
    if (place === null) throw new HttpError(404, "MESSAGE_NOT_FOUND");
    if (place.state !== "deferred") throw new HttpError(409, "NOT_DEFERRED");
    channel.cancelDeferred(offset);
    await broker.storage.drain();
  } catch (error) {
    if (error instanceof HttpError) throw error;
    throw refusal(error);
  }
  const { state, topic } = channel;
  broker.audit.record({
    event: "deferred_cancelled",
    topic: topic.name,
    channel: state.name,
    id,
  });
  return jsonReply({ id, cancelled: true });
}

async function move(broker: Broker, channel: Channel, request: Request): Promise<Response> {
  let report: MoveReport | null;
  try {
    const body = await readJsonObject(broker.clock, request, ["to_topic", "count"]);
    const to = body["to_topic"];
    if (typeof to !== "string" || !isValidName(to)) {
      throw new FieldError("to_topic is the name of a topic");
    }
    if (to === channel.topic.name) throw new FieldError("to_topic is another topic");
    const count = integerField(body, "count", 1, MOVE_COUNT_MAX) ?? MOVE_COUNT_DEFAULT;
    broker.checkDeciding();
    report = await broker.mover.move(channel, to, count);
  } catch (error) {
    if (error instanceof HttpError) throw error;
    if (error instanceof FieldError) {
      return jsonReply({ message: "INVALID_MOVE", detail: error.message }, 400);
    }
    throw refusal(error);
  }
  if (report === null) throw new HttpError(429, "TOO_MANY_MOVES");
  const { moved, movedBytes, damaged, complete, stopped } = report;
  if (stopped !== null && moved === 0) throw refusal(stopped);
  return jsonReply({
    moved,
    moved_bytes: movedBytes,
    damaged,
    remaining: channel.depth,
    complete,
    stopped: stopped === null ? null : refusal(stopped).code,
  });
}

function messageDocument({ message, place }: LookedMessage) {
  return {
    id: message.id,
    offset: message.offset,
    state: place.state,
    attempts: place.attempts,
    due_ms: place.dueMs === 0 ? null : place.dueMs,
    timestamp_ms: message.timestampMs,
    body_bytes: message.bodyBytes,
  };
}

/** Text where the bytes are UTF-8, which half a character at the cut is not against. */
function bodyDocument(body: Uint8Array): { body: string; encoding: "text" | "base64" } {
  try {
    const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
    return { body: decoder.decode(body, { stream: true }), encoding: "text" };
  } catch {
    return { body: body.toBase64(), encoding: "base64" };
  }
}

function numberArgument(query: Query, name: string, otherwise: number, most: number): number {
  const text = query.get(name) ?? "";
  if (text === "") return otherwise;
  const value = /^\d{1,16}$/.test(text) ? Number(text) : Infinity;
  if (value > most) throw new HttpError(400, `INVALID_${name.toUpperCase()}`);
  return value;
}

function channelOf(broker: Broker, topicName: string, channelName: string): Channel {
  if (!isValidName(topicName)) throw new HttpError(400, "INVALID_TOPIC");
  if (!isValidName(channelName)) throw new HttpError(400, "INVALID_CHANNEL");
  const topic = broker.topics.get(topicName);
  if (topic === undefined) throw new HttpError(404, "TOPIC_NOT_FOUND");
  const channel = topic.channels.get(channelName);
  if (channel === undefined) throw new HttpError(404, "CHANNEL_NOT_FOUND");
  return channel;
}
