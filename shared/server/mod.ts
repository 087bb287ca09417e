/**
 * What the doors of the services that take NSQ connections share: accepting, layers, upgrades,
 * output, authorization, TLS files and the listener of HTTP, with the settings of TLS and
 * authorization.
 */
export * from "./authorization_settings.ts";
export * from "./connection_layers.ts";
export * from "./door_metrics.ts";
export * from "./doors.ts";
export * from "./http_access.ts";
export * from "./http_listener.ts";
export * from "./nsq_link.ts";
export * from "./nsq_session.ts";
export * from "./outbox.ts";
export * from "./outbox_buffers.ts";
export * from "./remote_host.ts";
export * from "./session_access.ts";
export * from "./tcp_server.ts";
export * from "./tls_files.ts";
export * from "./tls_http.ts";
export * from "./tls_settings.ts";
export * from "./upgrade.ts";
