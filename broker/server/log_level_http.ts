/**
 * `GET` and `PUT /v1/log-level`: how much is logged, for good or for a while.
 *
 * ```
 * put     {"level":"debug","for_ms":60000}
 * answer  {"level":"debug","until_ms":1700000060000,"then":"info"}
 * ```
 *
 * What was set for a while goes back by itself to what was set for good, unless the level was changed in
 * another way meanwhile. A body that is not right is 400 `INVALID_LEVEL` with the reason in `detail`.
 */
import { HttpError, type HttpRoute, jsonReply } from "@sluice/shared/http";
import type { Timer } from "@sluice/shared/runtime";
import type { Broker } from "../broker.ts";
import type { ConfigAccess } from "./config_http.ts";
import { FieldError, integerField, readJsonObject } from "./json_body.ts";

const OPTION = "log_level";
/** The longest while. */
export const FOR_MS_MAX = 7 * 24 * 60 * 60 * 1000;
const LEVEL_CHARACTERS_MAX = 1024;

/** Both routes; `config` has the level as a setting. */
export function logLevelRoutes(broker: Broker, config: ConfigAccess): HttpRoute[] {
  const level = new TemporaryLevel(broker, config);
  const path = "/v1/log-level";
  return [
    { method: "GET", path, handle: () => jsonReply(level.document()) },
    { method: "PUT", path, handle: ({ request }) => put(broker, level, request) },
  ];
}

async function put(broker: Broker, level: TemporaryLevel, request: Request): Promise<Response> {
  try {
    const body = await readJsonObject(broker.clock, request, ["level", "for_ms"]);
    const text = body["level"];
    if (typeof text !== "string" || text.length > LEVEL_CHARACTERS_MAX) {
      throw new FieldError("level is a log level, as the setting log_level has it");
    }
    level.set(text, integerField(body, "for_ms", 1, FOR_MS_MAX));
  } catch (error) {
    if (!(error instanceof FieldError)) throw error;
    return jsonReply({ message: "INVALID_LEVEL", detail: error.message }, 400);
  }
  return jsonReply(level.document());
}

/** A level that goes back by itself. */
class TemporaryLevel {
  readonly #broker: Broker;
  readonly #config: ConfigAccess;
  #timer: Timer | null = null;
  #untilMs = 0;
  /** What it is while it is not for good, and what it was before. */
  #level = "";
  #then = "";
  readonly #cancel = () => this.#stop();

  constructor(broker: Broker, config: ConfigAccess) {
    this.#broker = broker;
    this.#config = config;
  }

  document() {
    const isForNow = this.#isForNow;
    return {
      level: this.#current,
      until_ms: isForNow ? this.#untilMs : null,
      then: isForNow ? this.#then : null,
    };
  }

  /** Throws {@linkcode FieldError}. */
  set(text: string, forMs: number | null): void {
    const before = this.#isForNow ? this.#then : this.#current;
    if (this.#config.change(OPTION, text) !== null) {
      throw new FieldError("level is a log level, as the setting log_level has it");
    }
    this.#stop();
    if (forMs === null) return;
    const { clock, exit } = this.#broker;
    this.#level = this.#current;
    this.#then = before;
    this.#untilMs = clock.wallMs() + forMs;
    this.#timer = clock.setTimer(forMs, () => this.#goBack());
    // A process that stops does not wait for it.
    exit.add(this.#cancel);
  }

  get #current(): string {
    // What the option answers is a number, as in nsqd, which no level is set to.
    const text = this.#config.text?.(OPTION);
    if (text !== undefined) return text;
    const value = this.#config.get(OPTION);
    if (value === undefined) throw new HttpError(404, "NOT_FOUND");
    return value.json ? String(JSON.parse(value.body)) : value.body;
  }

  /** Whether the level is one for a while, and nobody has changed it since. */
  get #isForNow(): boolean {
    return this.#timer !== null && this.#current === this.#level;
  }

  #goBack(): void {
    if (this.#isForNow) {
      this.#config.change(OPTION, this.#then);
      this.#broker.logger.info("The log level went back by itself", { level: this.#then });
    }
    this.#stop();
  }

  #stop(): void {
    this.#timer?.cancel();
    this.#timer = null;
    this.#broker.exit.remove(this.#cancel);
  }
}
