/** How an outcome is told to an NSQ client. */
import {
  errorCodeOf,
  ProtocolError,
  publishFailed,
  type PublishVerb,
  throttled,
  verbName,
} from "@sluice/shared/protocol";
import { unreachable } from "@sluice/shared/runtime";
import type { Outcome } from "./transit.ts";

/** Null for an OK. What a broker said is told in the words of the client's own command. */
export function errorOf(verb: PublishVerb, outcome: Outcome): ProtocolError | null {
  switch (outcome.kind) {
    case "confirmed":
    case "spooled":
      return null;
    case "refused": {
      const code = errorCodeOf(outcome.text);
      if (code === undefined) return publishFailed(verb, outcome.text);
      const description = outcome.text.slice(code.length + 1);
      return new ProtocolError(code, description.replace(/\bS?M?PUB\b/, verbName(verb)));
    }
    case "throttled":
      return throttled(verb, outcome.text);
    case "ambiguous":
      return new ProtocolError("E_AMBIGUOUS", `${verbName(verb)} ${outcome.text}`);
    case "failed":
      return publishFailed(verb, outcome.text);
    default:
      return unreachable(outcome);
  }
}
