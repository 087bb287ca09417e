/**
 * Real processes for tests: our services as a user starts them (with their own permission set, on
 * ports the system picks), programs of NSQ, and temporary folders. Everything is disposable, so a
 * failed test leaves neither a process nor a folder behind. When a process ends without being asked
 * to, the end of its log is printed.
 */
import { equal } from "node:assert/strict";
import { eventually, within } from "./wait.ts";

/** The root of the workspace, where the permission sets are. */
export const ROOT_PATH = decodeURIComponent(new URL("../../", import.meta.url).pathname);

const LOG_LINES_MAX = 2000;
const LOG_LINES_SHOWN = 40;

/** A service of ours. */
export type ServiceName = "broker" | "discovery";

/** How a program that ran to its end came out. */
export interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** An answer over HTTP with its body read. */
export interface Answer {
  readonly status: number;
  readonly text: string;
}

/** A folder that is removed with all that is in it. */
export class TemporaryFolder implements AsyncDisposable {
  private constructor(readonly path: string) {}

  static async create(): Promise<TemporaryFolder> {
    return new TemporaryFolder(await Deno.makeTempDir({ prefix: "sluice_test_" }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.path, { recursive: true });
  }
}

/** A running program whose output is gathered, the last lines of it. */
export class Process implements AsyncDisposable {
  readonly lines: string[] = [];
  /** The exit code; set when the process has ended. 137 stands for SIGKILL, 143 for SIGTERM. */
  code: number | null = null;
  readonly #child: Deno.ChildProcess;
  readonly #name: string;
  readonly #ended: Promise<number>;
  #asked = false;

  constructor(name: string, command: string, args: readonly string[]) {
    this.#name = name;
    this.#child = new Deno.Command(command, {
      args: [...args],
      cwd: ROOT_PATH,
      env: { NO_COLOR: "1" },
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
    this.#ended = this.#watch();
  }

  get pid(): number {
    return this.#child.pid;
  }

  get log(): string {
    return this.lines.join("\n");
  }

  /** Memory of the process that is in use, from the kernel. */
  get residentBytes(): number {
    return this.#statusBytes("VmRSS");
  }

  /** The most that {@linkcode residentBytes} ever was. */
  get residentBytesPeak(): number {
    return this.#statusBytes("VmHWM");
  }

  /** Waits for a line of the log. Fails as soon as the process has ended without it. */
  logged(pattern: RegExp): Promise<RegExpMatchArray> {
    return eventually(`${pattern} in the log of ${this.#name}`, () => {
      for (const line of this.lines) {
        const match = line.match(pattern);
        if (match !== null) return match;
      }
      if (this.code === null) return false;
      throw new Error(`${this.#name} ended with ${this.code} before logging ${pattern}`);
    });
  }

  /** Resolves with the exit code once the process has ended by itself. */
  ended(): Promise<number> {
    this.#asked = true;
    return within(`the end of ${this.#name}`, this.#ended);
  }

  /** Asks for an orderly stop; resolves with the exit code. */
  terminate(): Promise<number> {
    if (this.code === null) this.#child.kill("SIGTERM");
    return this.ended();
  }

  /** `kill -9`: the process gets no chance to do anything more. */
  async kill(): Promise<void> {
    this.#asked = true;
    if (this.code === null) this.#child.kill("SIGKILL");
    await this.#ended;
  }

  /** {@linkcode Process.kill} in a while, unless it has ended by then. */
  async killAfter(delayMs: number): Promise<void> {
    this.#asked = true;
    const timer = setTimeout(() => this.code === null && this.#child.kill("SIGKILL"), delayMs);
    await this.#ended;
    clearTimeout(timer);
  }

  /** Whether it ends within `delayMs`, for whatever reason. */
  async endsWithin(delayMs: number): Promise<boolean> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<false>((resolve) => {
      timer = setTimeout(() => resolve(false), delayMs);
    });
    const ended = await Promise.race([this.#ended.then(() => true), late]);
    clearTimeout(timer);
    return ended;
  }

  /** Asks for an orderly stop and does not wait for it. */
  askToStop(): void {
    this.#asked = true;
    if (this.code === null) this.#child.kill("SIGTERM");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.code !== null && !this.#asked) {
      const last = this.lines.slice(-LOG_LINES_SHOWN).join("\n");
      console.error(`${this.#name} ended by itself with ${this.code}:\n${last}`);
    }
    await this.kill();
  }

  async #watch(): Promise<number> {
    const [{ code }] = await Promise.all([
      this.#child.status,
      this.#gather(this.#child.stdout),
      this.#gather(this.#child.stderr),
    ]);
    this.code = code;
    return code;
  }

  async #gather(stream: ReadableStream<Uint8Array>): Promise<void> {
    let rest = "";
    const decoder = new TextDecoder();
    for await (const chunk of stream) {
      const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      this.lines.push(...lines);
      this.lines.splice(0, this.lines.length - LOG_LINES_MAX);
    }
    if (rest !== "") this.lines.push(rest);
  }

  #statusBytes(key: string): number {
    const status = Deno.readTextFileSync(`/proc/${this.pid}/status`);
    const kibibytes = status.match(new RegExp(`^${key}:\\s*(\\d+) kB$`, "m"))?.[1];
    if (kibibytes === undefined) throw new Error(`No ${key} in the status of ${this.#name}`);
    return Number(kibibytes) * 1024;
  }
}

/** A process that answers HTTP on loopback. */
export class HttpProcess extends Process {
  tcpPort = 0;
  httpPort = 0;

  get tcpAddress(): string {
    return `127.0.0.1:${this.tcpPort}`;
  }

  get httpAddress(): string {
    return `127.0.0.1:${this.httpPort}`;
  }

  /** Resolves when the ports are known from the log and `/ping` answers. NSQ logs as we do. */
  async ready(doors: readonly ("TCP" | "HTTP")[] = ["TCP", "HTTP"]): Promise<void> {
    if (doors.includes("TCP")) {
      this.tcpPort = Number((await this.logged(/\bTCP: listening on \S+:(\d+)/))[1]);
    }
    this.httpPort = Number((await this.logged(/\bHTTP: listening on \S+:(\d+)/))[1]);
    equal((await this.get("/ping")).text, "OK");
  }

  async get(path: string): Promise<Answer> {
    const response = await fetch(`http://${this.httpAddress}${path}`);
    return { status: response.status, text: await response.text() };
  }

  async post(path: string, body: BodyInit = ""): Promise<Answer> {
    const response = await fetch(`http://${this.httpAddress}${path}`, { method: "POST", body });
    return { status: response.status, text: await response.text() };
  }

  /** Posts, and fails unless the answer is 200. */
  async order(path: string, body: BodyInit = ""): Promise<void> {
    const { status, text } = await this.post(path, body);
    equal(status, 200, `POST ${path}: ${text}`);
  }
}

/** A broker or a discovery service. */
export class Service extends HttpProcess {
  private constructor(name: ServiceName, args: readonly string[]) {
    super(name, Deno.execPath(), serviceArguments(name, args));
  }

  /**
   * Starts a service on free ports and waits until it answers. More `args` may follow; a later flag
   * does not override an earlier one, so ports are given only when `args` names none.
   */
  static async start(name: ServiceName, args: readonly string[] = []): Promise<Service> {
    const service = Service.spawn(name, args);
    try {
      await service.ready();
      return service;
    } catch (error) {
      await service[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Starts a service as {@linkcode Service.start} does, and waits for nothing. */
  static spawn(name: ServiceName, args: readonly string[] = []): Service {
    return new Service(name, [...defaultArguments(args), ...args]);
  }

  /** Starts a broker on a data folder. */
  static broker(dataPath: string, args: readonly string[] = []): Promise<Service> {
    return Service.start("broker", [`--data-path=${dataPath}`, ...args]);
  }

  /** Runs a service that is expected to end by itself. */
  static async run(name: ServiceName, args: readonly string[]): Promise<Outcome> {
    return await runToEnd(Deno.execPath(), serviceArguments(name, args));
  }

  /** Makes a topic with channels, so that what is published from now on is for all of them. */
  async createChannels(topic: string, ...channels: readonly string[]): Promise<void> {
    await this.order(`/topic/create?topic=${topic}`);
    for (const channel of channels) {
      await this.order(`/channel/create?topic=${topic}&channel=${channel}`);
    }
  }

  /** Statistics of a topic; `undefined` while there is no such topic. */
  async topic(name: string): Promise<TopicFigures | undefined> {
    const { text } = await this.get(`/stats?format=json&topic=${name}`);
    // As nsqd: null when the topic that was asked for is not there.
    const document: { topics: TopicFigures[] | null } = JSON.parse(text);
    return document.topics?.find(({ topic_name }) => topic_name === name);
  }

  /** Statistics of a channel; `undefined` while there is no such channel. */
  async channel(topic: string, channel: string): Promise<ChannelFigures | undefined> {
    const found = await this.topic(topic);
    return found?.channels.find(({ channel_name }) => channel_name === channel);
  }
}

/** What the tests read of a topic in `/stats`. */
export interface TopicFigures {
  readonly topic_name: string;
  readonly depth: number;
  readonly message_count: number;
  readonly paused: boolean;
  readonly channels: readonly ChannelFigures[];
}

/** What the tests read of a channel in `/stats`. */
export interface ChannelFigures {
  readonly channel_name: string;
  readonly depth: number;
  readonly in_flight_count: number;
  readonly deferred_count: number;
  readonly requeue_count: number;
  readonly timeout_count: number;
  readonly paused: boolean;
  readonly client_count: number;
  readonly clients: readonly { readonly ready_count: number; readonly in_flight_count: number }[];
}

/** Runs a program to its end, with `input` on its standard input. */
export async function runToEnd(
  command: string,
  args: readonly string[],
  input = "",
): Promise<Outcome> {
  const child = new Deno.Command(command, {
    args: [...args],
    cwd: ROOT_PATH,
    env: { NO_COLOR: "1" },
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  try {
    const stdin = child.stdin.getWriter();
    await stdin.write(new TextEncoder().encode(input));
    await stdin.close();
    const { code, stdout, stderr } = await within(`the end of ${command}`, child.output());
    const decoder = new TextDecoder();
    return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
  } catch (error) {
    child.kill("SIGKILL");
    throw error;
  }
}

function serviceArguments(name: ServiceName, args: readonly string[]): string[] {
  return ["run", "--quiet", `-P=${name}`, `${name}/main.ts`, ...args];
}

function defaultArguments(args: readonly string[]): string[] {
  const isGiven = (flag: string) => args.some((argument) => argument.startsWith(flag));
  return ["--tcp-address", "--http-address", "--broadcast-address"]
    .filter((flag) => !isGiven(flag))
    .map((flag) => flag === "--broadcast-address" ? `${flag}=127.0.0.1` : `${flag}=127.0.0.1:0`);
}
