/**
 * A connection that changes under its reader and writer: TLS and compression are put in between, one
 * after the other, and whoever holds it goes on as before. The plain path costs one call more and no
 * promise. Layers change only while nothing is read or written.
 */
import { CompressionError, type StreamDecoder, type StreamEncoder } from "../protocol/mod.ts";
import {
  type Connection,
  ConnectionError,
  invariant,
  type TlsSettings,
  type TlsState,
} from "../runtime/mod.ts";

const READ_BYTES_MIN = 2048;
const READ_BYTES_MAX = 64 * 1024;

/** See the module. */
export class LayeredConnection implements Connection {
  readonly remoteAddress: string;
  readonly localAddress: string;
  /** What compresses, if anything does. */
  compression: "snappy" | "deflate" | null = null;
  #top: Connection;
  #closed = false;

  constructor(plain: Connection) {
    this.#top = plain;
    this.remoteAddress = plain.remoteAddress;
    this.localAddress = plain.localAddress;
  }

  /** What TLS has settled; `null` in clear text. */
  get tlsState(): TlsState | null {
    return this.#top.tls ?? null;
  }

  /** Whether a layer is in place. */
  get isUpgraded(): boolean {
    return this.tlsState !== null || this.compression !== null;
  }

  read(into: Uint8Array): Promise<number | null> {
    return this.#top.read(into);
  }

  writeAll(bytes: Uint8Array): Promise<void> {
    return this.#top.writeAll(bytes);
  }

  closeWrite(): void {
    this.#top.closeWrite();
  }

  close(): void {
    this.#closed = true;
    this.#top.close();
  }

  /** Answers a TLS handshake; see {@linkcode Connection.startTls}. */
  async answerTls(settings: TlsSettings, timeoutMs: number): Promise<void> {
    const plain = this.#top;
    invariant(plain.startTls !== undefined, "TLS is offered on connections that can speak it");
    this.#put(await plain.startTls(settings, timeoutMs));
  }

  /** Compresses in both directions from here on. */
  compress(name: "snappy" | "deflate", encoder: StreamEncoder, decoder: StreamDecoder): void {
    this.compression = name;
    this.#put(new CompressedConnection(this.#top, encoder, decoder));
  }

  #put(top: Connection): void {
    this.#top = top;
    if (this.#closed) top.close();
  }
}

/** A connection whose bytes are compressed on their way. */
export class CompressedConnection implements Connection {
  readonly remoteAddress: string;
  readonly localAddress: string;
  readonly tls?: TlsState;
  readonly #inner: Connection;
  readonly #encoder: StreamEncoder;
  readonly #decoder: StreamDecoder;
  #buffer = new Uint8Array(READ_BYTES_MIN);
  /** Bytes of the last read. */
  #received = 0;

  constructor(inner: Connection, encoder: StreamEncoder, decoder: StreamDecoder) {
    this.#inner = inner;
    this.#encoder = encoder;
    this.#decoder = decoder;
    this.remoteAddress = inner.remoteAddress;
    this.localAddress = inner.localAddress;
    if (inner.tls !== undefined) this.tls = inner.tls;
  }

  async read(into: Uint8Array): Promise<number | null> {
    try {
      while (true) {
        const decoded = this.#decoder.read(into);
        // What is decoded at once is not waited for.
        const count = typeof decoded === "number" ? decoded : await decoded;
        if (count > 0) return count;
        const bytes = await this.#inner.read(this.#grownBuffer());
        if (bytes === null) return null;
        this.#received = bytes;
        this.#decoder.feed(this.#buffer.subarray(0, bytes));
      }
    } catch (error) {
      throw this.#failed("read from", error);
    }
  }

  async writeAll(bytes: Uint8Array): Promise<void> {
    try {
      const encoded = this.#encoder.encode(bytes);
      await this.#inner.writeAll(encoded instanceof Uint8Array ? encoded : await encoded);
    } catch (error) {
      throw this.#failed("write to", error);
    }
  }

  closeWrite(): void {
    this.#inner.closeWrite();
  }

  close(): void {
    this.#encoder.close();
    this.#decoder.close();
    this.#inner.close();
  }

  /** The buffer, larger when the last read filled it. */
  #grownBuffer(): Uint8Array {
    const { length } = this.#buffer;
    if (this.#received === length && length < READ_BYTES_MAX) {
      this.#buffer = new Uint8Array(Math.min(READ_BYTES_MAX, length * 4));
    }
    return this.#buffer;
  }

  #failed(action: string, error: unknown): unknown {
    if (!(error instanceof CompressionError)) return error;
    const message = `Cannot ${action} ${this.remoteAddress}: ${error.message}`;
    return new ConnectionError(message, { cause: error });
  }
}
