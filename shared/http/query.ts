/**
 * Query strings the way NSQ's HTTP interface reads them: `+` is a space, a bad percent escape or a
 * semicolon makes the whole query invalid, the first of several equal keys counts, a key may be
 * present without a value. Bytes that are not UTF-8 become U+FFFD. More than
 * {@linkcode QUERY_PARAMETERS_MAX} parameters are invalid too.
 */

export const QUERY_PARAMETERS_MAX = 256;

/** Decoded parameters by key. */
export type Query = ReadonlyMap<string, string>;

const EMPTY: Query = new Map();
const BAD_ESCAPE_REGEXP = /%(?![0-9a-fA-F]{2})/;
const TEXT_ENCODER = new TextEncoder();
const TEXT_DECODER = new TextDecoder();

/** Parses the query of an absolute URL; `null` when it is invalid. */
export function parseQuery(url: string): Query | null {
  const start = url.indexOf("?");
  if (start < 0) return EMPTY;
  const fragment = url.indexOf("#");
  if (fragment >= 0 && fragment < start) return EMPTY;
  const text = url.slice(start + 1, fragment < 0 ? undefined : fragment);
  if (text.includes(";")) return null;
  const query = new Map<string, string>();
  let parameters = 0;
  for (const pair of text.split("&", QUERY_PARAMETERS_MAX + 1)) {
    parameters += 1;
    if (parameters > QUERY_PARAMETERS_MAX) return null;
    if (pair === "") continue;
    const equals = pair.indexOf("=");
    const key = decode(equals < 0 ? pair : pair.slice(0, equals));
    const value = equals < 0 ? "" : decode(pair.slice(equals + 1));
    if (key === null || value === null) return null;
    if (!query.has(key)) query.set(key, value);
  }
  return query;
}

function decode(text: string): string | null {
  const spaced = text.replaceAll("+", " ");
  if (!spaced.includes("%")) return spaced;
  if (BAD_ESCAPE_REGEXP.test(spaced)) return null;
  try {
    return decodeURIComponent(spaced);
  } catch {
    return decodeBytes(spaced);
  }
}

/** The slow way, for escapes that are well formed but do not make UTF-8. */
function decodeBytes(text: string): string {
  const source = TEXT_ENCODER.encode(text);
  const bytes = new Uint8Array(source.length);
  let length = 0;
  for (let at = 0; at < source.length; at += 1) {
    const byte = source[at] ?? 0;
    if (byte === 0x25) {
      bytes[length] = Number.parseInt(String.fromCharCode(...source.subarray(at + 1, at + 3)), 16);
      at += 2;
    } else {
      bytes[length] = byte;
    }
    length += 1;
  }
  return TEXT_DECODER.decode(bytes.subarray(0, length));
}
