/**
 * For each alert the series on which it fires, and series on which it does not, in the notation of
 * promtool: one value a minute, `0+10x60` being 0, 10, 20 and so on, sixty times.
 */

/** Series by name and labels. */
export type Series = Readonly<Record<string, string>>;

/** See the module. */
export interface AlertFixture {
  readonly fires: Series;
  readonly quiet: Series;
  /** Labels of the alert, its severity aside. */
  readonly labels: Readonly<Record<string, string>>;
  /** When it is looked at, from the first value on. */
  readonly at: string;
}

/** By the name of the alert. */
export const ALERT_FIXTURES: Readonly<Record<string, AlertFixture>> = {
  "SluiceBrokerDown": {
    "fires": {
      'up{job="sluice-broker", instance="b1"}': "0x60",
    },
    "quiet": {
      'up{job="sluice-broker", instance="b1"}': "1x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
    },
    "at": "40m",
  },
  "SluiceBrokerMetricsMissing": {
    "fires": {
      'up{job="sluice-broker", instance="b1"}': "1x60",
    },
    "quiet": {
      'up{job="sluice-broker", instance="b1"}': "1x60",
      'sluice_accepting{job="sluice-broker", instance="b1"}': "1x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
    },
    "at": "40m",
  },
  "SluiceBrokerNotReady": {
    "fires": {
      'sluice_delivering{job="sluice-broker", instance="b1"}': "0x60",
    },
    "quiet": {
      'sluice_delivering{job="sluice-broker", instance="b1"}': "1x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
    },
    "at": "40m",
  },
  "SluiceBrokerRefusesPublishes": {
    "fires": {
      'sluice_accepting{job="sluice-broker", instance="b1"}': "0x60",
    },
    "quiet": {
      'sluice_accepting{job="sluice-broker", instance="b1"}': "1x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
    },
    "at": "40m",
  },
  "SluiceStorageFault": {
    "fires": {
      'sluice_log_failed{job="sluice-broker", instance="b1"}': "1x60",
    },
    "quiet": {
      'sluice_log_failed{job="sluice-broker", instance="b1"}': "0x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
    },
    "at": "40m",
  },
  "SluiceDiskPressure": {
    "fires": {
      'sluice_disk_guard_closed{job="sluice-broker", instance="b1"}': "1x60",
    },
    "quiet": {
      'sluice_disk_guard_closed{job="sluice-broker", instance="b1"}': "0x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
    },
    "at": "40m",
  },
  "SluiceDiskFills": {
    "fires": {
      'sluice_disk_free_bytes{job="sluice-broker", instance="b1"}': "100000-1000x90",
      'sluice_disk_min_free_bytes{job="sluice-broker", instance="b1"}': "50000x90",
      'sluice_disk_total_bytes{job="sluice-broker", instance="b1"}': "300000x90",
    },
    "quiet": {
      'sluice_disk_free_bytes{job="sluice-broker", instance="b1"}': "100000x90",
      'sluice_disk_min_free_bytes{job="sluice-broker", instance="b1"}': "50000x90",
      'sluice_disk_total_bytes{job="sluice-broker", instance="b1"}': "300000x90",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
    },
    "at": "45m",
  },
  "SluiceLogStalled": {
    "fires": {
      'sluice_health_reason{job="sluice-broker", instance="b1", reason="log_stalled"}': "1x60",
    },
    "quiet": {
      'sluice_health_reason{job="sluice-broker", instance="b1", reason="draining"}': "1x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
      "reason": "log_stalled",
    },
    "at": "40m",
  },
  "SluiceDamaged": {
    "fires": {
      'sluice_health_reason{job="sluice-broker", instance="b1", reason="damaged"}': "1x60",
    },
    "quiet": {
      'sluice_health_reason{job="sluice-broker", instance="b1", reason="draining"}': "1x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
      "reason": "damaged",
    },
    "at": "40m",
  },
  "SluicePublishesThrottled": {
    "fires": {
      'sluice_publishes_throttled_total{job="sluice-broker", instance="b1"}': "0+10x60",
      'sluice_publishes_refused_at_topic_limit_total{job="sluice-broker", instance="b1"}': "0x60",
      'sluice_dedup_throttled_total{job="sluice-broker", instance="b1"}': "0x60",
    },
    "quiet": {
      'sluice_publishes_throttled_total{job="sluice-broker", instance="b1"}': "7x60",
      'sluice_publishes_refused_at_topic_limit_total{job="sluice-broker", instance="b1"}': "0x60",
      'sluice_dedup_throttled_total{job="sluice-broker", instance="b1"}': "0x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
    },
    "at": "40m",
  },
  "SluiceBudgetRefuses": {
    "fires": {
      'sluice_budget_refused_total{job="sluice-broker", instance="b1", budget="connections"}':
        "0+10x60",
    },
    "quiet": {
      'sluice_budget_refused_total{job="sluice-broker", instance="b1", budget="page_cache"}':
        "0+10x60",
      'sluice_budget_refused_total{job="sluice-broker", instance="b1", budget="connections"}':
        "5x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
      "budget": "connections",
    },
    "at": "40m",
  },
  "SluiceBudgetNearLimit": {
    "fires": {
      'sluice_budget_used{job="sluice-broker", instance="b1", budget="connections"}': "95x60",
      'sluice_budget_limit{job="sluice-broker", instance="b1", budget="connections"}': "100x60",
    },
    "quiet": {
      'sluice_budget_used{job="sluice-broker", instance="b1", budget="connections"}': "50x60",
      'sluice_budget_used{job="sluice-broker", instance="b1", budget="operation_answers"}':
        "100x60",
      'sluice_budget_limit{job="sluice-broker", instance="b1", budget="operation_answers"}':
        "100x60",
      'sluice_budget_limit{job="sluice-broker", instance="b1", budget="connections"}': "100x60",
      'sluice_budget_used_bytes{job="sluice-broker", instance="b1", budget="page_cache"}': "100x60",
      'sluice_budget_limit_bytes{job="sluice-broker", instance="b1", budget="page_cache"}':
        "100x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
      "budget": "connections",
    },
    "at": "40m",
  },
  "SluiceOldestUnfinished": {
    "fires": {
      'sluice_channel_oldest_unfinished_age_seconds{job="sluice-broker", instance="b1", topic="t", channel="c"}':
        "4000x60",
      'sluice_channel_depth{job="sluice-broker", instance="b1", topic="t", channel="c"}': "5x60",
      'sluice_channel_in_flight{job="sluice-broker", instance="b1", topic="t", channel="c"}':
        "0x60",
    },
    "quiet": {
      'sluice_channel_oldest_unfinished_age_seconds{job="sluice-broker", instance="b1", topic="t", channel="c"}':
        "4000x60",
      'sluice_channel_depth{job="sluice-broker", instance="b1", topic="t", channel="c"}': "0x60",
      'sluice_channel_in_flight{job="sluice-broker", instance="b1", topic="t", channel="c"}':
        "0x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
      "topic": "t",
      "channel": "c",
    },
    "at": "40m",
  },
  "SluiceConsumersLost": {
    "fires": {
      'sluice_channel_consumers{job="sluice-broker", instance="b1", topic="t", channel="c"}':
        "2x20 0x40",
      'sluice_channel_depth{job="sluice-broker", instance="b1", topic="t", channel="c"}':
        "0x20 0+50x40",
    },
    "quiet": {
      'sluice_channel_consumers{job="sluice-broker", instance="b1", topic="t", channel="c"}':
        "2x20 0x40",
      'sluice_channel_depth{job="sluice-broker", instance="b1", topic="t", channel="c"}': "5x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
      "topic": "t",
      "channel": "c",
    },
    "at": "40m",
  },
  "SluiceDepthGrows": {
    "fires": {
      'sluice_channel_depth{job="sluice-broker", instance="b1", topic="t", channel="c"}':
        "200000+100x90",
    },
    "quiet": {
      'sluice_channel_depth{job="sluice-broker", instance="b1", topic="t", channel="c"}':
        "200000-100x90",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
      "topic": "t",
      "channel": "c",
    },
    "at": "80m",
  },
  "SluiceTimeouts": {
    "fires": {
      'sluice_channel_timed_out_total{job="sluice-broker", instance="b1", topic="t", channel="c"}':
        "0+10x60",
      'sluice_channel_delivered_total{job="sluice-broker", instance="b1", topic="t", channel="c"}':
        "0+100x60",
    },
    "quiet": {
      'sluice_channel_timed_out_total{job="sluice-broker", instance="b1", topic="t", channel="c"}':
        "0+1x60",
      'sluice_channel_delivered_total{job="sluice-broker", instance="b1", topic="t", channel="c"}':
        "0+100x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
      "topic": "t",
      "channel": "c",
    },
    "at": "40m",
  },
  "SluiceRequeues": {
    "fires": {
      'sluice_channel_requeued_total{job="sluice-broker", instance="b1", topic="t", channel="c"}':
        "0+30x60",
      'sluice_channel_delivered_total{job="sluice-broker", instance="b1", topic="t", channel="c"}':
        "0+100x60",
    },
    "quiet": {
      'sluice_channel_requeued_total{job="sluice-broker", instance="b1", topic="t", channel="c"}':
        "0+10x60",
      'sluice_channel_delivered_total{job="sluice-broker", instance="b1", topic="t", channel="c"}':
        "0+100x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
      "topic": "t",
      "channel": "c",
    },
    "at": "40m",
  },
  "SluiceSyncSlow": {
    "fires": {
      'sluice_log_sync_duration_seconds_bucket{job="sluice-broker", instance="b1", le="0.5"}':
        "0+1x60",
      'sluice_log_sync_duration_seconds_bucket{job="sluice-broker", instance="b1", le="1"}':
        "0+100x60",
      'sluice_log_sync_duration_seconds_bucket{job="sluice-broker", instance="b1", le="+Inf"}':
        "0+100x60",
    },
    "quiet": {
      'sluice_log_sync_duration_seconds_bucket{job="sluice-broker", instance="b1", le="0.5"}':
        "0+100x60",
      'sluice_log_sync_duration_seconds_bucket{job="sluice-broker", instance="b1", le="1"}':
        "0+100x60",
      'sluice_log_sync_duration_seconds_bucket{job="sluice-broker", instance="b1", le="+Inf"}':
        "0+100x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
    },
    "at": "40m",
  },
  "SluiceEventLoopLag": {
    "fires": {
      'sluice_event_loop_lag_seconds_bucket{job="sluice-broker", instance="b1", le="0.05"}':
        "0+1x60",
      'sluice_event_loop_lag_seconds_bucket{job="sluice-broker", instance="b1", le="0.1"}':
        "0+100x60",
      'sluice_event_loop_lag_seconds_bucket{job="sluice-broker", instance="b1", le="+Inf"}':
        "0+100x60",
    },
    "quiet": {
      'sluice_event_loop_lag_seconds_bucket{job="sluice-broker", instance="b1", le="0.05"}':
        "0+100x60",
      'sluice_event_loop_lag_seconds_bucket{job="sluice-broker", instance="b1", le="0.1"}':
        "0+100x60",
      'sluice_event_loop_lag_seconds_bucket{job="sluice-broker", instance="b1", le="+Inf"}':
        "0+100x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
    },
    "at": "40m",
  },
  "SluiceCertificateExpires": {
    "fires": {
      'sluice_tls_certificate_expiry_timestamp_seconds{job="sluice-broker", instance="b1"}':
        "864000x60",
    },
    "quiet": {
      'sluice_tls_certificate_expiry_timestamp_seconds{job="sluice-broker", instance="b1"}':
        "2592000x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
    },
    "at": "40m",
  },
  "SluiceCertificateAboutToExpire": {
    "fires": {
      'sluice_gateway_tls_certificate_expiry_timestamp_seconds{job="sluice-gateway", instance="g1"}':
        "86400x60",
    },
    "quiet": {
      'sluice_gateway_tls_certificate_expiry_timestamp_seconds{job="sluice-gateway", instance="g1"}':
        "864000x60",
    },
    "labels": {
      "job": "sluice-gateway",
      "instance": "g1",
    },
    "at": "40m",
  },
  "SluiceOpenFilesNearLimit": {
    "fires": {
      'sluice_process_open_files{job="sluice-broker", instance="b1"}': "900x60",
      'sluice_process_open_files_max{job="sluice-broker", instance="b1"}': "1024x60",
    },
    "quiet": {
      'sluice_process_open_files{job="sluice-broker", instance="b1"}': "100x60",
      'sluice_process_open_files_max{job="sluice-broker", instance="b1"}': "1024x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
    },
    "at": "40m",
  },
  "SluiceAcceptFailures": {
    "fires": {
      'sluice_accept_failures_total{job="sluice-broker", instance="b1", protocol="tcp"}': "0+1x60",
    },
    "quiet": {
      'sluice_accept_failures_total{job="sluice-broker", instance="b1", protocol="tcp"}': "3x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
      "protocol": "tcp",
    },
    "at": "40m",
  },
  "SluiceRestartLoop": {
    "fires": {
      'sluice_process_start_seconds{job="sluice-broker", instance="b1"}': "1x10 2x8 3x8 4x30",
    },
    "quiet": {
      'sluice_process_start_seconds{job="sluice-broker", instance="b1"}': "1x20 2x40",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
    },
    "at": "30m",
  },
  "SluiceMessagesGivenUp": {
    "fires": {
      'sluice_evicted_messages_total{job="sluice-broker", instance="b1"}': "0+5x60",
      'sluice_topic_limit_dropped_messages_total{job="sluice-broker", instance="b1"}': "0x60",
    },
    "quiet": {
      'sluice_evicted_messages_total{job="sluice-broker", instance="b1"}': "5x60",
      'sluice_topic_limit_dropped_messages_total{job="sluice-broker", instance="b1"}': "0x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
    },
    "at": "40m",
  },
  "SluiceSpaceNotReclaimed": {
    "fires": {
      'sluice_log_amplification{job="sluice-broker", instance="b1"}': "6x200",
      'sluice_log_bytes{job="sluice-broker", instance="b1"}': "2000000000x200",
    },
    "quiet": {
      'sluice_log_amplification{job="sluice-broker", instance="b1"}': "6x200",
      'sluice_log_bytes{job="sluice-broker", instance="b1"}': "20000x200",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
    },
    "at": "150m",
  },
  "SluiceNotRegistered": {
    "fires": {
      'sluice_registration_up{job="sluice-broker", instance="b1", source="d:4160"}': "0x60",
    },
    "quiet": {
      'sluice_registration_up{job="sluice-broker", instance="b1", source="d:4160"}': "1x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
      "source": "d:4160",
    },
    "at": "40m",
  },
  "SluiceAuthorizationUnavailable": {
    "fires": {
      'sluice_auth_unavailable_total{job="sluice-broker", instance="b1"}': "0+1x60",
    },
    "quiet": {
      'sluice_auth_unavailable_total{job="sluice-broker", instance="b1"}': "4x60",
      'sluice_auth_stale_files{job="sluice-broker", instance="b1"}': "0x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
    },
    "at": "40m",
  },
  "SluiceLossWindowOld": {
    "fires": {
      'sluice_loss_window_age_seconds{job="sluice-broker", instance="b1"}': "3x60",
    },
    "quiet": {
      'sluice_loss_window_age_seconds{job="sluice-broker", instance="b1"}': "0.01x60",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
    },
    "at": "40m",
  },
  "SluiceMetricsOmitTopics": {
    "fires": {
      'sluice_metrics_topics_omitted{job="sluice-broker", instance="b1"}': "5x120",
    },
    "quiet": {
      'sluice_metrics_topics_omitted{job="sluice-broker", instance="b1"}': "0x120",
    },
    "labels": {
      "job": "sluice-broker",
      "instance": "b1",
    },
    "at": "90m",
  },
  "SluiceGatewayDown": {
    "fires": {
      'up{job="sluice-gateway", instance="g1"}': "0x60",
    },
    "quiet": {
      'up{job="sluice-gateway", instance="g1"}': "1x60",
    },
    "labels": {
      "job": "sluice-gateway",
      "instance": "g1",
    },
    "at": "40m",
  },
  "SluiceGatewayNotReady": {
    "fires": {
      'sluice_gateway_ready{job="sluice-gateway", instance="g1"}': "0x60",
    },
    "quiet": {
      'sluice_gateway_ready{job="sluice-gateway", instance="g1"}': "1x60",
    },
    "labels": {
      "job": "sluice-gateway",
      "instance": "g1",
    },
    "at": "40m",
  },
  "SluiceGatewayNoBroker": {
    "fires": {
      'sluice_gateway_brokers{job="sluice-gateway", instance="g1", state="usable"}': "0x60",
      'sluice_gateway_brokers{job="sluice-gateway", instance="g1", state="slow"}': "0x60",
      'sluice_gateway_brokers{job="sluice-gateway", instance="g1", state="open"}': "2x60",
    },
    "quiet": {
      'sluice_gateway_brokers{job="sluice-gateway", instance="g1", state="usable"}': "0x60",
      'sluice_gateway_brokers{job="sluice-gateway", instance="g1", state="slow"}': "1x60",
    },
    "labels": {
      "job": "sluice-gateway",
      "instance": "g1",
    },
    "at": "40m",
  },
  "SluiceGatewaySpoolGrows": {
    "fires": {
      'sluice_gateway_spool_depth{job="sluice-gateway", instance="g1"}': "2000+10x60",
    },
    "quiet": {
      'sluice_gateway_spool_depth{job="sluice-gateway", instance="g1"}': "2000-10x60",
    },
    "labels": {
      "job": "sluice-gateway",
      "instance": "g1",
    },
    "at": "40m",
  },
  "SluiceGatewaySpoolOld": {
    "fires": {
      'sluice_gateway_spool_oldest_age_seconds{job="sluice-gateway", instance="g1"}': "900x60",
    },
    "quiet": {
      'sluice_gateway_spool_oldest_age_seconds{job="sluice-gateway", instance="g1"}': "20x60",
    },
    "labels": {
      "job": "sluice-gateway",
      "instance": "g1",
    },
    "at": "40m",
  },
  "SluiceGatewaySpoolRefuses": {
    "fires": {
      'sluice_gateway_spool_refused_total{job="sluice-gateway", instance="g1", reason="full"}':
        "0+1x60",
    },
    "quiet": {
      'sluice_gateway_spool_refused_total{job="sluice-gateway", instance="g1", reason="full"}':
        "3x60",
    },
    "labels": {
      "job": "sluice-gateway",
      "instance": "g1",
      "reason": "full",
    },
    "at": "40m",
  },
  "SluiceGatewayQuarantine": {
    "fires": {
      'sluice_gateway_spool_quarantined{job="sluice-gateway", instance="g1"}': "1x60",
    },
    "quiet": {
      'sluice_gateway_spool_quarantined{job="sluice-gateway", instance="g1"}': "0x60",
    },
    "labels": {
      "job": "sluice-gateway",
      "instance": "g1",
    },
    "at": "40m",
  },
  "SluiceGatewayAmbiguous": {
    "fires": {
      'sluice_gateway_publishes_total{job="sluice-gateway", instance="g1", outcome="ambiguous"}':
        "0+1x60",
    },
    "quiet": {
      'sluice_gateway_publishes_total{job="sluice-gateway", instance="g1", outcome="ambiguous"}':
        "2x60",
    },
    "labels": {
      "job": "sluice-gateway",
      "instance": "g1",
      "outcome": "ambiguous",
    },
    "at": "40m",
  },
  "SluiceGatewayDiscoveryLost": {
    "fires": {
      'sluice_gateway_sources{job="sluice-gateway", instance="g1", state="current"}': "0x60",
      'sluice_gateway_sources{job="sluice-gateway", instance="g1", state="stale"}': "1x60",
    },
    "quiet": {
      'sluice_gateway_sources{job="sluice-gateway", instance="g1", state="current"}': "1x60",
      'sluice_gateway_sources{job="sluice-gateway", instance="g1", state="stale"}': "1x60",
    },
    "labels": {
      "job": "sluice-gateway",
      "instance": "g1",
    },
    "at": "40m",
  },
  "SluiceDiscoveryDown": {
    "fires": {
      'up{job="sluice-discovery", instance="d1"}': "0x60",
    },
    "quiet": {
      'up{job="sluice-discovery", instance="d1"}': "1x60",
    },
    "labels": {
      "job": "sluice-discovery",
      "instance": "d1",
    },
    "at": "40m",
  },
  "SluiceDiscoverySourceFailed": {
    "fires": {
      'sluice_discovery_source_current{job="sluice-discovery", instance="d1", source="dns"}':
        "0x60",
    },
    "quiet": {
      'sluice_discovery_source_current{job="sluice-discovery", instance="d1", source="dns"}':
        "1x60",
    },
    "labels": {
      "job": "sluice-discovery",
      "instance": "d1",
      "source": "dns",
    },
    "at": "40m",
  },
  "SluiceDiscoveryNoBrokers": {
    "fires": {
      'sluice_discovery_producers{job="sluice-discovery", instance="d1"}': "0x60",
      'sluice_discovery_polled_brokers{job="sluice-discovery", instance="d1", state="fresh"}':
        "0x60",
    },
    "quiet": {
      'sluice_discovery_producers{job="sluice-discovery", instance="d1"}': "0x60",
      'sluice_discovery_polled_brokers{job="sluice-discovery", instance="d1", state="fresh"}':
        "2x60",
    },
    "labels": {
      "job": "sluice-discovery",
      "instance": "d1",
    },
    "at": "40m",
  },
  "SluiceDiscoveryBrokersUnreachable": {
    "fires": {
      'sluice_discovery_polled_brokers{job="sluice-discovery", instance="d1", state="unreachable"}':
        "1x60",
    },
    "quiet": {
      'sluice_discovery_polled_brokers{job="sluice-discovery", instance="d1", state="unreachable"}':
        "0x60",
    },
    "labels": {
      "job": "sluice-discovery",
      "instance": "d1",
      "state": "unreachable",
    },
    "at": "40m",
  },
};
