/**
 * Sending packets that may be lost: UDP as a parameter. Nothing is received. That a packet was sent
 * does not mean that anybody got it.
 */
export interface Datagrams {
  /** Looks the host up, once. Rejects with `ConnectionError` when there is no such host. */
  connect(host: string, port: number): Promise<DatagramSender>;
}

/** Where packets go to. */
export interface DatagramSender {
  /** Sends one packet, borrowed until it resolves. Rejects with `ConnectionError`. */
  send(packet: Uint8Array): Promise<void>;
  /** Safe to call again. */
  close(): void;
}
