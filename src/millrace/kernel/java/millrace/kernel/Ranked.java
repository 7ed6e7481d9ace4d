package millrace.kernel;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.unsafe.Platform;

/**
 * A row with its place in the order: the bytes of what it is ordered by, then of what it is known by, then a hash of all
 * of it. So no two rows have the same place, unless they are the same. `row` is null until it is needed.
 */
final class Ranked {
  private static final int HASH = Long.BYTES;
  /** As Spark's own function has it. */
  private static final long SEED = 42;

  final byte[] place;
  final int ofLength;
  final long timeUs;
  final byte[] row;

  Ranked(byte[] place, int ofLength, long timeUs, byte[] row) {
    this.place = place;
    this.ofLength = ofLength;
    this.timeUs = timeUs;
    this.row = row;
  }

  static Ranked of(byte[] order, byte[] of, long timeUs, byte[] row) {
    int ofLength = of == null ? 0 : of.length;
    byte[] place = Arrays.copyOf(order, order.length + ofLength + HASH);
    if (of != null) System.arraycopy(of, 0, place, order.length, ofLength);
    long hash = XXH64.hashUnsafeBytes(row, Platform.BYTE_ARRAY_OFFSET, row.length, SEED) ^ Long.MIN_VALUE;
    for (int each = 1; each <= HASH; each++, hash >>>= 8) place[place.length - each] = (byte) hash;
    return new Ranked(place, ofLength, timeUs, row);
  }

  byte[] of() {
    int end = place.length - HASH;
    return Arrays.copyOfRange(place, end - ofLength, end);
  }

  int compareTo(byte[] other) {
    return Arrays.compareUnsigned(place, other);
  }

  void write(DataOutputStream out, boolean timed, boolean whole) throws IOException {
    bytes(place, out);
    length(ofLength, out);
    if (timed) out.writeLong(timeUs);
    if (whole) bytes(row, out);
  }

  static Ranked read(DataInputStream in, boolean timed, boolean whole) throws IOException {
    return new Ranked(bytes(in), length(in), timed ? in.readLong() : 0, whole ? bytes(in) : null);
  }

  static void bytes(byte[] value, DataOutputStream out) throws IOException {
    length(value.length, out);
    out.write(value);
  }

  static byte[] bytes(DataInputStream in) throws IOException {
    byte[] value = new byte[length(in)];
    in.readFully(value);
    return value;
  }

  /** Seven bits a byte: most lengths are short. */
  static void length(int value, DataOutputStream out) throws IOException {
    int rest = value;
    for (; rest > 0x7f; rest >>>= 7) out.writeByte(rest | 0x80);
    out.writeByte(rest);
  }

  static int length(DataInputStream in) throws IOException {
    int value = 0;
    for (int shift = 0; ; shift += 7) {
      int next = in.readUnsignedByte();
      value |= (next & 0x7f) << shift;
      if (next < 0x80) return value;
    }
  }
}
