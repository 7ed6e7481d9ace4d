package millrace.kernel;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/**
 * What the row of one key was, and since when: each version counts from its time on until that of the next.
 *
 * What holds: there is one version at a time; of several the one with the greatest tie. A version without a row says
 * that the row is gone. `begins` of the first one says that there was no row before it; otherwise nobody knows. Of a
 * `whole` table a key without versions has no row; otherwise nobody knows either.
 *
 * A log may have gaps, after which a capture reads all rows anew. So of a `logged` table nobody knows either since when
 * there is a row again that was gone, if it does not begin. That is also what lets a row that is gone be forgotten.
 */
final class Versions {
  /** What is known of a row at some time: nothing; or that it was this one, or with null that there was none. */
  record Answer(boolean known, byte[] row) {
    static final Answer UNKNOWN = new Answer(false, null);
    static final Answer NONE = new Answer(true, null);
  }

  private record Version(long timeUs, Answer answer) {}

  private static final long GONE = 1;
  private static final long BEGINS = 2;

  private final History history;
  private final History.Nodes rows;
  private final boolean whole;
  private final boolean logged;
  private final long goneUs;
  private long nextRow;
  // Versions before this time were cut off, whatever the history still lists.
  private long fromUs = Long.MIN_VALUE;
  private long readRow = -1;
  private byte[] read;

  /** For `goneUs` a row that is gone is remembered as such, against rows from before that come very late. */
  Versions(
      HistoryShape shape, History.Nodes nodes, History.Nodes rows, boolean whole, boolean logged, long goneUs) {
    history = new History(shape, nodes);
    this.rows = rows;
    this.whole = whole;
    this.logged = logged;
    this.goneUs = goneUs;
  }

  static HistoryShape shape(int mostVersions, int mostParts) {
    Carrier[] slots = {Carrier.LONG, Carrier.LONG};
    return new HistoryShape(slots, new HistoryShape.Measure[0], true, mostVersions, mostParts);
  }

  boolean isEmpty() {
    return history.lastUs() == null;
  }

  /** The time of the newest version; null if there is none. */
  Long newestUs() {
    return history.lastUs();
  }

  byte[] newestRow() {
    return history.lastUs() == null ? null : rowOf(history.lastUpTo(Long.MAX_VALUE));
  }

  void put(long timeUs, byte[] row, boolean begins, long tie) {
    if (timeUs < fromUs) return; // a later one counts wherever somebody can still ask
    PastEvent there = history.lastUpTo(timeUs);
    if (there == null || there.timeUs() != timeUs) {
      if (row != null) rows.put(nextRow, row);
      history.add(version(timeUs, nextRow++, row == null, begins, tie));
    } else if (tie > (Long) there.values()[1]) {
      if (row != null) rows.put(there.row(), row);
      else if (!is(there, GONE)) rows.remove(there.row());
      readRow = -1;
      history.replace(version(timeUs, there.row(), row == null, is(there, BEGINS), tie));
    }
  }

  Answer at(long timeUs) {
    PastEvent found = history.lastUpTo(timeUs);
    return found == null ? before(history.firstFrom(fromUs)) : of(found);
  }

  private Answer of(PastEvent version) {
    PastEvent next = logged && is(version, GONE) ? history.firstFrom(version.timeUs() + 1) : null;
    return next == null || is(next, BEGINS) ? new Answer(true, rowOf(version)) : Answer.UNKNOWN;
  }

  private Answer before(PastEvent first) {
    return (first == null ? whole : is(first, BEGINS)) ? Answer.NONE : Answer.UNKNOWN;
  }

  /** Each version that somebody can ask for, with its row; null of one that says that it is gone. */
  void each(KeptEvents.Visit visit) {
    history.walk(fromUs, Long.MAX_VALUE, each -> visit.of(each.timeUs(), rowOf(each)));
  }

  /** When the next version after this time begins; the end of time if there is none. */
  long nextAfterUs(long timeUs) {
    PastEvent next = history.firstFrom(timeUs + 1);
    return next == null ? Long.MAX_VALUE : next.timeUs();
  }

  /** What is known from one time on and before another, as it is now. */
  Span span(long sinceUs, long beforeUs) {
    PastEvent first = history.lastUpTo(sinceUs);
    Answer before = first == null ? before(history.firstFrom(fromUs)) : of(first);
    List<Version> found = new ArrayList<>();
    history.walk(sinceUs + 1, beforeUs, each -> found.add(new Version(each.timeUs(), of(each))));
    return new Span(before, found);
  }

  static final class Span {
    private final Answer before;
    private final List<Version> versions;

    private Span(Answer before, List<Version> versions) {
      this.before = before;
      this.versions = versions;
    }

    Answer at(long timeUs) {
      int low = 0;
      int high = versions.size();
      while (low < high) {
        int middle = (low + high) >>> 1;
        if (versions.get(middle).timeUs <= timeUs) low = middle + 1;
        else high = middle;
      }
      return low == 0 ? before : versions.get(low - 1).answer;
    }
  }

  /** Nobody asks for a time before this one any more: what was replaced by then goes, the newest of that stays. */
  void cut(long askedFromUs) {
    PastEvent kept = history.lastUpTo(askedFromUs);
    if (kept == null) return;
    boolean last = history.lastUs() == kept.timeUs();
    if (kept.timeUs() > fromUs) {
      history.walk(fromUs, kept.timeUs(), each -> {
        if (!is(each, GONE)) rows.remove(each.row());
      });
      fromUs = kept.timeUs();
      history.forget(fromUs - 1);
    }
    if (last && whole && is(kept, GONE) && kept.timeUs() + goneUs <= askedFromUs) {
      history.forget(Long.MAX_VALUE);
      fromUs = Long.MIN_VALUE;
    }
  }

  /** From which time on, if nobody asks before it, there is something to cut; null if never. */
  Long cutUs() {
    Long lastUs = history.lastUs();
    if (lastUs == null) return null;
    if (history.firstFrom(fromUs).timeUs() < lastUs) return lastUs;
    return whole && is(history.lastUpTo(lastUs), GONE) ? Long.valueOf(lastUs + goneUs) : null;
  }

  private byte[] rowOf(PastEvent version) {
    if (is(version, GONE)) return null;
    if (version.row() != readRow) {
      read = rows.get(version.row());
      readRow = version.row();
    }
    return read;
  }

  private static boolean is(PastEvent version, long flag) {
    return ((Long) version.values()[0] & flag) != 0;
  }

  private static PastEvent version(long timeUs, long row, boolean gone, boolean begins, long tie) {
    return new PastEvent(timeUs, row, new Object[] {(gone ? GONE : 0) | (begins ? BEGINS : 0), tie});
  }

  void write(DataOutput out) throws IOException {
    VarLong.write(nextRow, out);
    out.writeBoolean(fromUs != Long.MIN_VALUE);
    if (fromUs != Long.MIN_VALUE) VarLong.write(fromUs, out);
    history.write(out);
  }

  void read(DataInput in) throws IOException {
    nextRow = VarLong.read(in);
    fromUs = in.readBoolean() ? VarLong.read(in) : Long.MIN_VALUE;
    history.read(in);
  }
}
