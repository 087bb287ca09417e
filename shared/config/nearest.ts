/** Finds the known name a mistyped one was probably meant to be. */

/** Longer names are not compared: the work is the product of the lengths. */
const NAME_CHARACTERS_MAX = 100;

/**
 * The name with the fewest edits (insert, delete, replace, swap of neighbours) from `given`; the first
 * of equals. `undefined` when even that one differs in more than half of its characters.
 */
export function nearestName(given: string, known: Iterable<string>): string | undefined {
  if (given.length > NAME_CHARACTERS_MAX) return undefined;
  let nearest: string | undefined;
  let fewest = Infinity;
  for (const name of known) {
    const edits = editDistance(given.toLowerCase(), name.toLowerCase());
    if (edits < fewest && edits <= name.length / 2) {
      fewest = edits;
      nearest = name;
    }
  }
  return nearest;
}

/** The number of edits that turn `from` into `to`. */
export function editDistance(from: string, to: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (let row = 1; row <= from.length; row++) {
    const current = [row];
    for (let column = 1; column <= to.length; column++) {
      const same = from[row - 1] === to[column - 1];
      let edits = Math.min(
        (last[column] ?? Infinity) + 1,
        (current[column - 1] ?? Infinity) + 1,
        (last[column - 1] ?? Infinity) + (same ? 0 : 1),
      );
      const swapped = from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1];
      if (swapped) edits = Math.min(edits, (beforeLast[column - 2] ?? Infinity) + 1);
      current.push(edits);
    }
    beforeLast = last;
    last = current;
  }
  return last[to.length] ?? 0;
}
