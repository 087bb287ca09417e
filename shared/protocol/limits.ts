/**
 * Sizes and ranges of the protocol: what is fixed, and what a server starts with when nobody
 * configured it. The defaults are nsqd's.
 */

/** A command line with its `\n`. A longer one drops the connection without an error frame. */
export const LINE_BYTES_MAX = 16 * 1024;
/** A topic or channel name with its `#ephemeral` suffix. */
export const NAME_BYTES_MAX = 64;
/** Attempts stop here on the wire: nsqjs and pynsq read the field as signed. */
export const ATTEMPTS_MAX = 32767;
export const SAMPLE_RATE_MAX = 99;
export const HEARTBEAT_INTERVAL_MS_MIN = 1000;
export const MESSAGE_TIMEOUT_MS_MIN = 1000;
export const OUTPUT_BUFFER_BYTES_MIN = 64;

export const MESSAGE_BYTES_MAX_DEFAULT = 1024 * 1024;
