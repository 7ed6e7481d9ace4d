package millrace.kernel;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/**
 * Values from which any quantile can be told to within an error of rank, after Karnin, Lang and Liberty (2016). A value of
 * level n stands for 2^n values. Where there are too many, a level is sorted and every second of its values goes one
 * level up: the even or the odd ones, which a coin decides.
 *
 * What holds: the coin is a hash of the values at hand, and nothing is thrown away before it is written (or `MOST` are
 * held). So what is written depends on which values came since it was read, not on their order; and the least and the
 * greatest value are exact, as is everything as long as there are few.
 */
final class Kll {
  private static final int FORM = 1;
  /** Values of one key and window that wait for being written. */
  private static final int MOST = 100_000;
  private static final int LEAST_ROOM = 8;
  private static final double SHRINK = 2.0 / 3.0;

  private final Carrier carrier;
  private final int size;
  private final List<List<Object>> levels = new ArrayList<>();
  private Object least;
  private Object greatest;
  private long count;
  private int held;

  /** `size` is the room of the highest level; those below have less and less. */
  Kll(Carrier carrier, int size) {
    this.carrier = carrier;
    this.size = size;
    levels.add(new ArrayList<>());
  }

  void add(Object value) {
    Object one = carrier.key(value);
    widen(one, one);
    levels.get(0).add(one);
    count++;
    held++;
    if (held > MOST) settle();
  }

  /** Does not change the other. */
  void add(Kll other) {
    if (other.count == 0) return;
    widen(other.least, other.greatest);
    while (levels.size() < other.levels.size()) levels.add(new ArrayList<>());
    for (int level = 0; level < other.levels.size(); level++) levels.get(level).addAll(other.levels.get(level));
    count += other.count;
    held += other.held;
    if (held > MOST) settle();
  }

  private void widen(Object low, Object high) {
    if (least == null || carrier.compare(low, least) < 0) least = low;
    if (greatest == null || carrier.compare(high, greatest) > 0) greatest = high;
  }

  private record Weighted(Object value, long weight) {}

  /** Of each rank (0 to 1) the least value that at least this share of all values is not above. Null where none are. */
  Object[] quantiles(double[] ranks) {
    if (count == 0) return null;
    List<Weighted> sorted = new ArrayList<>(held);
    for (int level = 0; level < levels.size(); level++) {
      for (Object value : levels.get(level)) sorted.add(new Weighted(value, 1L << level));
    }
    sorted.sort(Comparator.comparing(Weighted::value, carrier::compare));
    Object[] found = new Object[ranks.length];
    for (int place = 0; place < ranks.length; place++) found[place] = at(sorted, ranks[place]);
    return found;
  }

  private Object at(List<Weighted> sorted, double rank) {
    long wanted = wanted(rank, count);
    if (wanted <= 1) return least;
    if (wanted >= count) return greatest;
    long passed = 0;
    for (Weighted each : sorted) {
      passed += each.weight;
      if (passed >= wanted) return each.value;
    }
    return greatest;
  }

  /** Which one of the values it is, in their order. 0.07 of 100 is the seventh, though doubles make a little more of it. */
  private static long wanted(double rank, long count) {
    return (long) Math.ceil(rank * count - 1e-9);
  }

  /** Makes it small: until all levels together have no more than their room. */
  private void settle() {
    while (true) {
      int room = 0;
      int first = -1;
      for (int level = 0; level < levels.size(); level++) {
        room += room(level);
        if (first < 0 && levels.get(level).size() > room(level)) first = level;
      }
      if (held <= room) return;
      compact(first);
    }
  }

  private int room(int level) {
    int below = levels.size() - 1 - level;
    return Math.max(LEAST_ROOM, (int) Math.ceil(size * Math.pow(SHRINK, below)));
  }

  private void compact(int level) {
    List<Object> from = levels.get(level);
    from.sort(carrier::compare);
    // One that has no partner stays where it is.
    Object single = from.size() % 2 == 1 ? from.remove(from.size() - 1) : null;
    if (level == levels.size() - 1) levels.add(new ArrayList<>());
    List<Object> to = levels.get(level + 1);
    for (int place = coin(from, level); place < from.size(); place += 2) to.add(from.get(place));
    held -= from.size() / 2;
    from.clear();
    if (single != null) from.add(single);
  }

  private static int coin(List<Object> values, int level) {
    long mixed = level;
    for (int place = 0; place < values.size(); place++) mixed = mixed * 31 + values.get(place).hashCode();
    mixed = (mixed ^ mixed >>> 33) * 0xff51afd7ed558ccdL;
    mixed = (mixed ^ mixed >>> 33) * 0xc4ceb9fe1a85ec53L;
    return (int) (mixed >>> 63);
  }

  void write(DataOutput out) throws IOException {
    settle();
    out.writeByte(FORM);
    VarLong.write(count, out);
    if (count == 0) return;
    carrier.write(least, out);
    carrier.write(greatest, out);
    VarLong.write(levels.size(), out);
    for (List<Object> level : levels) {
      VarLong.write(level.size(), out);
      for (Object value : level) carrier.write(value, out);
    }
  }

  static Kll read(Carrier carrier, int size, DataInput in) throws IOException {
    Stored.known(in.readUnsignedByte(), FORM);
    Kll found = new Kll(carrier, size);
    found.count = VarLong.read(in);
    if (found.count == 0) return found;
    found.least = carrier.read(in);
    found.greatest = carrier.read(in);
    found.levels.clear();
    for (long left = VarLong.read(in); left > 0; left--) {
      int values = (int) VarLong.read(in);
      List<Object> level = new ArrayList<>(values);
      for (int place = 0; place < values; place++) level.add(carrier.read(in));
      found.levels.add(level);
      found.held += values;
    }
    return found;
  }
}
