package millrace.kernel;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;

/** Longs in as few bytes as they need, seven bits in each. Negative ones need ten. */
final class VarLong {
  static void write(long value, DataOutput out) throws IOException {
    long rest = value;
    while ((rest & ~0x7FL) != 0) {
      out.writeByte((int) (rest & 0x7F | 0x80));
      rest >>>= 7;
    }
    out.writeByte((int) rest);
  }

  static long read(DataInput in) throws IOException {
    long value = 0;
    for (int shift = 0; ; shift += 7) {
      byte next = in.readByte();
      value |= (long) (next & 0x7F) << shift;
      if (next >= 0) return value;
    }
  }

  private VarLong() {}
}
