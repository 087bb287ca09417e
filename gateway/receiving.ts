/** Memory for bodies that are being received, over all connections. */

/** See the module. */
export class Receiving {
  usedBytes = 0;
  refusedCount = 0;
  readonly bytesMax: number;

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax;
  }

  /** Takes memory, or returns false. */
  take(bytes: number): boolean {
    if (this.usedBytes + bytes > this.bytesMax) {
      this.refusedCount++;
      return false;
    }
    this.usedBytes += bytes;
    return true;
  }

  giveBack(bytes: number): void {
    this.usedBytes -= bytes;
  }
}
