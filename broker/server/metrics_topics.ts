/** Metrics of topics and channels; which of them are told of one by one, see `topic_figures.ts`. */
import type { MetricsRegistry } from "@sluice/shared/telemetry";
import type { Channel, Topic } from "../queue/mod.ts";
import type { ShownChannel, TopicFigures, TopicTotals } from "./topic_figures.ts";

/** Which topics are told of bounds the series; the registry's own bound is not for them. */
const SERIES_MAX = 1_000_000;

/** Registers them. `figures` is asked at each scrape, not before. */
export function registerTopicMetrics(
  registry: MetricsRegistry,
  figures: () => TopicFigures,
): void {
  registry.prepare((slices) => figures().read(slices));
  registerTotals(registry, figures);
  registerTopics(registry, figures);
  registerChannels(registry, figures);
}

function registerTotals(registry: MetricsRegistry, figures: () => TopicFigures): void {
  const total = (
    kind: "counter" | "gauge",
    name: string,
    help: string,
    value: (totals: TopicTotals) => number,
  ) => registry[kind]({ name, help }, (report) => report({}, value(figures().totals)));

  total("gauge", "sluice_channels", "Channels.", ({ channels }) => channels);
  total(
    "gauge",
    "sluice_topics_depth",
    "Messages no channel was given, over all topics.",
    ({ topicDepth }) => topicDepth,
  );
  total(
    "gauge",
    "sluice_channels_depth",
    "Messages waiting, over all channels.",
    ({ depth }) => depth,
  );
  total(
    "gauge",
    "sluice_channels_in_flight",
    "Messages in flight, over all channels.",
    ({ inFlight }) => inFlight,
  );
  total(
    "gauge",
    "sluice_channels_deferred",
    "Messages not due yet, over all channels.",
    ({ deferred }) => deferred,
  );
  total("gauge", "sluice_channels_consumers", "Consumers.", ({ consumers }) => consumers);
  total(
    "gauge",
    "sluice_channels_oldest_unfinished_age_seconds",
    "Time since the oldest message was published that some channel has not finished.",
    ({ oldestAgeSeconds }) => oldestAgeSeconds,
  );
  total("counter", "sluice_messages_delivered_total", "Deliveries.", ({ delivered }) => delivered);
  total(
    "counter",
    "sluice_messages_requeued_total",
    "Messages requeued by consumers.",
    ({ requeued }) => requeued,
  );
  total(
    "counter",
    "sluice_messages_timed_out_total",
    "Deliveries that timed out.",
    ({ timedOut }) => timedOut,
  );
  const gauge = (name: string, help: string, value: (figures: TopicFigures) => number) =>
    registry.gauge({ name, help }, (report) => report({}, value(figures())));
  gauge(
    "sluice_metrics_topics_max",
    "Topics that metrics may tell of one by one.",
    ({ topicsMax }) => topicsMax,
  );
  gauge(
    "sluice_metrics_topics_omitted",
    "Topics that metrics tell of in totals only.",
    ({ topicsOmitted }) => topicsOmitted,
  );
  gauge(
    "sluice_metrics_channels_omitted",
    "Channels that metrics tell of in totals only.",
    ({ channelsOmitted }) => channelsOmitted,
  );
}

function registerTopics(registry: MetricsRegistry, figures: () => TopicFigures): void {
  const perTopic = (
    kind: "counter" | "gauge",
    name: string,
    help: string,
    value: (topic: Topic) => number,
  ) =>
    registry[kind](
      { name, help, labels: ["topic"], seriesMax: SERIES_MAX },
      function* (report) {
        for (const { topic, labels } of figures().topics) {
          report(labels, value(topic));
          yield;
        }
      },
    );
  perTopic(
    "gauge",
    "sluice_topic_depth",
    "Messages no channel was given.",
    (topic) => topic.depth,
  );
  perTopic(
    "counter",
    "sluice_topic_messages_total",
    "Messages published.",
    (topic) => topic.messageCount,
  );
  perTopic(
    "counter",
    "sluice_topic_message_bytes_total",
    "Bytes of their bodies.",
    (topic) => topic.messageBytes,
  );
  perTopic(
    "gauge",
    "sluice_topic_channels",
    "Channels of the topic.",
    (topic) => topic.channels.size,
  );
  perTopic(
    "gauge",
    "sluice_topic_paused",
    "1 while the topic is paused.",
    (topic) => topic.state.paused ? 1 : 0,
  );
}

function registerChannels(registry: MetricsRegistry, figures: () => TopicFigures): void {
  const perShown = (
    kind: "counter" | "gauge",
    name: string,
    help: string,
    value: (shown: ShownChannel) => number | null,
  ) =>
    registry[kind](
      { name, help, labels: ["topic", "channel"], seriesMax: SERIES_MAX },
      function* (report) {
        for (const shown of figures().channels) {
          const figure = value(shown);
          if (figure !== null) report(shown.labels, figure);
          yield;
        }
      },
    );
  const perChannel = (
    kind: "counter" | "gauge",
    name: string,
    help: string,
    value: (channel: Channel) => number,
  ) => perShown(kind, name, help, ({ channel }) => value(channel));

  perChannel("gauge", "sluice_channel_depth", "Messages waiting.", (channel) => channel.depth);
  perChannel(
    "gauge",
    "sluice_channel_in_flight",
    "Messages in flight.",
    (channel) => channel.inFlightCount,
  );
  perChannel(
    "gauge",
    "sluice_channel_deferred",
    "Messages not due yet.",
    (channel) => channel.deferredCount,
  );
  perShown(
    "gauge",
    "sluice_channel_oldest_unfinished_age_seconds",
    "Time since the oldest message was published that is not finished, those deferred and in " +
      "flight included; absent until it is known.",
    ({ oldestAgeSeconds }) => oldestAgeSeconds,
  );
  perChannel(
    "gauge",
    "sluice_channel_consumers",
    "Consumers.",
    (channel) => channel.consumers.size,
  );
  perChannel(
    "gauge",
    "sluice_channel_paused",
    "1 while the channel is paused.",
    (channel) => channel.state.paused ? 1 : 0,
  );
  perChannel(
    "counter",
    "sluice_channel_delivered_total",
    "Deliveries.",
    (channel) => channel.deliveredCount,
  );
  perChannel(
    "counter",
    "sluice_channel_requeued_total",
    "Messages requeued.",
    (channel) => channel.requeueCount,
  );
  perChannel(
    "counter",
    "sluice_channel_timed_out_total",
    "Deliveries timed out.",
    (channel) => channel.timeoutCount,
  );
}
