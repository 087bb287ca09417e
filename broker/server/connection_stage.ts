/**
 * What each connection over HTTP has of the memory for publishes that arrive. Over HTTP/2 one connection
 * may send many at a time, and must not have all of that memory; an NSQ connection sends one body after
 * the other.
 *
 * Only connections with a body on its way are remembered.
 */
import { UNIX_PEER } from "@sluice/shared/runtime";

/** See the module. */
export class ConnectionStage {
  /** Bytes of one connection, at most. */
  bytesMax: number;
  /** Times that a connection would have had more. */
  refusedCount = 0;
  readonly #staged = new Map<string, number>();

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax;
  }

  /** Connections with a body on its way. */
  get size(): number {
    return this.#staged.size;
  }

  /** Takes memory for a connection, by its address; false when it has too much already. */
  take(connection: string, bytes: number): boolean {
    // Connections over a Unix socket have one address together, and there is one client a machine.
    if (connection === UNIX_PEER || connection === "") return true;
    const staged = this.#staged.get(connection) ?? 0;
    if (staged + bytes > this.bytesMax) {
      this.refusedCount++;
      return false;
    }
    if (bytes > 0) this.#staged.set(connection, staged + bytes);
    return true;
  }

  /** Gives back what `take` took. */
  giveBack(connection: string, bytes: number): void {
    const staged = this.#staged.get(connection);
    if (staged === undefined) return;
    if (staged > bytes) this.#staged.set(connection, staged - bytes);
    else this.#staged.delete(connection);
  }
}
