package millrace.kernel;

/**
 * An event of a key's history: when it happened, and a value (or null) for each slot, which is what aggregates look at.
 * `row` is the number under which its row is kept, if rows are.
 */
record PastEvent(long timeUs, long row, Object[] values) {}
