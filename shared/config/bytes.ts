/**
 * Sizes in bytes: a bare number, or one with a unit. `KiB`, `MiB`, `GiB`, `TiB` are powers of 1024;
 * `KB`, `MB`, `GB`, `TB` are powers of 1000. Case does not matter. The value is a whole number.
 */
import { describeRange, isWithin, type Kind, type Range } from "./kind.ts";

const BYTES_PER_UNIT: Readonly<Record<string, number>> = {
  "": 1,
  b: 1,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
  tb: 1e12,
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
  tib: 2 ** 40,
};

const SHOWN_UNITS = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], [
  "KiB",
  2 ** 10,
]] as const;

/** Bounds of a size. */
export interface BytesOptions extends Range {
  /** Only 1, 2, 4, 8 ... */
  readonly powerOfTwo?: boolean;
}

/** A number of bytes. */
export function bytes(options: BytesOptions = {}): Kind<number> {
  const bounds = { ...options, min: options.min ?? 0 };
  const accept = (value: number) =>
    Number.isSafeInteger(value) && isWithin(value, bounds) &&
      (options.powerOfTwo !== true || Number.isInteger(Math.log2(value)))
      ? value
      : undefined;
  const parse = (given: string) => {
    const match = /^(\d{1,16}(?:\.\d{1,6})?) ?([a-z]{0,3})$/i.exec(given);
    if (match === null) return undefined;
    const [, digits = "", unit = ""] = match;
    const perUnit = BYTES_PER_UNIT[unit.toLowerCase()];
    return perUnit === undefined ? undefined : accept(Number(digits) * perUnit);
  };
  return {
    placeholder: "BYTES",
    wanted: "a number of bytes such as 1048576 or 64MiB" + describeRange(options, showBytes) +
      (options.powerOfTwo === true ? ", a power of two" : ""),
    repeats: false,
    parse,
    fromDocument: (value) => {
      if (typeof value === "number") return accept(value);
      return typeof value === "string" ? parse(value) : undefined;
    },
    show: showBytes,
    toOption: (value) => ({ body: String(value), json: true }),
  };
}

/** `67108864` as `64MiB`; a number that is no multiple of a unit stays as it is. */
export function showBytes(value: number): string {
  for (const [unit, perUnit] of SHOWN_UNITS) {
    if (value >= perUnit && value % perUnit === 0) return `${value / perUnit}${unit}`;
  }
  return String(value);
}
