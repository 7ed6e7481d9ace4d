package millrace.kernel;

import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.ObjLongConsumer;

/** What signed rows add up to: opposite ones cancel. */
final class Net {
  private final Map<ByteBuffer, Long> diffs = new LinkedHashMap<>();

  void add(byte[] row, long diff) {
    diffs.merge(ByteBuffer.wrap(row), diff, Net::sum);
  }

  /** Null where nothing is left, which a map takes for removed. */
  private static Long sum(long one, long other) {
    long sum = Math.addExact(one, other);
    return sum == 0 ? null : sum;
  }

  void each(ObjLongConsumer<byte[]> visit) {
    diffs.forEach((row, diff) -> visit.accept(row.array(), diff));
  }
}
