/**
 * How far a long reading has come: one line that is written over, for a person who waits. It is
 * drawn from inside the reading, at most a few times a second, so it needs no timer.
 */
import { DiskError } from "@sluice/shared/runtime";
import type { Clock, Disk, DiskFile } from "@sluice/shared/runtime";
import type { World } from "./command.ts";

const REDRAW_MS = 200;

/** Counts bytes read and shows them. */
export class Progress {
  #bytes = 0;
  #totalBytes = 0;
  #label = "";
  #drawnMs = -Infinity;
  #width = 0;
  readonly #clock: Clock;
  readonly #write: ((text: string) => void) | null;
  readonly #startMs: number;

  /** Shows nothing when `quiet`, or when nobody watches. */
  constructor(world: World, quiet: boolean) {
    this.#clock = world.clock;
    this.#startMs = world.clock.monoMs();
    this.#write = quiet || !world.errIsTerminal ? null : (text) => world.err(text);
  }

  /** Begins a part of the work that reads about so many bytes. */
  begin(label: string, totalBytes: number): void {
    this.#label = label;
    this.#totalBytes = this.#bytes + totalBytes;
  }

  add(bytes: number): void {
    this.#bytes += bytes;
    const now = this.#clock.monoMs();
    if (
      this.#write === null || this.#label === "" ||
      now - this.#drawnMs < REDRAW_MS
    ) return;
    this.#drawnMs = now;
    const line = progressLine(
      this.#label,
      this.#bytes,
      this.#totalBytes,
      now - this.#startMs,
    );
    this.#write(`\r${line.padEnd(this.#width)}`);
    this.#width = line.length;
  }

  /** Takes the line away. */
  end(): void {
    if (this.#width > 0) this.#write?.(`\r${" ".repeat(this.#width)}\r`);
    this.#width = 0;
    this.#label = "";
  }
}

/** `log: 12.0 MiB of 64.0 MiB, 24.0 MiB/s, 0:02 left`. */
export function progressLine(
  label: string,
  bytes: number,
  totalBytes: number,
  elapsedMs: number,
): string {
  const counted = `${label}: ${bytesText(bytes)} of ${bytesText(Math.max(bytes, totalBytes))}`;
  if (elapsedMs <= 0 || bytes === 0) return counted;
  const perMs = bytes / elapsedMs;
  const leftSeconds = Math.ceil(Math.max(0, totalBytes - bytes) / perMs / 1000);
  const minutes = Math.floor(leftSeconds / 60);
  const seconds = String(leftSeconds % 60).padStart(2, "0");
  return `${counted}, ${bytesText(perMs * 1000)}/s, ${minutes}:${seconds} left`;
}

/** A size for people: `512 B`, `1.5 KiB`. */
export function bytesText(bytes: number): string {
  let value = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024) {
      return `${unit === "B" ? Math.round(value) : value.toFixed(1)} ${unit}`;
    }
    value /= 1024;
  }
  return `${value.toFixed(1)} TiB`;
}

/** A disk for reading: counts what is read and refuses whatever would change something. */
export class ReadingDisk implements Disk {
  readonly #disk: Disk;
  readonly #progress: Progress;

  constructor(disk: Disk, progress: Progress) {
    this.#disk = disk;
    this.#progress = progress;
  }

  async open(
    path: string,
    mode: "create" | "read" | "write",
  ): Promise<DiskFile> {
    if (mode !== "read") throw readOnly(path);
    const file = await this.#disk.open(path, "read");
    return {
      readAt: async (position, into) => {
        const bytes = await file.readAt(position, into);
        this.#progress.add(bytes);
        return bytes;
      },
      size: () => file.size(),
      close: () => file.close(),
      writeAt: () => Promise.reject(readOnly(path)),
      truncate: () => Promise.reject(readOnly(path)),
      syncData: () => Promise.reject(readOnly(path)),
    };
  }

  list(directory: string): Promise<string[]> {
    return this.#disk.list(directory);
  }

  space(path: string): ReturnType<Disk["space"]> {
    return this.#disk.space(path);
  }

  rename(from: string): Promise<void> {
    return Promise.reject(readOnly(from));
  }

  remove(path: string): Promise<void> {
    return Promise.reject(readOnly(path));
  }

  makeDirectory(path: string): Promise<void> {
    return Promise.reject(readOnly(path));
  }

  syncDirectory(path: string): Promise<void> {
    return Promise.reject(readOnly(path));
  }

  lock(path: string): ReturnType<Disk["lock"]> {
    return Promise.reject(readOnly(path));
  }
}

function readOnly(path: string): DiskError {
  return new DiskError(
    "io",
    `Cannot change "${path}": it is open for reading only`,
  );
}
