package millrace.kernel;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The most frequent values, each with how often it came at least, after Misra and Gries (1982) and, for merging, Agarwal
 * and others (2012). `size` values are counted. Where there are more, all counts fall by that of the first one too many,
 * and those at nothing are forgotten: each fall takes as much from more than `size` counts, so a count is too low by less
 * than a `size`th of all values, and a value that came more often than that is never missing.
 *
 * What holds: counts fall only when they are written (or `MOST` are held), so what is written depends on which values came
 * since it was read, not on their order.
 */
final class Frequent extends Aggregate {
  private static final int FORM = 1;
  /** Different values of one key and window that wait for being written. */
  private static final int MOST = 100_000;

  private final DataType type;
  private final int size;
  private final int most;

  /** `most` is how many values it tells. */
  Frequent(Carrier carrier, DataType type, int size, int most) {
    super(carrier);
    this.type = type;
    this.size = size;
    this.most = most;
  }

  @Override Object empty() { return new HashMap<Object, Long>(); }

  @Override
  Object add(Object held, Object value, long timeUs) {
    count(counts(held), carrier.key(value), 1);
    return held;
  }

  @Override
  Object merge(Object held, Object other) {
    counts(other).forEach((key, count) -> count(counts(held), key, count));
    return held;
  }

  private void count(Map<Object, Long> counts, Object key, long more) {
    counts.merge(key, more, Long::sum);
    if (counts.size() > Math.max(MOST, size)) settle(counts);
  }

  private void settle(Map<Object, Long> counts) {
    if (counts.size() <= size) return;
    long[] sorted = counts.values().stream().mapToLong(Long::longValue).sorted().toArray();
    long fall = sorted[sorted.length - 1 - size];
    counts.values().removeIf(count -> count <= fall);
    counts.replaceAll((key, count) -> count - fall);
  }

  /** The most frequent first; of those that came as often, the least. */
  @Override
  Object result(Object held) {
    Comparator<Map.Entry<Object, Long>> order = Map.Entry.<Object, Long>comparingByValue().reversed()
        .thenComparing(each -> carrier.value(each.getKey()), carrier::compare);
    List<Row> found = new ArrayList<>();
    counts(held).entrySet().stream().sorted(order).limit(most)
        .forEach(each -> found.add(RowFactory.create(carrier.value(each.getKey()), each.getValue())));
    return CollectionConverters.asScala(found).toSeq();
  }

  @Override
  DataType resultType() {
    StructType each = new StructType().add("value", type, false).add("count", DataTypes.LongType, false);
    return DataTypes.createArrayType(each, false);
  }

  @Override
  void write(Object held, DataOutput out) throws IOException {
    Map<Object, Long> counts = counts(held);
    settle(counts);
    out.writeByte(FORM);
    VarLong.write(counts.size(), out);
    for (Map.Entry<Object, Long> each : counts.entrySet()) {
      carrier.write(carrier.value(each.getKey()), out);
      VarLong.write(each.getValue(), out);
    }
  }

  @Override
  Object read(DataInput in) throws IOException {
    Stored.known(in.readUnsignedByte(), FORM);
    Object held = empty();
    for (long left = VarLong.read(in); left > 0; left--) {
      Object key = carrier.key(carrier.read(in));
      counts(held).put(key, VarLong.read(in));
    }
    return held;
  }

  @SuppressWarnings("unchecked")
  private static Map<Object, Long> counts(Object held) {
    return (Map<Object, Long>) held;
  }
}
