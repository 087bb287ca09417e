/** The release of all Sluice programs, by the rules of semantic versioning. */
export const SLUICE_VERSION = "0.1.0";

/** The NSQ release whose wire behaviour ours follows. */
export const NSQ_VERSION = "1.3.0";

/**
 * What we tell NSQ programs as our version. Admin tools parse it as a semantic version, some
 * clients compare it as a string, so NSQ's number leads and ours is build metadata.
 */
export const REPORTED_VERSION = `${NSQ_VERSION}+sluice.${SLUICE_VERSION}`;
