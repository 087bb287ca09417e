/**
 * Spans for OpenTelemetry as it is built into Deno: with `OTEL_DENO=true` in the environment it sends
 * them to `OTEL_EXPORTER_OTLP_ENDPOINT`, in batches and beside the event loop. What it says of itself is
 * the interface of the package `@opentelemetry/api`, which this needs no more of than a context with a
 * parent in it.
 */
import { SLUICE_VERSION } from "./version.ts";
import type { Span, SpanKind, TraceContext, Tracer } from "./tracer.ts";

/** What of that interface is used here. */
interface OtelTracer {
  startSpan(
    name: string,
    options: { kind: number; root: boolean; attributes: Record<string, unknown> },
    context?: OtelContext,
  ): OtelSpan;
}

interface OtelSpan {
  spanContext(): OtelSpanContext;
  setAttributes(attributes: Record<string, unknown>): void;
  end(): void;
}

interface OtelSpanContext {
  readonly traceId: string;
  readonly spanId: string;
  readonly traceFlags: number;
  readonly isRemote?: boolean;
}

interface OtelContext {
  getValue(key: symbol): unknown;
  setValue(key: symbol, value: unknown): OtelContext;
  deleteValue(key: symbol): OtelContext;
}

const KINDS: Readonly<Record<SpanKind, number>> = { internal: 0, producer: 3, consumer: 4 };
const SAMPLED_FLAG = 1;
/** Where the parent is in a context, for all packages that share it. */
const SPAN_KEY = Symbol.for("OpenTelemetry Context Key SPAN");

/** Makes spans of the process; null when its environment does not turn on telemetry. */
export function systemTracer(): Tracer | null {
  const otel: OtelTracer = Deno.telemetry.tracerProvider.getTracer("sluice", SLUICE_VERSION);
  const begin = (
    name: string,
    kind: SpanKind,
    parent: TraceContext | null,
    attributes: Record<string, unknown>,
  ): OtelSpan =>
    otel.startSpan(
      name,
      { kind: KINDS[kind], root: parent === null, attributes },
      ...(parent === null ? [] : [contextOf(parent)]),
    );
  try {
    // Off, the runtime says so only when it is asked for a span. This one is not ended: nobody sees it.
    begin("probe", "internal", null, {});
  } catch {
    return null;
  }
  return {
    begin(name, kind, parent, attributes): Span {
      const span = begin(name, kind, parent, attributes);
      const { traceId, spanId, traceFlags } = span.spanContext();
      return {
        context: { traceId, spanId, isSampled: (traceFlags & SAMPLED_FLAG) !== 0 },
        end(outcome) {
          span.setAttributes(outcome);
          span.end();
        },
      };
    },
  };
}

/** A context with nothing in it but the parent. */
function contextOf({ traceId, spanId, isSampled }: TraceContext): OtelContext {
  const traceFlags = isSampled ? SAMPLED_FLAG : 0;
  const spanContext: OtelSpanContext = { traceId, spanId, traceFlags, isRemote: true };
  const parent = { spanContext: () => spanContext };
  const context: OtelContext = {
    getValue: (key) => key === SPAN_KEY ? parent : undefined,
    setValue: () => context,
    deleteValue: () => context,
  };
  return context;
}
