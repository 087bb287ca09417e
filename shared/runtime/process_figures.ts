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
}
