/**
 * `/config/:opt`: the value of a setting by its name in the file, and a new value for one that can be
 * changed while running. Contract section 3.2.
 */
import {
  errorReply,
  type HttpCall,
  HttpError,
  type HttpRoute,
  jsonReply,
  readBody,
  textReply,
} from "@sluice/shared/http";
import type { Logger } from "@sluice/shared/telemetry";

/** The longest value that is read, where nsqd takes one as long as a message. */
export const CONFIG_VALUE_BYTES_MAX = 64 * 1024;

/** The settings, by their names in the file. */
export interface ConfigAccess {
  /** A value as it is answered: JSON, or text as it is. */
  get(option: string): { readonly body: string; readonly json: boolean } | undefined;
  /** A value as a flag takes it, so that `change` takes it back. */
  text?(option: string): string | undefined;
  /** Changes a setting to what the body of a request says, or says why not. */
  change(option: string, body: string): ConfigRefusal | null;
}

/** Why a setting was not changed: none of that name can be, or not to that value. */
export type ConfigRefusal = "INVALID_OPTION" | "INVALID_VALUE";

/** What the routes stand on. */
export interface ConfigHttpOptions {
  readonly config: ConfigAccess;
  readonly logger: Logger;
  /** The largest value that is read. */
  readonly valueBytesMax: number;
  /** Runs out when a peer takes too long to send a value. */
  readonly deadline: () => { readonly signal: AbortSignal; cancel(): void };
}

/** Both routes. */
export function configRoutes(options: ConfigHttpOptions): HttpRoute[] {
  const path = "/config/:opt";
  return [
    { method: "GET", path, handle: (call) => told(options, call.pathParameter("opt")) },
    { method: "PUT", path, handle: (call) => change(options, call) },
  ];
}

function told({ config }: ConfigHttpOptions, name: string): Response {
  const value = config.get(name);
  if (value === undefined) return errorReply(400, "INVALID_OPTION");
  return value.json ? jsonReply(JSON.parse(value.body)) : textReply(value.body);
}

async function change(options: ConfigHttpOptions, call: HttpCall): Promise<Response> {
  const name = call.pathParameter("opt");
  const text = await read(options, call.request);
  const refusal = options.config.change(name, text);
  if (refusal !== null) throw new HttpError(400, refusal);
  options.logger.info("A setting was changed over HTTP", {
    name,
    value: text,
    peer: call.remoteAddress,
  });
  return told(options, name);
}

/** The value; one that is empty or too long is refused before the name is looked at, as in nsqd. */
async function read(
  { valueBytesMax, deadline }: ConfigHttpOptions,
  request: Request,
): Promise<string> {
  const late = deadline();
  try {
    const body = await readBody(request, valueBytesMax, late.signal);
    if (body.kind === "cut") throw new HttpError(408, "BODY_INCOMPLETE");
    if (body.kind === "too_large" || body.bytes.length === 0) {
      throw new HttpError(413, "INVALID_VALUE");
    }
    return new TextDecoder().decode(body.bytes);
  } finally {
    late.cancel();
  }
}
