package millrace.kernel;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;

/**
 * What is held of one column of a group's rows, so that a row can go as well as come: after both it is as if neither
 * had. Nulls are not looked at.
 */
abstract class Tally {
  /** Which column a tally is of, as what; `type` is that of the values, and unused for those in an ordered set. */
  record Shape(String kind, int place, DataType type) implements Serializable {
    Tally made(History.Nodes nodes) {
      return switch (kind) {
        case "count" -> new Count();
        case "sum" -> type instanceof DoubleType ? new RealTally() : new WholeTally(type);
        case "set" -> new Ordered(nodes);
        case "list" -> new Listed(nodes);
        default -> throw new IllegalArgumentException(kind);
      };
    }
  }

  /** What is told of a tally; `type` is that of the values. `strict`: what does not fit is an error. */
  record Wanted(String kind, int tally, DataType type, boolean strict) implements Serializable {}

  /** Adds a value as often as `diff` says; negative, it goes. */
  abstract void add(UnsafeRow values, int place, long diff);

  /** As Spark itself holds such a value. */
  abstract Object result(Wanted wanted);

  /** Whether it is as before the first value. */
  abstract boolean isEmpty();

  abstract void write(DataOutputStream out) throws IOException;

  abstract void read(DataInputStream in) throws IOException;

  static DecimalType wider(DecimalType type, int digits, int scale) {
    return new DecimalType(Math.min(38, type.precision() + digits), Math.min(38, type.scale() + scale));
  }

  private static final class Count extends Tally {
    private long count;

    @Override void add(UnsafeRow values, int place, long diff) { count = Math.addExact(count, diff); }
    @Override Object result(Wanted wanted) { return count; }
    @Override boolean isEmpty() { return count == 0; }
    @Override void write(DataOutputStream out) throws IOException { VarLong.write(count, out); }
    @Override void read(DataInputStream in) throws IOException { count = VarLong.read(in); }
  }

  private static final class Ordered extends Tally {
    private final Multiset values;

    Ordered(History.Nodes nodes) {
      values = new Multiset(nodes);
    }

    @Override
    void add(UnsafeRow row, int place, long diff) {
      values.add(row.getBinary(place), diff);
    }

    @Override
    Object result(Wanted wanted) {
      if (wanted.kind.equals("distinct")) return values.size();
      byte[] found = wanted.kind.equals("min") ? values.first() : values.last();
      return found == null ? null : Order.read(found, wanted.type);
    }

    @Override boolean isEmpty() { return values.size() == 0; }
    @Override void write(DataOutputStream out) throws IOException { values.write(out); }
    @Override void read(DataInputStream in) throws IOException { values.restore(in); }
  }

  /** All values in an order, nulls too: each comes as two, the bytes it is ordered by and a packed row of the value. */
  private static final class Listed extends Tally {
    private static final int PARTS = 2;

    private final Multiset values;

    Listed(History.Nodes nodes) {
      values = new Multiset(nodes);
    }

    @Override
    void add(UnsafeRow row, int place, long diff) {
      byte[] bytes = row.getBinary(place);
      UnsafeRow parts = new UnsafeRow(PARTS);
      parts.pointTo(bytes, bytes.length);
      values.add(Placed.of(parts.getBinary(0), parts.getBinary(1)), diff);
    }

    @Override
    Object result(Wanted wanted) {
      List<byte[]> all = values.first(Integer.MAX_VALUE);
      if (all.isEmpty()) return null;
      Object[] found = new Object[all.size()];
      for (int place = 0; place < found.length; place++) {
        byte[] bytes = Placed.row(all.get(place));
        UnsafeRow value = new UnsafeRow(1);
        value.pointTo(bytes, bytes.length);
        found[place] = value.isNullAt(0) ? null : value.get(0, wanted.type);
      }
      return new GenericArrayData(found);
    }

    @Override boolean isEmpty() { return values.size() == 0; }
    @Override void write(DataOutputStream out) throws IOException { values.write(out); }
    @Override void read(DataInputStream in) throws IOException { values.restore(in); }
  }
}
