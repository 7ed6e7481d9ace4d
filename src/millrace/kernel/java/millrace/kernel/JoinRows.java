package millrace.kernel;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.function.Predicate;
import java.util.stream.Stream;

/** Rows of one stream and key. Whoever asks for those of some time has them sorted. */
final class JoinRows {
  record Each(long timeUs, byte[] row) {}

  private final List<Each> rows = new ArrayList<>();
  private int bytes;

  /** None, of each stream. */
  static JoinRows[] of(int streams) {
    JoinRows[] none = new JoinRows[streams];
    for (int stream = 0; stream < streams; stream++) none[stream] = new JoinRows();
    return none;
  }

  /** Both; where one of them has none, it is the other. */
  static JoinRows sorted(JoinRows some, JoinRows others) {
    if (some.isEmpty() || others.isEmpty()) return some.isEmpty() ? others : some;
    JoinRows both = new JoinRows();
    both.addAll(some);
    both.addAll(others);
    both.sort();
    return both;
  }

  void add(long timeUs, byte[] row) {
    add(new Each(timeUs, row));
  }

  private void add(Each each) {
    rows.add(each);
    bytes += each.row.length;
  }

  void addAll(JoinRows others) {
    addAll(others, each -> true);
  }

  void addAll(JoinRows others, Predicate<Each> wanted) {
    for (Each each : others.rows) if (wanted.test(each)) add(each);
  }

  boolean isEmpty() {
    return rows.isEmpty();
  }

  /** About how much room they take. */
  int bytes() {
    return bytes + 8 * rows.size();
  }

  long firstUs() {
    return rows.get(0).timeUs;
  }

  long lastUs() {
    return rows.get(rows.size() - 1).timeUs;
  }

  void sort() {
    if (rows.size() > 1) rows.sort(Comparator.comparingLong(Each::timeUs));
  }

  /** In parts of about so many bytes each, in the order of time. */
  List<JoinRows> parts(int most) {
    List<JoinRows> parts = new ArrayList<>();
    JoinRows part = null;
    for (Each each : rows) {
      if (part == null || part.bytes() >= most) parts.add(part = new JoinRows());
      part.add(each);
    }
    return parts;
  }

  Stream<Each> each() {
    return rows.stream();
  }

  /** Whether there are some from one time to another, both included. */
  boolean any(long fromUs, long toUs) {
    int begin = firstFrom(fromUs);
    return begin < rows.size() && rows.get(begin).timeUs <= toUs;
  }

  Stream<Each> between(long fromUs, long toUs) {
    int begin = firstFrom(fromUs);
    return rows.subList(begin, Math.max(begin, firstFrom(toUs + 1))).stream();
  }

  private int firstFrom(long timeUs) {
    int low = 0;
    int high = rows.size();
    while (low < high) {
      int middle = (low + high) >>> 1;
      if (rows.get(middle).timeUs < timeUs) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  void write(DataOutput out) throws IOException {
    VarLong.write(rows.size(), out);
    long beforeUs = 0;
    for (Each each : rows) {
      VarLong.write(each.timeUs - beforeUs, out);
      VarLong.write(each.row.length, out);
      out.write(each.row);
      beforeUs = each.timeUs;
    }
  }

  static JoinRows read(DataInput in) throws IOException {
    JoinRows found = new JoinRows();
    long timeUs = 0;
    for (long left = VarLong.read(in); left > 0; left--) {
      timeUs += VarLong.read(in);
      byte[] row = new byte[(int) VarLong.read(in)];
      in.readFully(row);
      found.add(timeUs, row);
    }
    return found;
  }
}
