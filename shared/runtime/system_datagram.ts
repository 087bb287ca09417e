/** Real UDP. An error that comes back for an earlier packet is reported by the next `send`. */
import { createSocket } from "node:dgram";
import { lookup } from "node:dns/promises";
import { ConnectionError } from "./connection.ts";
import type { Datagrams, DatagramSender } from "./datagram.ts";

/** {@linkcode Datagrams} over the machine's UDP. */
export class SystemDatagrams implements Datagrams {
  async connect(host: string, port: number): Promise<DatagramSender> {
    try {
      const { address, family } = await lookup(host);
      return new SystemDatagramSender(address, port, family === 6 ? "udp6" : "udp4");
    } catch (error) {
      throw new ConnectionError(`Cannot send to ${host}:${port}: ${messageOf(error)}`, {
        cause: error,
      });
    }
  }
}

class SystemDatagramSender implements DatagramSender {
  readonly #socket: ReturnType<typeof createSocket>;
  readonly #address: string;
  readonly #port: number;
  #failed: Error | null = null;
  #closed = false;

  constructor(address: string, port: number, type: "udp4" | "udp6") {
    this.#address = address;
    this.#port = port;
    this.#socket = createSocket(type);
    this.#socket.on("error", (error: Error) => this.#failed = error);
  }

  send(packet: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      const failed = this.#failed;
      this.#failed = null;
      if (failed !== null) return reject(this.#error(failed));
      if (this.#closed) return reject(this.#error(new Error("the socket is closed")));
      this.#socket.send(packet, this.#port, this.#address, (error) => {
        if (error) reject(this.#error(error));
        else resolve();
      });
    });
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#socket.close();
  }

  #error(cause: Error): ConnectionError {
    return new ConnectionError(
      `Cannot send to ${this.#address}:${this.#port}: ${cause.message}`,
      { cause },
    );
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
