package millrace.kernel;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.TreeSet;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;

/**
 * Aggregates as a lookback needs them. What is held for parts of a key's events is merged in whatever parts they happen
 * to be kept, so it must not matter which: sums are exact. All but the distance are also merged in any order.
 */
final class Trailing {
  private static final double US_AN_HOUR = 3_600_000_000.0;

  /**
   * `most` is how many values a last_n gives, with how many a distinct is kept for a part of a key's events, and the size
   * of an approx_distinct.
   */
  static Aggregate of(String kind, DataType type, int most) {
    Carrier carrier = Carrier.of(type);
    boolean decimal = type instanceof DecimalType;
    switch (kind) {
      case "sum": return decimal ? Aggregate.of(kind, type) : carrier == Carrier.LONG ? new Whole(carrier) : new Sum(carrier);
      case "avg": return decimal ? Aggregate.of(kind, type) : new Mean(carrier);
      case "distinct": return new Distinct(carrier, most);
      case "approx_distinct": return new ApproxDistinct(carrier, most);
      case "last_n": return new LastN(carrier, type, most);
      case "distance": return new Distance(carrier);
      case "speed": return new Speed(carrier);
      default: return Aggregate.of(kind, type);
    }
  }

  /** In 128 bits: a part may have a sum that no long holds, where the whole has none. */
  private static final class Whole extends Aggregate {
    private static final class Held {
      long high;
      long low;
      boolean any;

      void add(long moreHigh, long moreLow) {
        low += moreLow;
        high += moreHigh + (Long.compareUnsigned(low, moreLow) < 0 ? 1 : 0);
        any = true;
      }
    }

    Whole(Carrier carrier) { super(carrier); }
    @Override Object empty() { return new Held(); }

    @Override
    Object add(Object held, Object value, long timeUs) {
      ((Held) held).add((Long) value >> 63, (Long) value);
      return held;
    }

    @Override
    Object merge(Object held, Object other) {
      Held more = (Held) other;
      if (more.any) ((Held) held).add(more.high, more.low);
      return held;
    }

    @Override
    Object result(Object held) {
      Held it = (Held) held;
      if (it.high != it.low >> 63) throw new ArithmeticException("a sum does not fit BIGINT");
      return it.any ? it.low : null;
    }

    @Override DataType resultType() { return DataTypes.LongType; }

    @Override
    void write(Object held, DataOutput out) throws IOException {
      Held it = (Held) held;
      out.writeBoolean(it.any);
      if (!it.any) return;
      out.writeLong(it.high);
      out.writeLong(it.low);
    }

    @Override
    Object read(DataInput in) throws IOException {
      Held held = new Held();
      if (in.readBoolean()) held.add(in.readLong(), in.readLong());
      return held;
    }
  }

  private static class Sum extends Aggregate {
    Sum(Carrier carrier) { super(carrier); }
    @Override Object empty() { return new ExactSum(); }

    @Override
    Object add(Object held, Object value, long timeUs) {
      ((ExactSum) held).add(((Number) value).doubleValue());
      return held;
    }

    @Override
    Object merge(Object held, Object other) {
      ((ExactSum) held).add((ExactSum) other);
      return held;
    }

    @Override Object result(Object held) { return ((ExactSum) held).count() == 0 ? null : ((ExactSum) held).value(); }
    @Override DataType resultType() { return DataTypes.DoubleType; }
    @Override void write(Object held, DataOutput out) throws IOException { ((ExactSum) held).write(out); }
    @Override Object read(DataInput in) throws IOException { return ExactSum.read(in); }
  }

  private static final class Mean extends Sum {
    Mean(Carrier carrier) { super(carrier); }

    @Override
    Object result(Object held) {
      ExactSum sum = (ExactSum) held;
      return sum.count() == 0 ? null : sum.value() / sum.count();
    }
  }

  private static final class Distinct extends Aggregate {
    private final int most;

    Distinct(Carrier carrier, int most) {
      super(carrier);
      this.most = most;
    }

    @Override Object empty() { return new TreeSet<Object>(carrier::compare); }

    @Override
    Object add(Object held, Object value, long timeUs) {
      values(held).add(value);
      return held;
    }

    @Override
    Object merge(Object held, Object other) {
      values(held).addAll(values(other));
      return held;
    }

    @SuppressWarnings("unchecked")
    private static TreeSet<Object> values(Object held) {
      return (TreeSet<Object>) held;
    }

    @Override boolean isSmall(Object held) { return values(held).size() <= most; }
    @Override Object result(Object held) { return (long) values(held).size(); }
    @Override DataType resultType() { return DataTypes.LongType; }

    @Override
    void write(Object held, DataOutput out) throws IOException {
      VarLong.write(values(held).size(), out);
      for (Object value : values(held)) carrier.write(value, out);
    }

    @Override
    Object read(DataInput in) throws IOException {
      Object held = empty();
      for (long left = VarLong.read(in); left > 0; left--) values(held).add(carrier.read(in));
      return held;
    }
  }

  private record Timed(long timeUs, Object value) {
    static Comparator<Timed> order(Carrier carrier) {
      return Comparator.comparingLong(Timed::timeUs).thenComparing(Timed::value, carrier::compare);
    }

    void write(Carrier carrier, DataOutput out) throws IOException {
      out.writeLong(timeUs);
      carrier.write(value, out);
    }

    static Timed read(Carrier carrier, DataInput in) throws IOException {
      return new Timed(in.readLong(), carrier.read(in));
    }
  }

  /** The latest values, in the order of time; of those at the same time the greatest. */
  private static final class LastN extends Aggregate {
    private final DataType type;
    private final int most;

    LastN(Carrier carrier, DataType type, int most) {
      super(carrier);
      this.type = type;
      this.most = most;
    }

    @Override Object empty() { return new ArrayList<Timed>(); }

    @Override
    Object add(Object held, Object value, long timeUs) {
      put(values(held), new Timed(timeUs, value));
      return held;
    }

    @Override
    Object merge(Object held, Object other) {
      for (Timed each : values(other)) put(values(held), each);
      return held;
    }

    private void put(List<Timed> sorted, Timed value) {
      Comparator<Timed> order = Timed.order(carrier);
      int place = sorted.size();
      while (place > 0 && order.compare(sorted.get(place - 1), value) > 0) place--;
      sorted.add(place, value);
      if (sorted.size() > most) sorted.remove(0);
    }

    @SuppressWarnings("unchecked")
    private static List<Timed> values(Object held) {
      return (List<Timed>) held;
    }

    @Override Object result(Object held) { return values(held).stream().map(Timed::value).toArray(); }

    @Override DataType resultType() { return DataTypes.createArrayType(type, false); }

    @Override
    void write(Object held, DataOutput out) throws IOException {
      VarLong.write(values(held).size(), out);
      for (Timed each : values(held)) each.write(carrier, out);
    }

    @Override
    Object read(DataInput in) throws IOException {
      List<Timed> held = new ArrayList<>();
      for (long left = VarLong.read(in); left > 0; left--) held.add(Timed.read(carrier, in));
      return held;
    }
  }

  /** Kilometres from each position to the next. Values and merged parts come in their order. */
  private static final class Distance extends Aggregate {
    private static final class Held {
      Position first;
      Position last;
      ExactSum length = new ExactSum();

      void goTo(Position next) {
        if (last == null) first = next;
        else length.add(last.kilometresTo(next));
        last = next;
      }
    }

    Distance(Carrier carrier) { super(carrier); }
    @Override Object empty() { return new Held(); }

    @Override
    Object add(Object held, Object value, long timeUs) {
      ((Held) held).goTo((Position) value);
      return held;
    }

    @Override
    Object merge(Object held, Object other) {
      Held more = (Held) other;
      if (more.first == null) return held;
      Held it = (Held) held;
      it.goTo(more.first);
      it.length.add(more.length);
      it.last = more.last;
      return held;
    }

    @Override Object result(Object held) { return ((Held) held).first == null ? null : ((Held) held).length.value(); }
    @Override DataType resultType() { return DataTypes.DoubleType; }

    @Override
    void write(Object held, DataOutput out) throws IOException {
      Held it = (Held) held;
      carrier.writeNullable(it.first, out);
      if (it.first == null) return;
      carrier.write(it.last, out);
      it.length.write(out);
    }

    @Override
    Object read(DataInput in) throws IOException {
      Held held = new Held();
      held.first = (Position) carrier.readNullable(in);
      if (held.first == null) return held;
      held.last = (Position) carrier.read(in);
      held.length = ExactSum.read(in);
      return held;
    }
  }

  /** Holds the latest position. It is asked for what came before an event, and how fast that got where the event is. */
  static final class Speed extends Aggregate {
    Speed(Carrier carrier) { super(carrier); }
    @Override Object add(Object held, Object value, long timeUs) { return merge(held, new Timed(timeUs, value)); }

    @Override
    Object merge(Object held, Object other) {
      if (held == null || other == null) return held == null ? other : held;
      return Timed.order(carrier).compare((Timed) other, (Timed) held) > 0 ? other : held;
    }

    /** In km/h; null where one of the two has no position. */
    Object result(Object held, long timeUs, Object position) {
      if (held == null || position == null) return null;
      Timed from = (Timed) held;
      return ((Position) from.value()).kilometresTo((Position) position) / ((timeUs - from.timeUs()) / US_AN_HOUR);
    }

    @Override Object result(Object held) { throw new UnsupportedOperationException("a speed without the event"); }
    @Override DataType resultType() { return DataTypes.DoubleType; }

    @Override
    void write(Object held, DataOutput out) throws IOException {
      out.writeBoolean(held != null);
      if (held != null) ((Timed) held).write(carrier, out);
    }

    @Override
    Object read(DataInput in) throws IOException {
      return in.readBoolean() ? Timed.read(carrier, in) : null;
    }
  }

  private Trailing() {}
}
