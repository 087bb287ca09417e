/** What the process takes of the machine, as a parameter: figures for people, nothing decides by them. */
export interface ProcessFigures {
  /** Memory as the system sees it. */
  readonly residentBytes: number;
  /** The JavaScript heap: reserved, and of that in use. */
  readonly heapBytes: number;
  readonly heapUsedBytes: number;
  /** Buffers outside the heap. */
  readonly externalBytes: number;
  /** Time on a processor since the start, in all threads. */
  readonly cpuSeconds: number;
  /** Unix time of the start. */
  readonly startSeconds: number;
  /** Since the start. */
  readonly uptimeSeconds?: number;
  /** Files and connections that are open; at least so many, where they cannot be counted. */
  readonly openFiles?: number;
  /** The most there may be; absent where the process may not know. */
  readonly openFilesMax?: number;
}
