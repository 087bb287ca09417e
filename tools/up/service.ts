/**
 * A service as a child process. Its output goes to a log file, or with a prefix to the terminal; the
 * last lines are kept for when it dies. It never outlives this process by an error or an exit: what
 * is still running then gets SIGTERM.
 */
import type { ServicePlan } from "./plan.ts";

/** The log starts again at the beginning when it gets longer. */
const LOG_BYTES_MAX = 64 * 1024 * 1024;
const LAST_LINES_MAX = 20;
const LINE_CHARACTERS_MAX = 2_000;
/** A service that does not drain within this is killed. */
const DRAIN_TIMEOUT_MS = 30_000;

/** How a service came to its end. */
export interface Exit {
  readonly code: number;
  /** `exit code 1` or `SIGKILL`. */
  readonly text: string;
}

/** A running service. */
export class Service {
  readonly plan: ServicePlan;
  /** Resolves when the process has ended and all its output was read. */
  readonly ended: Promise<Exit>;
  readonly #child: Deno.ChildProcess;
  readonly #lastLines: string[] = [];
  #running = true;

  /** `show` takes each line when the output is for the terminal; otherwise it goes to the log file. */
  constructor(
    plan: ServicePlan,
    options: { cwd: string; show: ((line: string) => void) | null },
  ) {
    this.plan = plan;
    this.#child = new Deno.Command(Deno.execPath(), {
      args: [...plan.command],
      cwd: options.cwd,
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
      // Ctrl-C in a terminal is for us alone: the service then gets one signal, in its turn.
      detached: true,
      ...(options.show === null ? { env: { NO_COLOR: "1" } } : {}),
    }).spawn();
    globalThis.addEventListener("unload", this.#onUnload);
    this.ended = this.#follow(options.show);
  }

  /** The end of what it printed, oldest first. */
  get lastLines(): readonly string[] {
    return this.#lastLines;
  }

  get isRunning(): boolean {
    return this.#running;
  }

  /** Asks it to stop and waits until it has. */
  async drain(): Promise<Exit> {
    this.#signal("SIGTERM");
    const timer = setTimeout(() => this.#signal("SIGKILL"), DRAIN_TIMEOUT_MS);
    try {
      return await this.ended;
    } finally {
      clearTimeout(timer);
    }
  }

  readonly #onUnload = () => this.#signal("SIGTERM");

  #signal(signal: Deno.Signal): void {
    if (!this.#running) return;
    try {
      this.#child.kill(signal);
    } catch (error) {
      // It ended in this very moment.
      if (!(error instanceof TypeError) && !(error instanceof Deno.errors.NotFound)) throw error;
    }
  }

  async #follow(show: ((line: string) => void) | null): Promise<Exit> {
    const log = show === null ? new LogFile(this.plan.logPath) : null;
    const onLine = (line: string) => {
      this.#lastLines.push(line);
      if (this.#lastLines.length > LAST_LINES_MAX) this.#lastLines.shift();
      if (show === null) log?.write(line);
      else show(line);
    };
    try {
      const [status] = await Promise.all([
        this.#child.status,
        readLines(this.#child.stdout, onLine),
        readLines(this.#child.stderr, onLine),
      ]);
      return { code: status.code, text: status.signal ?? `exit code ${status.code}` };
    } finally {
      this.#running = false;
      globalThis.removeEventListener("unload", this.#onUnload);
      log?.close();
    }
  }
}

/** The log of one run. Lines are few; writing them at once keeps them whole at a crash. */
class LogFile {
  readonly #file: Deno.FsFile;
  #bytes = 0;

  constructor(path: string) {
    this.#file = Deno.openSync(path, { write: true, create: true, truncate: true });
  }

  write(line: string): void {
    const bytes = new TextEncoder().encode(`${line}\n`);
    if (this.#bytes + bytes.length > LOG_BYTES_MAX) {
      this.#file.truncateSync(0);
      this.#file.seekSync(0, Deno.SeekMode.Start);
      this.#bytes = 0;
    }
    this.#bytes += bytes.length;
    for (let at = 0; at < bytes.length;) at += this.#file.writeSync(bytes.subarray(at));
  }

  close(): void {
    this.#file.close();
  }
}

/** Calls `onLine` for each line of a stream; a very long one comes in pieces. */
export async function readLines(
  stream: ReadableStream<Uint8Array>,
  onLine: (line: string) => void,
): Promise<void> {
  let pending = "";
  const decoder = new TextDecoder();
  for await (const chunk of stream) {
    pending += decoder.decode(chunk, { stream: true });
    const lines = pending.split("\n");
    pending = lines.pop() ?? "";
    for (const line of lines) onLine(line.slice(0, LINE_CHARACTERS_MAX));
    while (pending.length > LINE_CHARACTERS_MAX) {
      onLine(pending.slice(0, LINE_CHARACTERS_MAX));
      pending = pending.slice(LINE_CHARACTERS_MAX);
    }
  }
  pending += decoder.decode();
  if (pending !== "") onLine(pending);
}
