/**
 * The real DNS client. The runtime's resolver tells no times to live, and answers a name that does not
 * exist, one without such records, and a server that failed alike: all of them are an empty list here.
 */
import { NameResolutionError, type NameResolver, type ServiceRecord } from "./name_resolver.ts";

/** A name server other than those of the machine. */
export interface NameServer {
  readonly ipAddress: string;
  readonly port: number;
}

/** {@linkcode NameResolver} over the machine's name servers, or over one that is given. */
export class SystemNameResolver implements NameResolver {
  readonly #server: NameServer | null;

  constructor(server: NameServer | null = null) {
    this.#server = server;
  }

  async addresses(name: string, timeoutMs: number): Promise<string[]> {
    const [ipv4, ipv6] = await Promise.all([
      resolved(name, () => Deno.resolveDns(name, "A", this.#options(timeoutMs))),
      resolved(name, () => Deno.resolveDns(name, "AAAA", this.#options(timeoutMs))),
    ]);
    return [...ipv4, ...ipv6];
  }

  async services(name: string, timeoutMs: number): Promise<ServiceRecord[]> {
    const records = await resolved(
      name,
      () => Deno.resolveDns(name, "SRV", this.#options(timeoutMs)),
    );
    return records.map(({ target, port }) => ({ host: target.replace(/\.$/, ""), port }));
  }

  #options(timeoutMs: number): Deno.ResolveDnsOptions {
    const signal = AbortSignal.timeout(timeoutMs);
    if (this.#server === null) return { signal };
    const { ipAddress, port } = this.#server;
    return { signal, nameServer: { ipAddr: ipAddress, port } };
  }
}

async function resolved<T>(name: string, ask: () => Promise<T[]>): Promise<T[]> {
  try {
    return await ask();
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return [];
    const reason = error instanceof Error ? error.message : String(error);
    throw new NameResolutionError(`Cannot look up ${name}: ${reason}`, { cause: error });
  }
}
