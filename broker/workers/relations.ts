/** What has to hold between the settings of a unit of workers. */
import type { Address } from "@sluice/shared/config";

const PORT_MAX = 65_535;
/** Node ids have ten bits. */
export const NODE_ID_MAX = 1023;

/** The settings that are looked at. */
export interface WorkerValues {
  readonly workers: number;
  readonly workerPortStep: number;
  readonly tcpAddress: Address;
  readonly httpAddress: Address;
  readonly httpsAddress: Address;
}

/** The rules that a unit of workers breaks. */
export function brokenWorkerRelations(values: WorkerValues): string[] {
  const { workers, workerPortStep } = values;
  if (workers === 1) return [];
  const broken: string[] = [];
  const last = (workers - 1) * workerPortStep;
  const ports = [values.tcpAddress, values.httpAddress, values.httpsAddress]
    .flatMap((address) => address.transport === "tcp" ? [address.port] : []);
  if (ports.some((port) => port + last > PORT_MAX)) {
    broken.push(`the ports of ${workers} workers, ${workerPortStep} apart, go above ${PORT_MAX}`);
  }
  const listened = new Set<number>();
  for (const port of ports.filter((one) => one !== 0)) {
    for (let index = 0; index < workers; index++) {
      const own = port + index * workerPortStep;
      if (listened.has(own)) broken.push(`two workers would listen on port ${own}`);
      listened.add(own);
    }
  }
  return broken;
}
