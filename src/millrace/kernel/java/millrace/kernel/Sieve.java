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
 * most rows need not go over the network. It may let any row pass, and does so when there are many keys.
 */
public final class Sieve implements Serializable {
  private static final int MOST_HELD = 50_000;
  private static final Comparator<byte[]> LAST_FIRST = (one, other) -> Arrays.compareUnsigned(other, one);
  private static final StructType PAIR =
      new StructType().add("key", DataTypes.BinaryType).add("order", DataTypes.BinaryType);

  private final int n;
  private transient Map<ByteBuffer, PriorityQueue<byte[]>> first;
  private transient int held;

  private Sieve(int n) {
    this.n = n;
  }

  /** Of a struct with the bytes of a key and those of an order (see Order). */
  public static Column of(Column pair, int n) {
    return Invoked.changing(new Sieve(n), "passes", DataTypes.BooleanType, pair, PAIR);
  }

  /** Called from Spark's generated code. */
  public boolean passes(InternalRow pair) {
    if (first == null) first = new HashMap<>();
    byte[] order = pair.getBinary(1);
    ByteBuffer key = ByteBuffer.wrap(pair.getBinary(0));
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
