package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import java.math.RoundingMode;
import java.util.Arrays;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Arithmetic of PostgreSQL's numeric, whose scale is the value's own: where a quotient is rounded depends on the digits of
 * both numbers. Numbers come as decimals, whole numbers or the text that PostgreSQL prints; results are the same text, or a
 * decimal where the scale is known. `views/numerics.py` is the same in Python.
 */
public final class Numeric implements Serializable {
  /** Of a quotient at least so many digits count, in groups of four (NUMERIC_MIN_SIG_DIGITS, DEC_DIGITS). */
  private static final int SIGNIFICANT = 16;
  private static final int GROUP = 4;
  private static final int MOST = 1_000;

  private final String operation;
  private final DataType[] types;
  /** Of decimals whether some values have fewer digits after the point in PostgreSQL. */
  private final boolean[] mixed;
  private final int digits;
  private final boolean sample;
  private final boolean root;
  private final int precision;
  private final int scale;

  private Numeric(DataType[] types, DataType gives, JsonNode told) {
    this.types = types;
    operation = told.get("operation").asText();
    mixed = new boolean[types.length];
    for (int place = 0; place < types.length; place++) mixed[place] = told.get("mixed").get(place).asBoolean();
    digits = told.get("digits").asInt();
    sample = told.get("sample").asBoolean();
    root = told.get("root").asBoolean();
    precision = gives instanceof DecimalType decimal ? decimal.precision() : 0;
    scale = gives instanceof DecimalType decimal ? decimal.scale() : 0;
  }

  /** A text or a decimal, as `gives` says; an integer below, at or above 0 of a comparison. Null of a null. */
  public static Column of(Column struct, String schema, String gives, String settings) {
    StructType type = (StructType) DataType.fromJson(schema);
    DataType result = DataType.fromJson(gives);
    DataType[] types = Arrays.stream(type.fields()).map(field -> field.dataType()).toArray(DataType[]::new);
    Numeric numeric = new Numeric(types, result, Json.read(settings));
    String method = result instanceof DecimalType ? "decimal" : result instanceof StringType ? "text" : "order";
    return Invoked.column(numeric, method, method.equals("order") ? DataTypes.IntegerType : result, struct, type);
  }

  /** Called from Spark's generated code. */
  public UTF8String text(InternalRow row) {
    BigDecimal found = found(row);
    return found == null ? null : UTF8String.fromString(found.toPlainString());
  }

  public Decimal decimal(InternalRow row) {
    BigDecimal found = found(row);
    if (found == null) return null;
    BigDecimal rounded = found.setScale(scale, RoundingMode.HALF_UP);
    if (rounded.precision() > precision) {
      throw new ArithmeticException("the numeric " + found.toPlainString() + " does not fit numeric(" + precision + "," + scale + ")");
    }
    return Decimal.apply(rounded, precision, scale);
  }

  public int order(InternalRow row) {
    return number(row, 0).compareTo(number(row, 1));
  }

  private BigDecimal found(InternalRow row) {
    BigDecimal[] of = new BigDecimal[types.length];
    for (int place = 0; place < of.length; place++) {
      if (row.isNullAt(place)) return null;
      of[place] = number(row, place);
    }
    return switch (operation) {
      case "+" -> of[0].add(of[1]);
      case "-" -> of[0].subtract(of[1]);
      case "*" -> of[0].multiply(of[1]);
      case "/" -> divided(of[0], of[1]);
      case "%" -> rest(of[0], of[1]);
      case "neg" -> of[0].negate();
      case "abs" -> of[0].abs();
      case "cast" -> of[0];
      case "key" -> key(of[0]);
      case "round" -> of[0].setScale(digits, RoundingMode.HALF_UP);
      case "trunc" -> of[0].setScale(digits, RoundingMode.DOWN);
      case "ceil" -> of[0].setScale(digits, RoundingMode.CEILING);
      case "floor" -> of[0].setScale(digits, RoundingMode.FLOOR);
      case "spread" -> spread(of[0], of[1], of[2]);
      default -> throw new IllegalArgumentException(operation);
    };
  }

  private BigDecimal number(InternalRow row, int place) {
    if (types[place] instanceof DecimalType type) {
      return row.getDecimal(place, type.precision(), type.scale()).toJavaBigDecimal().setScale(type.scale());
    }
    if (types[place] instanceof StringType) {
      String text = row.getUTF8String(place).toString();
      try {
        BigDecimal found = new BigDecimal(text);
        return found.scale() < 0 ? found.setScale(0) : found;
      } catch (NumberFormatException notFinite) {
        throw new ArithmeticException("a view cannot compute with the numeric " + text);
      }
    }
    return BigDecimal.valueOf(row.getLong(place));
  }

  private static BigDecimal key(BigDecimal value) {
    BigDecimal short_ = value.stripTrailingZeros();
    return short_.scale() < 0 ? short_.setScale(0) : short_;
  }

  private static BigDecimal rest(BigDecimal left, BigDecimal right) {
    if (right.signum() == 0) throw new ArithmeticException("division by zero");
    return left.remainder(right).setScale(Math.max(left.scale(), right.scale()));
  }

  private BigDecimal divided(BigDecimal left, BigDecimal right) {
    if (right.signum() == 0) throw new ArithmeticException("division by zero");
    return left.divide(right, scale(left, right), RoundingMode.HALF_UP);
  }

  private int scale(BigDecimal left, BigDecimal right) {
    int weight = weight(left) - weight(right);
    int quotient = first(left) <= first(right) ? weight - 1 : weight;
    int wanted = Math.max(SIGNIFICANT - quotient * GROUP, 0);
    int most = Math.max(left.scale(), right.scale());
    boolean unsure = false;
    for (boolean each : mixed) unsure |= each;
    if (unsure && most > wanted) {
      throw new ArithmeticException("where PostgreSQL rounds " + left.toPlainString() + " / " + right.toPlainString()
          + " depends on how many zeros they were written with: cast both to a numeric(p,s)");
    }
    return Math.min(Math.max(wanted, most), MOST);
  }

  /** The place of the first group of four digits that is not zero. */
  private static int weight(BigDecimal value) {
    return value.signum() == 0 ? 0 : Math.floorDiv(value.precision() - value.scale() - 1, GROUP);
  }

  private static int first(BigDecimal value) {
    if (value.signum() == 0) return 0;
    return value.abs().movePointLeft(weight(value) * GROUP).toBigInteger().intValueExact();
  }

  /** Variance or standard deviation of how many numbers, by their sum and that of their squares. */
  private BigDecimal spread(BigDecimal number, BigDecimal total, BigDecimal squares) {
    BigDecimal one = sample ? BigDecimal.ONE : BigDecimal.ZERO;
    if (number.compareTo(one) <= 0) return null;
    BigDecimal over = number.multiply(squares).subtract(total.multiply(total));
    if (over.signum() <= 0) return BigDecimal.ZERO;
    BigDecimal under = number.multiply(number.subtract(one));
    int places = scale(over, under);
    BigDecimal variance = over.divide(under, places, RoundingMode.HALF_UP);
    return root ? root(variance, places) : variance;
  }

  private static BigDecimal root(BigDecimal value, int places) {
    BigInteger whole = value.movePointRight(places * 2).setScale(0).unscaledValue();
    BigInteger found = whole.sqrt();
    // Rounded up where the square of half a digit more is not above it.
    BigInteger twice = found.shiftLeft(1).add(BigInteger.ONE);
    if (twice.multiply(twice).compareTo(whole.shiftLeft(2)) <= 0) found = found.add(BigInteger.ONE);
    return new BigDecimal(found, places, MathContext.UNLIMITED);
  }
}
