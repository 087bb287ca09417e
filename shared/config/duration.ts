/**
 * Durations as people write them: Go's `1h2m3s`, `250ms`, `1.5s`, or a bare number of milliseconds.
 * The value is a whole number of milliseconds, at most ten years; anything finer is refused rather
 * than rounded, so that what runs is what was asked for.
 */
import { invariant } from "../runtime/mod.ts";
import { describeRange, isWithin, type Kind, type Range } from "./kind.ts";

const DURATION_MS_MAX = 10 * 365 * 24 * 3_600_000;

const NANOSECONDS_PER_UNIT: Readonly<Record<string, bigint>> = {
  ns: 1n,
  us: 1_000n,
  "\u00b5s": 1_000n,
  "\u03bcs": 1_000n,
  ms: 1_000_000n,
  s: 1_000_000_000n,
  m: 60_000_000_000n,
  h: 3_600_000_000_000n,
};

const PART = /^(\d{0,15})(?:\.(\d{0,9}))?(ns|us|\u00b5s|\u03bcs|ms|s|m|h)/;

/** A duration in milliseconds. */
export function durationMs(range: Range = {}): Kind<number> {
  const bounds = { min: range.min ?? 0, max: range.max ?? DURATION_MS_MAX };
  const accept = (value: number | undefined) =>
    value !== undefined && Number.isSafeInteger(value) && isWithin(value, bounds)
      ? value
      : undefined;
  return {
    placeholder: "DURATION",
    wanted: "a duration such as 1m30s, 250ms or a number of milliseconds" +
      describeRange(range, showDuration),
    repeats: false,
    parse: (given) => accept(parseDuration(given)),
    fromDocument: (value) => {
      if (typeof value === "number") return accept(value);
      return typeof value === "string" ? accept(parseDuration(value)) : undefined;
    },
    show: showDuration,
    // nsqd answers with Go's integer nanoseconds, more than a double holds exactly.
    toOption: (value) => ({ body: String(BigInt(value) * 1_000_000n), json: true }),
  };
}

/** Milliseconds in `given`, or `undefined` when it is no duration or no whole number of them. */
function parseDuration(given: string): number | undefined {
  if (/^\d{1,15}$/.test(given)) return Number(given);
  let nanoseconds = 0n;
  let rest = given;
  while (rest !== "") {
    const part = PART.exec(rest);
    if (part === null) return undefined;
    const [whole, digits = "", fraction = "", unit = ""] = part;
    const perUnit = NANOSECONDS_PER_UNIT[unit];
    if (perUnit === undefined || digits + fraction === "") return undefined;
    const scale = 10n ** BigInt(fraction.length);
    const scaled = BigInt(digits + fraction) * perUnit;
    if (scaled % scale !== 0n) return undefined;
    nanoseconds += scaled / scale;
    rest = rest.slice(whole.length);
  }
  if (given === "" || nanoseconds % 1_000_000n !== 0n) return undefined;
  return Number(nanoseconds / 1_000_000n);
}

/** `3723004` as `1h2m3s4ms`. */
export function showDuration(valueMs: number): string {
  invariant(Number.isSafeInteger(valueMs) && valueMs >= 0, "a duration is a whole number");
  if (valueMs === 0) return "0s";
  const hours = Math.floor(valueMs / 3_600_000);
  const minutes = Math.floor(valueMs / 60_000) % 60;
  const seconds = Math.floor(valueMs / 1_000) % 60;
  const milliseconds = valueMs % 1_000;
  return (hours > 0 ? `${hours}h` : "") + (minutes > 0 ? `${minutes}m` : "") +
    (seconds > 0 ? `${seconds}s` : "") + (milliseconds > 0 ? `${milliseconds}ms` : "");
}
