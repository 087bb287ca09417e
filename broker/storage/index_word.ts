/** What stands in an index in place of a position. */

/** `position` of an offset that cannot be read any more. */
export const MISSING = -1;
/** `position` of an offset whose place has to be read from disk first: `load` does. */
export const NOT_LOADED = -2;
/** The word of a missing message. */
export const MISSING_WORD = 0xffffffff;
