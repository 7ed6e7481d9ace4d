package millrace.kernel;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import org.apache.datasketches.hll.HllSketch;
import org.apache.datasketches.hll.TgtHllType;
import org.apache.datasketches.hll.Union;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/**
 * About how many different values, by a HyperLogLog with 2^`size` registers. Values are hashes, as longs. What is held is
 * the same in whatever order values come and parts are merged, and so is the answer: it is taken from the registers
 * alone, never from the order in which they grew.
 */
final class ApproxDistinct extends Aggregate {
  private static final int FORM = 1;

  private final int size;

  ApproxDistinct(Carrier carrier, int size) {
    super(carrier);
    this.size = size;
  }

  @Override Object empty() { return new Union(size); }

  @Override
  Object add(Object held, Object value, long timeUs) {
    ((Union) held).update((long) (Long) value);
    return held;
  }

  @Override
  Object merge(Object held, Object other) {
    ((Union) held).update(((Union) other).getResult(TgtHllType.HLL_8));
    return held;
  }

  @Override Object result(Object held) { return Math.round(((Union) held).getCompositeEstimate()); }
  @Override DataType resultType() { return DataTypes.LongType; }

  /** Of few values their hashes, then half a byte a register. */
  @Override
  void write(Object held, DataOutput out) throws IOException {
    byte[] bytes = ((Union) held).getResult(TgtHllType.HLL_4).toCompactByteArray();
    out.writeByte(FORM);
    VarLong.write(bytes.length, out);
    out.write(bytes);
  }

  @Override
  Object read(DataInput in) throws IOException {
    Stored.known(in.readUnsignedByte(), FORM);
    byte[] bytes = new byte[(int) VarLong.read(in)];
    in.readFully(bytes);
    Union held = new Union(size);
    held.update(HllSketch.heapify(bytes));
    return held;
  }
}
