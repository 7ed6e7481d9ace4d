package millrace.kernel;

import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.io.Serializable;
import java.math.BigDecimal;
import java.math.RoundingMode;
import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;

/**
 * One aggregate of a window: what is held for it, and how a value is added and two such are merged. Values are longs,
 * doubles, decimals, texts or bytes; other types become one of these before they come here. Nulls are not looked at. A
 * value may stand for several that were added up: of a count it says how many, of a mean it is the sum.
 */
abstract class Aggregate implements Serializable {
  final Carrier carrier;

  Aggregate(Carrier carrier) {
    this.carrier = carrier;
  }

  static Aggregate of(String kind, DataType type) {
    Carrier carrier = Carrier.of(type);
    switch (kind) {
      case "count": return new Count(carrier);
      case "sum": return new Sum(carrier, type);
      case "avg": return new Average(carrier, type);
      case "min": return new Extreme(carrier, type, -1);
      case "max": return new Extreme(carrier, type, 1);
      case "first": return new AtEnd(carrier, type, -1);
      case "last": return new AtEnd(carrier, type, 1);
      case "distinct": return new Distinct(carrier);
      default: throw new IllegalArgumentException(kind);
    }
  }

  /** The results of what is held, as far as it has come. */
  static void show(Aggregate[] aggregates, Object[] held, ArrayNode out) {
    for (int place = 0; place < held.length; place++) out.add(Kept.node(aggregates[place].result(held[place])));
  }

  /** What is held with the value at this place of a row. */
  Object take(Object held, Row row, int place, long timeUs) {
    Object value = row.get(place);
    return value == null ? held : add(held, value, timeUs);
  }

  /** What is held with one more value; before the first it is `empty`. May change `held`. */
  abstract Object add(Object held, Object value, long timeUs);

  /** May change `held`, never `other`. */
  abstract Object merge(Object held, Object other);

  /** Whether it is little enough to be kept for each part of a key's events. */
  boolean isSmall(Object held) {
    return true;
  }

  abstract Object result(Object held);

  abstract DataType resultType();

  abstract void write(Object held, DataOutput out) throws IOException;

  abstract Object read(DataInput in) throws IOException;

  private static final class Count extends Aggregate {
    Count(Carrier carrier) { super(carrier); }
    @Override Object add(Object held, Object value, long timeUs) { return (Long) held + (Long) value; }
    @Override Object merge(Object held, Object other) { return (Long) held + (Long) other; }
    @Override Object result(Object held) { return held; }
    @Override DataType resultType() { return DataTypes.LongType; }
    @Override void write(Object held, DataOutput out) throws IOException { out.writeLong((Long) held); }
    @Override Object read(DataInput in) throws IOException { return in.readLong(); }
    @Override Object empty() { return 0L; }
  }

  /** What is held before the first value. */
  Object empty() {
    return null;
  }

  private static final class Sum extends Aggregate {
    private final DataType type;

    Sum(Carrier carrier, DataType type) {
      super(carrier);
      this.type = type instanceof DecimalType decimal ? Sum.wider(decimal, 10, 0) : type;
    }

    static DecimalType wider(DecimalType type, int digits, int scale) {
      return new DecimalType(Math.min(38, type.precision() + digits), Math.min(38, type.scale() + scale));
    }

    @Override Object add(Object held, Object value, long timeUs) { return merge(held, value); }

    @Override
    Object merge(Object held, Object other) {
      if (held == null || other == null) return held == null ? other : held;
      return carrier.plus(held, other);
    }

    @Override
    Object result(Object held) {
      if (held instanceof BigDecimal sum && sum.precision() > ((DecimalType) type).precision()) {
        throw new ArithmeticException("a sum does not fit " + type.sql());
      }
      return held;
    }

    @Override DataType resultType() { return type; }
    @Override void write(Object held, DataOutput out) throws IOException { carrier.writeNullable(held, out); }
    @Override Object read(DataInput in) throws IOException { return carrier.readNullable(in); }
  }

  /** Of integers as of doubles a double, of decimals a decimal with four more digits; as Spark has it. */
  private static final class Average extends Aggregate {
    private record Held(Object sum, long count) {}

    private final DataType type;

    Average(Carrier carrier, DataType type) {
      super(carrier);
      this.type = type instanceof DecimalType decimal ? Sum.wider(decimal, 4, 4) : DataTypes.DoubleType;
    }

    /** How many the sum is of stands behind it. */
    @Override
    Object take(Object held, Row row, int place, long timeUs) {
      return row.isNullAt(place) ? held : merge(held, new Held(row.get(place), row.getLong(place + 1)));
    }

    @Override Object add(Object held, Object value, long timeUs) { return merge(held, new Held(value, 1)); }

    @Override
    Object merge(Object held, Object other) {
      if (held == null || other == null) return held == null ? other : held;
      Held one = (Held) held;
      Held two = (Held) other;
      return new Held(number().plus(one.sum, two.sum), one.count + two.count);
    }

    private Carrier number() {
      return carrier == Carrier.LONG ? Carrier.DOUBLE : carrier;
    }

    @Override
    Object result(Object held) {
      if (held == null) return null;
      Held it = (Held) held;
      if (it.sum instanceof Double sum) return sum / it.count;
      return ((BigDecimal) it.sum).divide(BigDecimal.valueOf(it.count), ((DecimalType) type).scale(), RoundingMode.HALF_UP);
    }

    @Override DataType resultType() { return type; }

    @Override
    void write(Object held, DataOutput out) throws IOException {
      number().writeNullable(held == null ? null : ((Held) held).sum, out);
      if (held != null) out.writeLong(((Held) held).count);
    }

    @Override
    Object read(DataInput in) throws IOException {
      Object sum = number().readNullable(in);
      return sum == null ? null : new Held(sum, in.readLong());
    }
  }

  private static final class Extreme extends Aggregate {
    private final DataType type;
    private final int sign;

    Extreme(Carrier carrier, DataType type, int sign) {
      super(carrier);
      this.type = type;
      this.sign = sign;
    }

    @Override Object add(Object held, Object value, long timeUs) { return merge(held, value); }

    @Override
    Object merge(Object held, Object other) {
      if (held == null || other == null) return held == null ? other : held;
      return sign * carrier.compare(other, held) > 0 ? other : held;
    }

    @Override Object result(Object held) { return held; }
    @Override DataType resultType() { return type; }
    @Override void write(Object held, DataOutput out) throws IOException { carrier.writeNullable(held, out); }
    @Override Object read(DataInput in) throws IOException { return carrier.readNullable(in); }
  }

  /** The value of the earliest or latest event; of several at the same time, the least or greatest value. */
  private static final class AtEnd extends Aggregate {
    private record Held(long timeUs, Object value) {}

    private final DataType type;
    private final int sign;

    AtEnd(Carrier carrier, DataType type, int sign) {
      super(carrier);
      this.type = type;
      this.sign = sign;
    }

    @Override
    Object add(Object held, Object value, long timeUs) {
      return merge(held, new Held(timeUs, value));
    }

    @Override
    Object merge(Object held, Object other) {
      if (held == null || other == null) return held == null ? other : held;
      Held one = (Held) held;
      Held two = (Held) other;
      int order = Long.compare(two.timeUs, one.timeUs);
      if (order == 0) order = carrier.compare(two.value, one.value);
      return sign * order > 0 ? two : one;
    }

    @Override Object result(Object held) { return held == null ? null : ((Held) held).value; }
    @Override DataType resultType() { return type; }

    @Override
    void write(Object held, DataOutput out) throws IOException {
      carrier.writeNullable(held == null ? null : ((Held) held).value, out);
      if (held != null) out.writeLong(((Held) held).timeUs);
    }

    @Override
    Object read(DataInput in) throws IOException {
      Object value = carrier.readNullable(in);
      return value == null ? null : new Held(in.readLong(), value);
    }
  }

  /** How many different values. They are all held. */
  private static final class Distinct extends Aggregate {
    Distinct(Carrier carrier) { super(carrier); }

    @Override
    Object add(Object held, Object value, long timeUs) {
      keys(held).add(carrier.key(value));
      return held;
    }

    @Override
    Object merge(Object held, Object other) {
      keys(held).addAll(keys(other));
      return held;
    }

    @SuppressWarnings("unchecked")
    private static Set<Object> keys(Object held) {
      return (Set<Object>) held;
    }

    @Override Object result(Object held) { return (long) keys(held).size(); }
    @Override DataType resultType() { return DataTypes.LongType; }
    @Override Object empty() { return new HashSet<>(); }

    @Override
    void write(Object held, DataOutput out) throws IOException {
      out.writeInt(keys(held).size());
      for (Object key : keys(held)) carrier.write(carrier.value(key), out);
    }

    @Override
    Object read(DataInput in) throws IOException {
      int count = in.readInt();
      Set<Object> held = new HashSet<>(count * 4 / 3 + 1);
      for (int place = 0; place < count; place++) held.add(carrier.key(carrier.read(in)));
      return held;
    }
  }
}
