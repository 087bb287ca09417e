/**
 * The settings of a running broker: `GET /config/:opt` reads them all, `PUT` changes two of them, as in
 * nsqd. A change lasts until the process ends, or the settings are reloaded.
 */
import { configOption, type OptionBody, type Setting } from "@sluice/shared/config";
import type { brokerSettings, BrokerValues } from "./config.ts";
import type { BrokerKey } from "./reload.ts";
import type { ConfigAccess, ConfigRefusal } from "./server/config_http.ts";

/** What a change sets going. */
export interface ConfigEffects {
  logLevel(level: BrokerValues["logLevel"]): void;
  lookupdTcpAddresses(addresses: BrokerValues["lookupdTcpAddresses"]): void;
}

/** See the module. */
export class RuntimeConfig implements ConfigAccess {
  readonly #declaration: ReturnType<typeof brokerSettings>;
  readonly #effects: ConfigEffects;
  #values: BrokerValues;

  constructor(
    declaration: ReturnType<typeof brokerSettings>,
    values: BrokerValues,
    effects: ConfigEffects,
  ) {
    this.#declaration = declaration;
    this.#values = values;
    this.#effects = effects;
  }

  /** What is in use. */
  get values(): BrokerValues {
    return this.#values;
  }

  /** Other values are in use now; whoever says so has had them take effect. */
  replace(values: BrokerValues): void {
    this.#values = values;
  }

  get(option: string): OptionBody | undefined {
    return configOption(this.#declaration, this.#values, option);
  }

  text(option: string): string | undefined {
    for (const [key, one] of Object.entries<Setting<unknown>>(this.#declaration.settings)) {
      if (one.file === option && !one.secret) return one.kind.show(this.#values[key as BrokerKey]);
    }
    return undefined;
  }

  change(option: string, body: string): ConfigRefusal | null {
    const { lookupdTcpAddresses, logLevel } = this.#declaration.settings;
    switch (option) {
      case lookupdTcpAddresses.file: {
        const document = parseArray(body);
        const addresses = document && lookupdTcpAddresses.kind.fromDocument(document);
        // Discovery has no Unix sockets.
        if (!addresses?.every(({ transport }) => transport === "tcp")) return "INVALID_VALUE";
        this.#values = { ...this.#values, lookupdTcpAddresses: addresses };
        this.#effects.lookupdTcpAddresses(addresses);
        return null;
      }
      case logLevel.file: {
        const level = logLevel.kind.parse(body);
        if (level === undefined) return "INVALID_VALUE";
        this.#values = { ...this.#values, logLevel: level };
        this.#effects.logLevel(level);
        return null;
      }
      default:
        return "INVALID_OPTION";
    }
  }
}

/** A JSON array, or nothing. */
function parseArray(text: string): unknown[] | undefined {
  try {
    const document: unknown = JSON.parse(text);
    return Array.isArray(document) ? document : undefined;
  } catch {
    return undefined;
  }
}
