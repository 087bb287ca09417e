/** The `topic` and `channel` parameters, read and judged as nsqd's handlers do. */
import { isValidName } from "../protocol/mod.ts";
import { HttpError } from "./http_error.ts";
import type { Query } from "./query.ts";

/** The value of a parameter; throws 400 `MISSING_ARG_<NAME>` when it is absent. It may be empty. */
export function requiredArgument(query: Query, name: string): string {
  const value = query.get(name);
  if (value === undefined) throw new HttpError(400, `MISSING_ARG_${name.toUpperCase()}`);
  return value;
}

/** A valid `topic`; throws 400 `MISSING_ARG_TOPIC` or `INVALID_ARG_TOPIC`. */
export function topicArgument(query: Query): string {
  return nameArgument(query, "topic");
}

/** A valid `topic` and `channel`, judged in this order. */
export function channelArguments(query: Query): { topic: string; channel: string } {
  return { topic: nameArgument(query, "topic"), channel: nameArgument(query, "channel") };
}

function nameArgument(query: Query, name: string): string {
  const value = requiredArgument(query, name);
  if (!isValidName(value)) throw new HttpError(400, `INVALID_ARG_${name.toUpperCase()}`);
  return value;
}
