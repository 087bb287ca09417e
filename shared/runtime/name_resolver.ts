/** Looking names up in DNS, as a parameter. */

/** A place where a service is, from an SRV record. */
export interface ServiceRecord {
  readonly host: string;
  readonly port: number;
}

/** Looks up names. A name without records of the kind that is asked for gives an empty list. */
export interface NameResolver {
  /** IPv4 and IPv6 addresses. Rejects with {@linkcode NameResolutionError}. */
  addresses(name: string, timeoutMs: number): Promise<string[]>;
  /** Rejects with {@linkcode NameResolutionError}. */
  services(name: string, timeoutMs: number): Promise<ServiceRecord[]>;
}

/** There is no answer. */
export class NameResolutionError extends Error {
  override name = "NameResolutionError";
}
