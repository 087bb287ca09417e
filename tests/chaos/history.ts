/**
 * What a chaos run knows for sure: what was published and what the producer was told of it, what came
 * to consumers, what gateways have put aside, and when which service was not there.
 *
 *     body = "<" producer "." number "." bytes-of-padding ">" padding
 *
 * Every body is sent once, so two ids of one body are one publish stored twice. Times are wall-clock
 * milliseconds, of one machine.
 */

/** How a publish got to a gateway. */
export type Door = "client" | "nsqjs" | "http";

/** What the producer was told: it is taken, it is not, or nothing that says so. */
export type Result = "ok" | "refused" | "unknown";

/** One publish, of `count` messages from number `first` on; none for an attempt to connect. */
export interface PublishRecord {
  readonly producer: string;
  readonly first: number;
  readonly count: number;
  readonly topic: string;
  readonly door: Door;
  readonly gateway: string;
  readonly startMs: number;
  readonly deferMs: number;
  endMs: number;
  /** Null while the producer waits. */
  result: Result | null;
  /** Why it is not ok. */
  text: string;
  /** The gateway said that it is in its spool, or null where it does not say. */
  spooled: boolean | null;
}

/** A message as it is stored: one id at one broker. */
export interface Copy {
  readonly id: string;
  readonly broker: string;
  readonly topic: string;
  /** Of the first delivery: who got it, the how-manieth it was there, and when. */
  readonly consumer: string;
  readonly arrival: number;
  readonly attempts: number;
  readonly firstMs: number;
  deliveries: number;
}

/** What may be wrong with a service for a while. */
export type SpanKind = "down" | "stopping" | "away" | "spool limited";

/**
 * A time in which something was not as it should be. `down`: a gateway is not there, or is stopping;
 * `stopping`: only that, in order; `away`: a broker is not there, does not answer or takes nothing; `spool limited`: a gateway may refuse
 * what no broker takes.
 */
export interface Span {
  readonly target: string;
  readonly kind: SpanKind;
  readonly fromMs: number;
  untilMs: number;
}

/** A delivery, by whichever client. */
export interface Received {
  readonly consumer: string;
  readonly topic: string;
  readonly id: string;
  readonly attempts: number;
  readonly body: string;
}

const NAME_REGEXP = /<([\w-]+)\.(\d+)\.(\d+)>/;
const STRANGERS_MAX = 100;
/** The part of an id that names the broker. */
const NODE_DIGITS = 4;

/** See the module. */
export class History {
  readonly publishes: PublishRecord[] = [];
  /** By producer and number. */
  readonly seen = new Map<string, Copy[]>();
  /** What came and cannot have been sent, in words. */
  readonly strangers: string[] = [];
  strangerCount = 0;
  /** The gateway and reason, by producer and number. */
  readonly quarantined = new Map<string, string>();
  readonly spans: Span[] = [];
  deliveryCount = 0;
  #lastDeliveryMs = 0;

  /** When the last message came. */
  get lastDeliveryMs(): number {
    return this.#lastDeliveryMs;
  }

  /** A publish is about to be sent. */
  begin(
    publish: Omit<PublishRecord, "startMs" | "endMs" | "result" | "text" | "spooled">,
    startMs = Date.now(),
  ): PublishRecord {
    const record: PublishRecord = {
      ...publish,
      startMs,
      endMs: startMs,
      result: null,
      text: "",
      spooled: null,
    };
    this.publishes.push(record);
    return record;
  }

  /** The producer knows what became of it. */
  end(record: PublishRecord, result: Result, text = "", spooled: boolean | null = null): void {
    record.endMs = Date.now();
    record.result = result;
    record.text = text;
    record.spooled = spooled;
  }

  /** Notes a delivery. */
  received({ consumer, topic, id, attempts, body }: Received): void {
    this.deliveryCount++;
    const nowMs = this.#lastDeliveryMs = Date.now();
    const name = NAME_REGEXP.exec(body);
    if (name === null || name.index !== 0) return this.#stranger(`no name in "${start(body)}"`);
    const [text, producer, number, paddingBytes] = name;
    const bytes = text.length + Number(paddingBytes);
    if (body.length !== bytes || body.slice(text.length) !== padding(Number(paddingBytes))) {
      return this.#stranger(`"${start(body)}" has ${body.length} bytes, or others than were sent`);
    }
    const key = keyOf(producer!, Number(number));
    const copies = this.seen.get(key);
    const known = copies?.find((copy) => copy.id === id);
    if (known !== undefined) {
      known.deliveries++;
      return;
    }
    const broker = `broker-${parseInt(id.slice(0, NODE_DIGITS), 16)}`;
    const arrival = this.deliveryCount;
    const copy = { id, broker, topic, consumer, arrival, attempts, firstMs: nowMs, deliveries: 1 };
    if (copies === undefined) this.seen.set(key, [copy]);
    else copies.push(copy);
  }

  /** Notes what a gateway has put aside: a message, or a batch of them. */
  aside(gateway: string, reason: string, body: string): void {
    const found = [...body.matchAll(new RegExp(NAME_REGEXP, "g"))];
    if (found.length === 0) this.#stranger(`no name in the quarantine of ${gateway}`);
    for (const [, producer, number] of found) {
      this.quarantined.set(keyOf(producer!, Number(number)), `${gateway}: ${reason}`);
    }
  }

  /** Something is not as it should be from now on; the answer ends that. */
  span(target: string, kind: SpanKind): () => void {
    const span: Span = { target, kind, fromMs: Date.now(), untilMs: Infinity };
    this.spans.push(span);
    return () => span.untilMs = Date.now();
  }

  #stranger(words: string): void {
    this.strangerCount++;
    if (this.strangers.length < STRANGERS_MAX) this.strangers.push(words);
  }
}

/** What {@linkcode History.seen} and {@linkcode History.quarantined} go by. */
export function keyOf(producer: string, number: number): string {
  return `${producer}.${number}`;
}

/** The body of a message. */
export function bodyOf(producer: string, number: number, paddingBytes: number): string {
  return `<${producer}.${number}.${paddingBytes}>${padding(paddingBytes)}`;
}

function padding(bytes: number): string {
  return ".".repeat(bytes);
}

function start(body: string): string {
  return body.slice(0, 60);
}
