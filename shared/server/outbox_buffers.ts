/** What most outboxes of busy consumers hold, with a message on top. */
export const LARGE_BUFFER_BYTES = 128 * 1024;
/** So many are kept, 4 MiB in all; more are left to the garbage collector. */
export const LARGE_BUFFERS_MAX = 32;

/**
 * Large output buffers that nobody uses at the moment, for all connections of a service: one that sends
 * much fills the same few again and again instead of growing new ones after each write, and one that
 * is idle holds none. Bounded by {@linkcode LARGE_BUFFERS_MAX}.
 */
export class OutboxBuffers {
  readonly #unused: Uint8Array[] = [];

  /** A buffer of {@linkcode LARGE_BUFFER_BYTES}, with anything in it. */
  take(): Uint8Array {
    return this.#unused.pop() ?? new Uint8Array(LARGE_BUFFER_BYTES);
  }

  /** Takes a buffer that nothing is read from or written to any more, if it is one of these. */
  give(buffer: Uint8Array): void {
    if (buffer.length === LARGE_BUFFER_BYTES && this.#unused.length < LARGE_BUFFERS_MAX) {
      this.#unused.push(buffer);
    }
  }
}
