/** {@linkcode Datagrams} of a simulated world: packets go to a list, unless they are to fail. */
import { ConnectionError, type Datagrams, type DatagramSender } from "../runtime/mod.ts";

/** See the module. */
export class SimDatagrams implements Datagrams {
  /** What was sent, as text, with its address. */
  readonly packets: { readonly to: string; readonly text: string }[] = [];
  /** Senders not closed. */
  open = 0;
  /** Connecting and sending fail while set. */
  failing: "connect" | "send" | null = null;

  connect(host: string, port: number): Promise<DatagramSender> {
    const to = `${host}:${port}`;
    if (this.failing === "connect") return Promise.reject(new ConnectionError(`no host ${to}`));
    this.open++;
    let isOpen = true;
    return Promise.resolve({
      send: (packet) => {
        if (this.failing === "send") return Promise.reject(new ConnectionError(`no way to ${to}`));
        this.packets.push({ to, text: new TextDecoder().decode(packet) });
        return Promise.resolve();
      },
      close: () => {
        if (isOpen) this.open--;
        isOpen = false;
      },
    });
  }
}
