package millrace.kernel;

import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * A packed row as bytes in the order of others, which are ordered by some of its values (`Order.java`): those, then the row,
 * which decides among rows that are alike; how long the row is stands behind, where it does not matter to the order.
 */
final class Placed {
  static byte[] of(byte[] order, byte[] row) {
    return ByteBuffer.allocate(order.length + row.length + Integer.BYTES).put(order).put(row).putInt(row.length).array();
  }

  static byte[] row(byte[] placed) {
    int end = placed.length - Integer.BYTES;
    int length = ByteBuffer.wrap(placed).getInt(end);
    return Arrays.copyOfRange(placed, end - length, end);
  }

  private Placed() {}
}
