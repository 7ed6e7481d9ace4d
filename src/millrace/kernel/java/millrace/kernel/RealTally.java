package millrace.kernel;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.math.BigInteger;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * The sum of doubles without rounding, as a whole number of powers of two, so that what was added can be taken away and
 * the order does not matter; only what is told is rounded, once. Infinities and NaN are counted apart, because they
 * could not be taken away from a sum.
 */
final class RealTally extends Tally {
  private static final int EXPONENT = 0x7ff;
  private static final int FRACTION_BITS = 52;
  /** The power of two of the last bit of the smallest doubles. */
  private static final int SMALLEST = -1074;

  private BigInteger mantissa = BigInteger.ZERO;
  private int exponent;
  private long count;
  private long notNumbers;
  private long up;
  private long down;

  @Override
  void add(UnsafeRow values, int place, long diff) {
    double value = values.getDouble(place);
    count = Math.addExact(count, diff);
    if (Double.isNaN(value)) notNumbers += diff;
    else if (value == Double.POSITIVE_INFINITY) up += diff;
    else if (value == Double.NEGATIVE_INFINITY) down += diff;
    else if (value != 0) put(value, diff);
  }

  private void put(double value, long diff) {
    long bits = Double.doubleToRawLongBits(value);
    int power = (int) (bits >>> FRACTION_BITS) & EXPONENT;
    long fraction = bits & (1L << FRACTION_BITS) - 1;
    if (power == 0) power = 1;
    else fraction |= 1L << FRACTION_BITS;
    int zeros = Long.numberOfTrailingZeros(fraction);
    power += SMALLEST - 1 + zeros;
    fraction >>>= zeros;
    BigInteger term = BigInteger.valueOf(bits < 0 ? -fraction : fraction).multiply(BigInteger.valueOf(diff));
    if (mantissa.signum() == 0) exponent = power;
    if (power < exponent) {
      mantissa = mantissa.shiftLeft(exponent - power);
      exponent = power;
    }
    mantissa = mantissa.add(term.shiftLeft(power - exponent));
  }

  @Override
  Object result(Wanted wanted) {
    if (count == 0) return null;
    return wanted.kind().equals("avg") ? sum() / count : sum();
  }

  private double sum() {
    if (notNumbers != 0 || up != 0 && down != 0) return Double.NaN;
    if (up != 0 || down != 0) return up != 0 ? Double.POSITIVE_INFINITY : Double.NEGATIVE_INFINITY;
    BigInteger size = mantissa.abs();
    // More bits than a double needs to be rounded rightly; of the others it matters only whether there are any.
    int excess = Math.max(0, size.bitLength() - Long.SIZE);
    BigInteger leading = size.shiftRight(excess);
    if (excess > 0 && size.getLowestSetBit() < excess) leading = leading.setBit(0);
    return Math.scalb(leading.doubleValue() * mantissa.signum(), exponent + excess);
  }

  @Override
  boolean isEmpty() {
    return count == 0 && notNumbers == 0 && up == 0 && down == 0 && mantissa.signum() == 0;
  }

  @Override
  void write(DataOutputStream out) throws IOException {
    int zeros = Math.max(0, mantissa.getLowestSetBit());
    VarLong.write(count, out);
    out.writeShort(exponent + zeros);
    Ranked.bytes(mantissa.shiftRight(zeros).toByteArray(), out);
    boolean plain = notNumbers == 0 && up == 0 && down == 0;
    out.writeBoolean(plain);
    if (plain) return;
    VarLong.write(notNumbers, out);
    VarLong.write(up, out);
    VarLong.write(down, out);
  }

  @Override
  void read(DataInputStream in) throws IOException {
    count = VarLong.read(in);
    exponent = in.readShort();
    mantissa = new BigInteger(Ranked.bytes(in));
    if (in.readBoolean()) return;
    notNumbers = VarLong.read(in);
    up = VarLong.read(in);
    down = VarLong.read(in);
  }
}
