package millrace.kernel;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/** One group during one call: loaded, changed, told and kept. Ordered sets keep their larger parts in `nodes`. */
final class Group {
  private static final int FORM = 1;
  /** Each set has so many numbers for its nodes. */
  private static final int ID_BITS = 48;

  private final GroupShape shape;
  private final UnsafeProjection projection;
  private final List<Tally> tallies = new ArrayList<>();
  private long rows;
  private boolean begun;

  Group(GroupShape shape, UnsafeProjection projection, byte[] state, History.Nodes nodes) {
    this.shape = shape;
    this.projection = projection;
    for (int place = 0; place < shape.tallies().size(); place++) {
      tallies.add(shape.tallies().get(place).made(new Nodes(nodes, (long) place << ID_BITS)));
    }
    if (state == null) return;
    begun = true;
    Stored.read(state, FORM, (in, form) -> {
      rows = VarLong.read(in);
      for (Tally each : tallies) each.read(in);
      return null;
    });
  }

  private record Nodes(History.Nodes all, long from) implements History.Nodes {
    @Override public byte[] get(long id) { return all.get(from + id); }
    @Override public void put(long id, byte[] node) { all.put(from + id, node); }
    @Override public void remove(long id) { all.remove(from + id); }
  }

  void add(UnsafeRow values, long diff) {
    rows = Math.addExact(rows, diff);
    for (int place = 0; place < tallies.size(); place++) {
      int column = shape.tallies().get(place).place();
      if (!values.isNullAt(column)) tallies.get(place).add(values, column, diff);
    }
  }

  long rows() {
    return rows;
  }

  /** From now on the group of a table without a key is there. */
  void begin() {
    begun = true;
  }

  /** The row that is told of it, packed; null if the group is not there. */
  byte[] row(InternalRow key) {
    if (rows <= 0 && !(shape.global() && begun)) return null;
    Object[] results = new Object[shape.wanted().size()];
    for (int place = 0; place < results.length; place++) {
      Tally.Wanted wanted = shape.wanted().get(place);
      results[place] = wanted.tally() < 0 ? (Object) rows : tallies.get(wanted.tally()).result(wanted);
    }
    // Copied, because the projection writes the next one to the same place.
    return projection.apply(new JoinedRow(key, new GenericInternalRow(results))).copy().getBytes();
  }

  /** Whether it is as if no row had ever come. */
  boolean isEmpty() {
    return !shape.global() && rows == 0 && tallies.stream().allMatch(Tally::isEmpty);
  }

  byte[] written() {
    return Stored.write(FORM, out -> {
      VarLong.write(rows, out);
      for (Tally each : tallies) each.write(out);
    });
  }
}
