package millrace.kernel;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.PriorityQueue;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * Lets rows pass that may be among the first n of their key: not those that n rows of the same task are in front of. So
 * most rows need not go over the network. It may let any row pass, and does so when there are many keys, and for all whose
 * window has closed by the epoch's watermark: those may be late, and are counted by whoever they go to. (The watermark
 * there may be an earlier one, never a later one.)
 */
public final class Sieve implements Serializable {
  private static final int MOST_HELD = 50_000;
  private static final Comparator<byte[]> LAST_FIRST = (one, other) -> Arrays.compareUnsigned(other, one);
  private static final StructType ROW =
      new StructType().add("key", DataTypes.BinaryType).add("order", DataTypes.BinaryType)
          .add("end", DataTypes.LongType);

  private final int n;
  private final long watermarkUs;
  private transient Map<ByteBuffer, PriorityQueue<byte[]>> first;
  private transient int held;

  private Sieve(int n, long watermarkUs) {
    this.n = n;
    this.watermarkUs = watermarkUs;
  }

  /**
   * Of a struct with the bytes of a key, those of an order (see Order) and when the window ends (µs; null where nothing
   * does). As long as nobody says what the watermark is, rows with a window pass.
   */
  public static Column of(Column row, int n) {
    return Invoked.changing(new Sieve(n, Long.MAX_VALUE), "passes", DataTypes.BooleanType, row, ROW);
  }

  Sieve under(long epochsWatermarkUs) {
    return new Sieve(n, epochsWatermarkUs);
  }

  boolean isUnder(long epochsWatermarkUs) {
    return watermarkUs == epochsWatermarkUs;
  }

  /** Called from Spark's generated code. */
  public boolean passes(InternalRow row) {
    if (!row.isNullAt(2) && row.getLong(2) <= watermarkUs) return true;
    if (first == null) first = new HashMap<>();
    byte[] order = row.getBinary(1);
    ByteBuffer key = ByteBuffer.wrap(row.getBinary(0));
    PriorityQueue<byte[]> found = first.get(key);
    if (found == null) {
      if (held >= MOST_HELD) return true;
      first.put(key, found = new PriorityQueue<>(LAST_FIRST));
    }
    if (found.size() == n) {
      if (Arrays.compareUnsigned(order, found.peek()) > 0) return false;
      found.remove();
    } else {
      held++;
    }
    found.add(order);
    return true;
  }
}
