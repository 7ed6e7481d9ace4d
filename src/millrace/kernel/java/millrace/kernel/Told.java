package millrace.kernel;

/** What a row is that an operator tells; `kernel/told.py` has the same numbers. */
final class Told {
  static final int RESULT = 0;
  /** A row that came too late. REFUSED_TOO where it was told as REFUSED before: a row counts once. */
  static final int REFUSED = 1;
  static final int REFUSED_TOO = 2;
  /** A row that came late and counts nevertheless. */
  static final int ALLOWED = 3;
  /** A change of a table that came too late for events that were told; it counts for those that follow. */
  static final int REFUSED_CHANGE = 4;

  /** No row: by how many the partial matches of a key have become more or fewer, in place of `lateUs`. */
  static final int PARTIAL = 5;

  private Told() {}
}
