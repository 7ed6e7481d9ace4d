package millrace.kernel;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;

/**
 * The sum of longs, or of decimals in units of their last digit, without a limit: only what is told has to fit. A sum
 * that was too large for a while is right again afterwards.
 */
final class WholeTally extends Tally {
  private final DecimalType decimal;
  private BigInteger sum = BigInteger.ZERO;
  private long count;

  WholeTally(DataType type) {
    decimal = type instanceof DecimalType found ? found : null;
  }

  @Override
  void add(UnsafeRow values, int place, long diff) {
    BigInteger value = decimal == null
        ? BigInteger.valueOf(values.getLong(place))
        : values.getDecimal(place, decimal.precision(), decimal.scale()).toJavaBigDecimal()
            .setScale(decimal.scale()).unscaledValue();
    sum = sum.add(diff == 1 ? value : value.multiply(BigInteger.valueOf(diff)));
    count = Math.addExact(count, diff);
  }

  @Override
  Object result(Wanted wanted) {
    if (count == 0) return null;
    boolean mean = wanted.kind().equals("avg");
    if (decimal == null) return mean ? (Object) (sum.doubleValue() / count) : whole(wanted.strict());
    BigDecimal exact = new BigDecimal(sum, decimal.scale());
    if (!mean) return fitting(exact, wider(decimal, 10, 0), wanted.strict());
    DecimalType type = wider(decimal, 4, 4);
    return fitting(exact.divide(BigDecimal.valueOf(count), type.scale(), RoundingMode.HALF_UP), type, wanted.strict());
  }

  /** As Spark has it: too large is an error in its ANSI mode, and otherwise what is left in 64 bits. */
  private Long whole(boolean strict) {
    if (strict && sum.bitLength() > 63) throw new ArithmeticException("a sum does not fit BIGINT");
    return sum.longValue();
  }

  /** As Spark has it: too large is an error in its ANSI mode, and otherwise null. */
  private static Decimal fitting(BigDecimal value, DecimalType type, boolean strict) {
    if (value.precision() <= type.precision()) return Decimal.apply(value, type.precision(), type.scale());
    if (strict) throw new ArithmeticException("a sum or mean does not fit " + type.sql());
    return null;
  }

  @Override
  boolean isEmpty() {
    return count == 0 && sum.signum() == 0;
  }

  @Override
  void write(DataOutputStream out) throws IOException {
    VarLong.write(count, out);
    Ranked.bytes(sum.toByteArray(), out);
  }

  @Override
  void read(DataInputStream in) throws IOException {
    count = VarLong.read(in);
    sum = new BigInteger(Ranked.bytes(in));
  }
}
