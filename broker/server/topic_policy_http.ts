/**
 * `GET` and `PUT /v1/topics/{topic}/policy`: what is decided for one topic and differs from the
 * broker's settings. Who may do so is decided in `http_access.ts`.
 *
 * ```
 * put     {"ack_mode":"write_ack"}              null is the broker's
 * answer  {"ack_mode":"write_ack","quota_bytes":null,"quota_action":null,
 *          "publish_rate":null,"publish_bytes_rate":null,
 *          "effective":{"ack_mode":"write_ack","quota_bytes":0,"quota_action":"refuse",
 *                       "publish_rate":0,"publish_bytes_rate":0},
 *          "held_bytes":4096}
 * ```
 *
 * A `PUT` changes the fields that it names and answers once that would survive a crash. A body that is
 * not right is 400 `INVALID_POLICY` with the reason in `detail`, and changes nothing.
 */
import { HttpError, type HttpRoute, jsonReply } from "@sluice/shared/http";
import { isValidName } from "@sluice/shared/protocol";
import { DiskError } from "@sluice/shared/runtime";
import {
  ACK_MODES,
  type Broker,
  isAckMode,
  isQuotaAction,
  isQuotaBytes,
  isRate,
  QUOTA_ACTIONS,
  RefusedError,
  type TopicPolicy,
} from "../broker.ts";
import type { Topic } from "../queue/mod.ts";
import { refusal } from "./http_refusal.ts";
import { FieldError, readJson } from "./json_body.ts";

const PATH = "/v1/topics/:topic/policy";
/** What a policy takes in the log, at most. */
const EVENT_BYTES = 4096;

/** What a field may be, and how that is told. */
const FIELDS: ReadonlyMap<string, { isValid(value: unknown): boolean; readonly wanted: string }> =
  new Map([
    ["ack_mode", { isValid: isAckMode, wanted: `one of ${ACK_MODES.join(", ")}` }],
    ["quota_bytes", { isValid: isQuotaBytes, wanted: "a number of bytes, 0 for any" }],
    ["quota_action", { isValid: isQuotaAction, wanted: `one of ${QUOTA_ACTIONS.join(", ")}` }],
    ["publish_rate", { isValid: isRate, wanted: "a number of messages a second, 0 for any" }],
    ["publish_bytes_rate", { isValid: isRate, wanted: "a number of bytes a second, 0 for any" }],
  ]);

/** The routes, for the door of a broker. */
export function topicPolicyRoutes(broker: Broker): HttpRoute[] {
  return [
    {
      method: "GET",
      path: PATH,
      handle: (call) => policyReply(broker, topicOf(broker, call.pathParameter("topic"))),
    },
    {
      method: "PUT",
      path: PATH,
      handle: async (call) => {
        const name = call.pathParameter("topic");
        topicOf(broker, name);
        const changes = await readChanges(broker, call.request);
        if (typeof changes === "string") {
          return jsonReply({ message: "INVALID_POLICY", detail: changes }, 400);
        }
        return await configure(broker, name, changes);
      },
    },
  ];
}

/** Carries out a change and answers once it is on disk. */
async function configure(broker: Broker, name: string, changes: TopicPolicy): Promise<Response> {
  if (broker.failure !== null) throw new HttpError(503, "STORAGE_FAULT");
  if (broker.exiting) throw refusal(new RefusedError("exiting", "exiting"));
  try {
    await broker.storage.allowPolicies();
  } catch (error) {
    if (!(error instanceof DiskError)) throw error;
    broker.logger.error("Cannot raise the levels of the data folder", { error: String(error) });
    throw new HttpError(503, "STORAGE_FAULT");
  }
  while (!broker.hasRoom(EVENT_BYTES, 1)) await broker.room();
  // It may have been deleted meanwhile.
  const topic = topicOf(broker, name);
  try {
    broker.administration.configureTopic(topic, changes);
    await broker.durableTo(broker.position);
  } catch (error) {
    if (broker.failure === null) throw error;
    throw refusal(error);
  }
  return policyReply(broker, topic);
}

function policyReply(broker: Broker, { state }: Topic): Response {
  const {
    quota_bytes = null,
    quota_action = null,
    publish_rate = null,
    publish_bytes_rate = null,
  } = state.policy;
  const { bytesMax, action } = broker.quotaOf(state);
  const rates = broker.limits.ratesOf(state);
  return jsonReply({
    ack_mode: state.ackMode,
    quota_bytes,
    quota_action,
    publish_rate,
    publish_bytes_rate,
    effective: {
      ack_mode: broker.storage.ackModeOf(state),
      quota_bytes: bytesMax,
      quota_action: action,
      publish_rate: rates.messages,
      publish_bytes_rate: rates.bytes,
    },
    held_bytes: Math.round(broker.quotas.heldBytes(state)),
  });
}

/** The changes that a body asks for, or what is wrong with it. */
async function readChanges(broker: Broker, request: Request): Promise<TopicPolicy | string> {
  let value: unknown;
  try {
    value = await readJson(broker.clock, request);
  } catch (error) {
    if (!(error instanceof FieldError)) throw error;
    return error.message;
  }
  const reason = policyRefusal(value, "the body");
  return reason ?? value as TopicPolicy;
}

/** What is wrong with changes of a policy, `what` being what has them; null when nothing is. */
export function policyRefusal(value: unknown, what = "it"): string | null {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return `${what} is not a JSON object`;
  }
  const changes = Object.entries(value);
  if (changes.length === 0) return `${what} names no field`;
  for (const [name, wanted] of changes) {
    const field = FIELDS.get(name);
    if (field === undefined) {
      return `there is no field ${JSON.stringify(name)}; there are: ${
        [...FIELDS.keys()].join(", ")
      }`;
    }
    if (wanted !== null && !field.isValid(wanted)) {
      return `${name} is ${field.wanted}, or null for the setting of the broker`;
    }
  }
  return null;
}

function topicOf(broker: Broker, name: string): Topic {
  if (!isValidName(name)) throw new HttpError(400, "INVALID_TOPIC");
  const topic = broker.topics.get(name);
  if (topic === undefined) throw new HttpError(404, "TOPIC_NOT_FOUND");
  return topic;
}
