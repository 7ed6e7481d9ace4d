package millrace.kernel;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;

/** Numbers that are mostly small, in seven bits a byte. */
final class Varint {
  static void write(DataOutput out, long number) throws IOException {
    while ((number & ~0x7FL) != 0) {
      out.writeByte((int) (number & 0x7F | 0x80));
      number >>>= 7;
    }
    out.writeByte((int) number);
  }

  static long read(DataInput in) throws IOException {
    long number = 0;
    for (int shift = 0; ; shift += 7) {
      int part = in.readUnsignedByte();
      number |= (long) (part & 0x7F) << shift;
      if (part < 0x80) return number;
    }
  }

  private Varint() {}
}
