/**
 * Many brokers that only say what topics they have, as a thread: each is an address of loopback with the
 * same port. {@linkcode BrokerThread} is the side of who uses them; the module itself is the thread, too.
 */
import { parentPort, Worker } from "node:worker_threads";
import { serveHttp } from "@sluice/shared/runtime/system";

/** What the thread is told. */
type Order =
  | { readonly kind: "start"; readonly brokers: number; readonly topics: number }
  | { readonly kind: "asked" }
  | { readonly kind: "add topic" };

type Answer = number | Readonly<Record<string, number>>;

/** How often each path was asked for. */
export type Asked = Readonly<Record<string, number>>;

/** The address of the n-th broker. */
export function fakeBrokerHost(index: number): string {
  return `127.1.${Math.floor(index / 200)}.${(index % 200) + 1}`;
}

/** See the module. */
export class BrokerThread {
  readonly #worker: Worker;
  #port = 0;

  private constructor() {
    this.#worker = new Worker(new URL(import.meta.url));
  }

  static async start(brokers: number, topics: number): Promise<BrokerThread> {
    const thread = new BrokerThread();
    thread.#port = Number(await thread.#order({ kind: "start", brokers, topics }));
    return thread;
  }

  get port(): number {
    return this.#port;
  }

  /** What was asked for since the last time. */
  async asked(): Promise<Asked> {
    const answer = await this.#order({ kind: "asked" });
    return typeof answer === "number" ? {} : answer;
  }

  /** One broker has the topic `new-topic` from now on. */
  async addTopic(): Promise<void> {
    await this.#order({ kind: "add topic" });
  }

  async stop(): Promise<void> {
    await this.#worker.terminate();
  }

  #order(order: Order): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#worker.once("message", (answer: Answer) => resolve(answer));
      this.#worker.once("error", reject);
      this.#worker.postMessage(order);
    });
  }
}

/** The side of the thread. */
class Brokers {
  readonly #asked = new Map<string, number>();
  #topics: readonly { readonly topic: string; readonly channels: readonly string[] }[] = [];
  #hasNewTopic = false;

  carryOut(order: Order): Answer {
    switch (order.kind) {
      case "start":
        return this.#start(order.brokers, order.topics);
      case "asked": {
        const asked = Object.fromEntries(this.#asked);
        this.#asked.clear();
        return asked;
      }
      case "add topic":
        this.#hasNewTopic = true;
        return 0;
    }
  }

  #start(brokers: number, topics: number): number {
    this.#topics = Array.from({ length: topics }, (_, index) => ({
      topic: `topic-${index}`,
      channels: index % 10 === 0 ? ["archive"] : [],
    }));
    let port = 0;
    for (let index = 0; index < brokers; index++) {
      port = serveHttp({
        hostname: fakeBrokerHost(index),
        port,
        handler: (request) => this.#answer(request),
        onError: () => new Response(null, { status: 500 }),
      }).port;
    }
    return port;
  }

  #answer(request: Request): Response {
    const { pathname, hostname } = new URL(request.url);
    this.#asked.set(pathname, (this.#asked.get(pathname) ?? 0) + 1);
    const isChanged = this.#hasNewTopic && hostname === fakeBrokerHost(0);
    const head = {
      format: 1,
      instance: hostname,
      revision: isChanged ? 2 : 1,
      publish_ready: true,
      consume_ready: true,
      reasons: [],
    };
    if (pathname === "/v1/registry/head") return Response.json(head);
    if (pathname !== "/v1/registry") return new Response(null, { status: 404 });
    return Response.json({
      ...head,
      broadcast_address: hostname,
      hostname: `broker-${hostname}`,
      tcp_port: 4150,
      http_port: 4151,
      version: "1.3.0",
      topology_zone: "zone-1",
      topology_region: "region-1",
      topics: isChanged ? [...this.#topics, { topic: "new-topic", channels: [] }] : this.#topics,
    });
  }
}

if (parentPort !== null) {
  const port = parentPort;
  const brokers = new Brokers();
  port.on("message", (order: Order) => port.postMessage(brokers.carryOut(order)));
}
