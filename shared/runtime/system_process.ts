/** The real {@linkcode ProcessFigures}. */
import { closeSync, openSync } from "node:fs";
import process from "node:process";
import type { ProcessFigures } from "./process_figures.ts";

const LIMIT_REGEXP = /^Max open files\s+(\d+)/m;

/** Reads them; costs some microseconds. */
export function processFigures(): ProcessFigures {
  const { rss, heapTotal, heapUsed, external } = Deno.memoryUsage();
  const { user, system } = process.cpuUsage();
  const openFilesMax = known(limitOfFiles);
  const openFiles = known(countedFiles) ?? known(lowestFreeFile);
  return {
    residentBytes: rss,
    heapBytes: heapTotal,
    heapUsedBytes: heapUsed,
    externalBytes: external,
    cpuSeconds: (user + system) / 1e6,
    startSeconds: performance.timeOrigin / 1000,
    uptimeSeconds: performance.now() / 1000,
    ...(openFiles === undefined ? {} : { openFiles }),
    ...(openFilesMax === undefined ? {} : { openFilesMax }),
  };
}

/** The kernel's own count, where the process may ask for it and the kernel is new enough. */
function countedFiles(): number | undefined {
  const { size } = Deno.statSync("/proc/self/fd");
  return size > 0 ? size : undefined;
}

/** Descriptors are given out from the lowest on: all below the next one are in use. */
function lowestFreeFile(): number {
  const descriptor = openSync("/dev/null", "r");
  closeSync(descriptor);
  return descriptor;
}

function limitOfFiles(): number | undefined {
  const limit = LIMIT_REGEXP.exec(Deno.readTextFileSync("/proc/self/limits"))?.[1];
  return limit === undefined ? undefined : Number(limit);
}

/** Undefined for what this system or the process's permissions do not tell. */
function known(read: () => number | undefined): number | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}
