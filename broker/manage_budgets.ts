/** The budgets of management and of single messages, for the list of all: see `budgets.ts`. */
import type { Budget } from "./budgets.ts";
import { type Management, OPERATIONS_MAX, OPERATIONS_UNDER_WAY_MAX } from "./manage.ts";
import { type Mover, MOVES_MAX } from "./move.ts";
import { type Tombstones, TOMBSTONES_MAX } from "./tombstones.ts";

/** What the figures are of. */
export interface ManagedBroker {
  readonly management: Management;
  readonly mover: Mover;
  readonly administration: { readonly tombstones: Tombstones };
  readonly uploads: { readonly size: number };
}

/** See the module. */
export function manageBudgets(broker: ManagedBroker): Budget[] {
  const { management, mover, administration: { tombstones } } = broker;
  return [
    {
      name: "management_operations",
      unit: "count",
      atLimit: "refuse",
      doc: "Management operations under way.",
      used: () => management.underWayCount,
      limit: () => OPERATIONS_UNDER_WAY_MAX,
      refused: () => management.refusedCount,
    },
    {
      name: "operation_answers",
      unit: "count",
      atLimit: "evict",
      doc: "Answers of management operations that a repeat would get.",
      used: () => management.rememberedCount,
      limit: () => OPERATIONS_MAX,
      refused: () => null,
    },
    {
      name: "tombstones",
      unit: "count",
      atLimit: "refuse",
      doc: "Names that are kept away.",
      used: () => tombstones.size,
      limit: () => TOMBSTONES_MAX,
      refused: () => tombstones.refusedCount,
    },
    {
      name: "moves",
      unit: "count",
      atLimit: "refuse",
      doc: "Moves of messages to other topics under way.",
      used: () => mover.underWayCount,
      limit: () => MOVES_MAX,
      refused: () => mover.refusedCount,
    },
    {
      name: "large_uploads",
      unit: "count",
      atLimit: "refuse",
      doc: "Bodies on their way into the log in parts; their memory is the budget publish.",
      used: () => broker.uploads.size,
      limit: () => null,
      refused: () => null,
    },
  ];
}
