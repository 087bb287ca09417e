/**
 * A real broker at work in this process: real disk, clock, sockets and event loop, with a disk that
 * writes down what it is asked for, and clients whose knowledge is written down with it. All that
 * they know has an index in the recording, so it can be held against the folder as it could have been
 * at any moment: see `image_judge.ts`.
 */
import { Service, type ServiceSettings } from "@sluice/broker/service";
import type { AckMode } from "@sluice/broker/storage";
import { brokerSettings } from "@sluice/broker/config";
import { loadSettings } from "@sluice/shared/config";
import {
  serveHttp,
  serveHttps,
  SystemClock,
  SystemDisk,
  SystemNetwork,
  SystemRandom,
} from "@sluice/shared/runtime/system";
import { Logger } from "@sluice/shared/telemetry";
import type { SeededRandom } from "@sluice/shared/testing";
import { RawClient } from "../integration/raw_client.ts";
import { RecordingDisk } from "./recording_disk.ts";

/** The mode in which a topic takes publishes. */
export function modeOf(topic: string): AckMode {
  return MODES[topic] ?? "durable";
}

/** What is known of one message. Times are indices of the recording; Infinity: never. */
export interface Sent {
  readonly topic: string;
  readonly body: string;
  readonly sentAt: number;
  confirmedAt: number;
  id: string | null;
  /** When the id was first seen. */
  idAt: number;
  /** By channel: when a FIN was sent, and when it was known to be on disk. */
  readonly finishes: Map<string, { sentAt: number; durableAt: number }>;
}

/** What is known of a topic that comes and goes. */
export interface Fleeting {
  readonly name: string;
  createdAt: number;
  deleteSentAt: number;
  deletedAt: number;
}

/** A run, recorded. */
export interface ImageRun {
  readonly settings: ServiceSettings;
  readonly disk: RecordingDisk;
  readonly messages: Map<string, Sent>;
  readonly fleeting: readonly Fleeting[];
  /** When the topics and channels that stay were there. */
  readonly setUpAt: number;
  readonly channels: readonly (readonly [topic: string, channel: string])[];
}

/** `pins` leaves a few messages for long: their files are compacted before they go. */
const CHANNELS = [
  ["orders", "worked"],
  ["orders", "slow"],
  ["orders", "pins"],
  ["alone", "c"],
  ["written", "c"],
  ["loose", "c"],
  ["large", "c"],
] as const;
const MODES: Readonly<Record<string, AckMode>> = { written: "write_ack", loose: "nsq_relaxed" };
/** As publishes are spread: those to `alone` prove what is durable. */
const PUBLISHED = ["orders", "orders", "orders", "orders", "alone", "alone", "written", "loose"];
const LOG_FILE_BYTES = 64 * 1024;
/** So small that files leave it, and messages above a quarter go in parts. */
export const RING_BYTES = 256 * 1024;
const FLAGS = ["--max-msg-size=256KiB", "--max-body-size=256KiB"];
/** Of so many messages `pins` leaves one, and finishes it when it has left so many more. */
const PINS_LEAVE_ONE_OF = 60;
const PINS_MAX = 8;
const LARGE_MESSAGES = 6;
const LARGE_BYTES_MIN = 70_000;
const LARGE_BYTES_MAX = 110_000;
const PRODUCERS = 2;
const PIPELINE = 4;
/** What is deferred keeps its log file: for long only at the end of a run. */
const DEFER_MS_MAX = 100;
const DEFER_LATE_MS_MAX = 60_000;
const LATE_SHARE = 0.8;
/** So often a checkpoint and the removal of files are asked for. */
const MAINTAIN_MESSAGES = 60;
/** `slow` takes nothing for so many messages, then all, and so on. */
const SLOW_MESSAGES = 400;

/** Runs the broker on an empty folder until so many messages are confirmed. */
export async function recordRun(
  path: string,
  random: SeededRandom,
  messages: number,
): Promise<ImageRun> {
  const clock = new SystemClock();
  const disk = new RecordingDisk(new SystemDisk());
  const settings = settingsOf(path);
  const problems: string[] = [];
  const note = (line: string) => {
    // It is open to everybody on purpose.
    if (!line.includes("no source of grants")) problems.push(line);
  };
  const service = await Service.start(settings, {
    disk,
    clock,
    random: new SystemRandom(),
    network: new SystemNetwork(clock),
    serveHttp,
    serveHttps,
    readTextFile: (path) => Promise.reject(new Error(`"${path}" is not asked for`)),
    httpGet: () => Promise.reject(new Error("nobody is asked")),
    askHttp: () => Promise.reject(new Error("nobody is asked")),
    logger: new Logger({ sink: note, clock, level: "warn" }),
    memory: () => ({}),
    onBroken: (error) => problems.push(String(error)),
  });
  try {
    const recorder = new Recorder(service, disk, random, messages);
    const run = await recorder.run();
    if (problems.length > 0) throw new Error(`The broker complains: ${problems.join("\n")}`);
    return { ...run, settings };
  } finally {
    await service.stop();
  }
}

/** The broker's settings for a folder, with files smaller than a flag would allow. */
export function settingsOf(path: string): ServiceSettings {
  const declaration = brokerSettings("host");
  const { values } = loadSettings(declaration, {
    args: [
      `--data-path=${path}`,
      "--tcp-address=127.0.0.1:0",
      "--http-address=127.0.0.1:0",
      ...FLAGS,
    ],
    env: {},
    readFile: () => "",
  });
  return {
    declaration,
    values: { ...values, logFileBytes: LOG_FILE_BYTES, ringBytes: RING_BYTES },
    hostname: "host",
    nodeIdGiven: false,
  };
}

class Recorder {
  readonly #service: Service;
  readonly #disk: RecordingDisk;
  readonly #random: SeededRandom;
  readonly #goal: number;
  readonly #messages = new Map<string, Sent>();
  readonly #fleeting: Fleeting[] = [];
  #confirmed = 0;
  #maintaining: Promise<void> = Promise.resolve();

  constructor(service: Service, disk: RecordingDisk, random: SeededRandom, goal: number) {
    this.#service = service;
    this.#disk = disk;
    this.#random = random;
    this.#goal = goal;
  }

  async run(): Promise<Omit<ImageRun, "settings">> {
    for (const topic of new Set(CHANNELS.map(([topic]) => topic))) {
      await this.#order(`/topic/create?topic=${topic}`);
      const mode = MODES[topic];
      if (mode !== undefined) await this.#decideMode(topic, mode);
    }
    for (const [topic, channel] of CHANNELS) {
      await this.#order(`/channel/create?topic=${topic}&channel=${channel}`);
    }
    const setUpAt = this.#disk.now;
    {
      await using clients = new AsyncDisposableStack();
      const connect = async () => clients.use(await RawClient.connect(this.#service.tcp.port));
      const slow = await connect();
      const consumers = [
        this.#consume(await connect(), "orders", "worked", 100),
        this.#consume(await connect(), "alone", "c", 100),
        this.#consume(await connect(), "written", "c", 100),
        this.#consume(await connect(), "loose", "c", 100),
        this.#consume(await connect(), "large", "c", 2),
        this.#consume(await connect(), "orders", "pins", 1000, PINS_LEAVE_ONE_OF),
        this.#consume(slow, "orders", "slow", 0),
      ];
      const work = [this.#comeAndGo(), this.#produceLarge(await connect())];
      for (let number = 0; number < PRODUCERS; number++) {
        const client = await connect();
        for (let lane = 0; lane < PIPELINE; lane++) work.push(this.#produce(client, slow));
      }
      await Promise.all([...work, ...consumers]);
    }
    await this.#maintaining;
    return {
      disk: this.#disk,
      messages: this.#messages,
      fleeting: this.#fleeting,
      setUpAt,
      channels: CHANNELS,
    };
  }

  get #isOver(): boolean {
    return this.#confirmed >= this.#goal;
  }

  get #deferMsMax(): number {
    return this.#confirmed < this.#goal * LATE_SHARE ? DEFER_MS_MAX : DEFER_LATE_MS_MAX;
  }

  async #produce(client: RawClient, slow: RawClient): Promise<void> {
    const random = this.#random;
    while (!this.#isOver) {
      const kind = random.below(10);
      const topic = random.pick(PUBLISHED);
      const sent = this.#newMessages(topic, kind === 0 ? random.between(2, 12) : 1);
      const bodies = sent.map(({ body }) => body);
      if (kind === 0) await client.mpub(topic, bodies);
      else if (kind === 1) {
        await client.dpub(topic, 1 + random.below(this.#deferMsMax), bodies[0]!);
      } else await client.pub(topic, bodies[0]!);
      this.#confirm(sent);
      // Takes turns: what waits makes a backlog, what is taken lets files go.
      slow.rdy(Math.floor(this.#confirmed / SLOW_MESSAGES) % 2 === 0 ? 0 : 200);
    }
  }

  /** A few messages in parts, spread over the run. */
  async #produceLarge(client: RawClient): Promise<void> {
    const random = this.#random;
    for (let count = 0; count < LARGE_MESSAGES && !this.#isOver; count++) {
      const bytes = random.between(LARGE_BYTES_MIN, LARGE_BYTES_MAX);
      const sent = this.#newMessages("large", 1, () => digits(random, bytes));
      await client.pub("large", sent[0]!.body);
      this.#confirm(sent);
      const next = (count + 1) * this.#goal / LARGE_MESSAGES;
      while (this.#confirmed < next && !this.#isOver) {
        const small = this.#newMessages("alone", 1);
        await client.pub("alone", small[0]!.body);
        this.#confirm(small);
      }
    }
  }

  /** Finishes most, requeues some; what is confirmed on the same connection proves the rest. */
  async #consume(
    client: RawClient,
    topic: string,
    channel: string,
    rdy: number,
    leavesOneOf = 0,
  ): Promise<void> {
    const random = this.#random;
    const key = `${topic}/${channel}`;
    let finishes: Sent[] = [];
    const left: [id: string, sent: Sent][] = [];
    const finish = (id: string, sent: Sent) => {
      client.fin(id);
      sent.finishes.set(key, { sentAt: this.#disk.now, durableAt: Infinity });
      finishes.push(sent);
    };
    client.onMessage = ({ id, body }) => {
      const sent = this.#messages.get(body.split(" ", 1)[0]!);
      if (sent === undefined) throw new Error(`"${body}" was never sent`);
      if (sent.id === null) sent.idAt = this.#disk.now;
      sent.id = id;
      if (leavesOneOf > 0 && Number(body.split(" ", 1)[0]) % leavesOneOf === 0) {
        left.push([id, sent]);
        const oldest = left.length > PINS_MAX ? left.shift() : undefined;
        if (oldest !== undefined) finish(...oldest);
        return;
      }
      if (random.below(12) === 0) return client.req(id, random.below(this.#deferMsMax));
      finish(id, sent);
    };
    await client.sub(topic, channel);
    client.rdy(rdy);
    while (!this.#isOver) {
      const finished = finishes;
      finishes = [];
      const sent = this.#newMessages("alone", 1);
      await client.pub("alone", sent[0]!.body);
      this.#confirm(sent);
      for (const { finishes } of finished) finishes.get(key)!.durableAt = this.#disk.now;
    }
  }

  /** Makes a topic, publishes to it and deletes it, again and again. */
  async #comeAndGo(): Promise<void> {
    while (!this.#isOver) {
      const name = `fleeting${this.#fleeting.length}`;
      const topic: Fleeting = {
        name,
        createdAt: Infinity,
        deleteSentAt: Infinity,
        deletedAt: Infinity,
      };
      this.#fleeting.push(topic);
      await this.#order(`/topic/create?topic=${name}`);
      topic.createdAt = this.#disk.now;
      await this.#order(`/channel/create?topic=${name}&channel=c`);
      await this.#order(`/pub?topic=${name}`, "gone soon");
      topic.deleteSentAt = this.#disk.now;
      await this.#order(`/topic/delete?topic=${name}`);
      topic.deletedAt = this.#disk.now;
    }
  }

  async #order(path: string, body = ""): Promise<void> {
    const url = `http://127.0.0.1:${this.#service.httpPort}${path}`;
    const response = await fetch(url, { method: "POST", body });
    const text = await response.text();
    if (response.status !== 200) throw new Error(`POST ${path}: ${response.status} ${text}`);
  }

  async #decideMode(topic: string, mode: AckMode): Promise<void> {
    const url = `http://127.0.0.1:${this.#service.httpPort}/v1/topics/${topic}/policy`;
    const response = await fetch(url, {
      method: "PUT",
      body: JSON.stringify({ ack_mode: mode }),
    });
    const text = await response.text();
    if (response.status !== 200) throw new Error(`PUT ${url}: ${response.status} ${text}`);
  }

  #newMessages(topic: string, count: number, padding?: () => string): Sent[] {
    return Array.from({ length: count }, () => {
      const name = String(this.#messages.size);
      const body = `${name} ${padding?.() ?? ".".repeat(this.#random.below(800))}`;
      const sent = {
        topic,
        body,
        sentAt: this.#disk.now,
        confirmedAt: Infinity,
        id: null,
        idAt: Infinity,
        finishes: new Map(),
      };
      this.#messages.set(name, sent);
      return sent;
    });
  }

  #confirm(messages: readonly Sent[]): void {
    for (const sent of messages) sent.confirmedAt = this.#disk.now;
    const before = this.#confirmed;
    this.#confirmed += messages.length;
    const isDue = Math.floor(this.#confirmed / MAINTAIN_MESSAGES) >
      Math.floor(before / MAINTAIN_MESSAGES);
    if (isDue) this.#maintaining = this.#service.broker.storage.maintain();
  }
}

/** Text of so many bytes, no two parts of which are alike. */
function digits(random: SeededRandom, bytes: number): string {
  const numbers = Array.from({ length: Math.ceil(bytes / 9) }, () => random.below(1e9));
  return numbers.map((number) => String(number).padStart(9, "0")).join("").slice(0, bytes);
}
