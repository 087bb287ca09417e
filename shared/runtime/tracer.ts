/**
 * Traces as a parameter: spans that somebody else collects. The names follow OpenTelemetry. A span is
 * cheap, a few microseconds, but not free: who makes one has decided that it is wanted.
 */

/** What a span is known by, and what another one continues. */
export interface TraceContext {
  /** 32 hexadecimal digits, lower case. */
  readonly traceId: string;
  /** 16 hexadecimal digits, lower case. */
  readonly spanId: string;
  /** Whether whoever began the trace wants it kept. */
  readonly isSampled: boolean;
}

/** What is said of a span. */
export type TraceAttributes = Readonly<Record<string, string | number | boolean>>;

/** Where a span stands between those who exchange messages. */
export type SpanKind = "internal" | "producer" | "consumer";

/** Something that takes time. It begins when it is made. */
export interface Span {
  readonly context: TraceContext;
  /** Says what came of it, and when: now. Once. */
  end(attributes: TraceAttributes): void;
}

/** Makes spans. */
export interface Tracer {
  /** Begins a span, of the trace of `parent` or of a new one. */
  begin(
    name: string,
    kind: SpanKind,
    parent: TraceContext | null,
    attributes: TraceAttributes,
  ): Span;
}

const TRACEPARENT_REGEXP = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;

/** Reads the W3C header `traceparent`; null when it is not one, which says nothing then. */
export function parseTraceparent(header: string | null): TraceContext | null {
  const match = header === null ? null : TRACEPARENT_REGEXP.exec(header.trim());
  if (match === null) return null;
  const [, version = "", traceId = "", spanId = "", flags = "", rest] = match;
  // Only a version of the future may have more behind the flags.
  if (version === "ff" || (version === "00" && rest !== undefined)) return null;
  if (/^0+$/.test(traceId) || /^0+$/.test(spanId)) return null;
  return { traceId, spanId, isSampled: (parseInt(flags, 16) & 1) === 1 };
}
