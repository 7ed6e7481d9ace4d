package millrace.kernel;

import java.io.Serializable;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Reads a JSON object whose fields are known, several times faster than Spark's `from_json`, and gives what that gives:
 * what holds is that a row comes out only where there is no doubt what `from_json` would make of the bytes. Of all else
 * (escapes by number, fields that come twice, nested values, times in other forms, whatever is no JSON) it says nothing,
 * null, and the caller asks `from_json`.
 */
public final class JsonRows implements Serializable {
  private enum Kind { LONG, INT, DOUBLE, DECIMAL, BOOLEAN, TEXT, TIME, DATE }

  private final byte[][] names;
  private final byte[][] quoted;
  private final Kind[] kinds;
  private final DecimalType[] decimals;
  private final boolean utc;
  private transient JsonText text;

  private JsonRows(StructType schema, boolean utc) {
    int count = schema.length();
    names = new byte[count][];
    quoted = new byte[count][];
    kinds = new Kind[count];
    decimals = new DecimalType[count];
    this.utc = utc;
    for (int place = 0; place < count; place++) {
      StructField field = schema.fields()[place];
      names[place] = field.name().getBytes(StandardCharsets.UTF_8);
      // A name that JSON writes otherwise is never found so.
      boolean plain = field.name().chars().allMatch(each -> each >= ' ' && each != '"' && each != '\\');
      quoted[place] = plain ? ('"' + field.name() + '"').getBytes(StandardCharsets.UTF_8) : new byte[1];
      kinds[place] = kind(field.dataType());
      if (field.dataType() instanceof DecimalType decimal) decimals[place] = decimal;
    }
  }

  /**
   * A struct of `schema`, whose first field is the row, the second true and the third null; or null where there is
   * doubt, and for every row where a field has a type that is not read here. `utc` says that a time without a zone is one
   * of UTC.
   */
  public static Column of(Column bytes, String schema, boolean utc) {
    StructType type = (StructType) DataType.fromJson(schema);
    StructType row = (StructType) type.fields()[0].dataType();
    for (StructField field : row.fields()) {
      if (kind(field.dataType()) == null) return ExpressionUtils.column(new Literal(null, type));
    }
    return Invoked.column(new JsonRows(row, utc), "row", type, bytes, DataTypes.BinaryType);
  }

  private static Kind kind(DataType type) {
    if (type instanceof DecimalType) return Kind.DECIMAL;
    if (type.equals(DataTypes.LongType)) return Kind.LONG;
    if (type.equals(DataTypes.IntegerType)) return Kind.INT;
    if (type.equals(DataTypes.DoubleType)) return Kind.DOUBLE;
    if (type.equals(DataTypes.BooleanType)) return Kind.BOOLEAN;
    if (type.equals(DataTypes.StringType)) return Kind.TEXT;
    if (type.equals(DataTypes.TimestampType)) return Kind.TIME;
    return type.equals(DataTypes.DateType) ? Kind.DATE : null;
  }

  /** Called from Spark's generated code. */
  public InternalRow row(byte[] bytes) {
    if (text == null) text = new JsonText();
    text.of(bytes);
    try {
      return read(text);
    } catch (JsonText.Doubt doubt) {
      return null;
    }
  }

  private InternalRow read(JsonText text) {
    Object[] values = new Object[names.length];
    boolean[] seen = new boolean[names.length];
    text.expect('{');
    if (!text.found('}')) {
      int next = 0;
      do {
        int place = place(text, next);
        text.expect(':');
        if (place < 0) {
          text.skip();
        } else {
          if (seen[place]) throw JsonText.DOUBT;
          seen[place] = true;
          values[place] = text.foundNull() ? null : value(text, place);
          next = place + 1;
        }
      } while (text.found(','));
      text.expect('}');
    }
    text.expectEnd();
    return new GenericInternalRow(new Object[] {new GenericInternalRow(values), true, null});
  }

  /** Which field comes now; -1 if none of ours. Most writers keep the order of the schema. */
  private int place(JsonText text, int next) {
    if (next < names.length && text.foundQuoted(quoted[next])) return next;
    text.text();
    if (text.escaped) throw JsonText.DOUBT;
    for (int tried = 0; tried < names.length; tried++) {
      int place = next + tried < names.length ? next + tried : next + tried - names.length;
      if (text.is(names[place])) return place;
    }
    return -1;
  }

  private Object value(JsonText text, int place) {
    switch (kinds[place]) {
      case LONG: return text.whole();
      case INT: return Math.toIntExact(bounded(text.whole(), Integer.MIN_VALUE, Integer.MAX_VALUE));
      case DOUBLE: return real(text.number());
      case DECIMAL: return decimal(text.number(), decimals[place]);
      case BOOLEAN: return text.truth();
      case TEXT: return text.value();
      case TIME: return text.atQuote() ? text.timeUs(utc) : bounded(text.whole(), -99_999_999_999L, 99_999_999_999L) * 1_000_000;
      case DATE: return text.date();
      default: throw JsonText.DOUBT;
    }
  }

  private static long bounded(long value, long least, long greatest) {
    if (value < least || value > greatest) throw JsonText.DOUBT;
    return value;
  }

  /** Of a number without a point Jackson makes a whole one first, in which -0 is 0. */
  private static double real(String number) {
    if (number.indexOf('.') >= 0) return Double.parseDouble(number);
    if (number.length() > JsonText.LONGEST_WHOLE) throw JsonText.DOUBT;
    return Long.parseLong(number);
  }

  private static Decimal decimal(String number, DecimalType type) {
    BigDecimal value = new BigDecimal(number);
    // Rounding and what is too large are Spark's to decide.
    if (value.scale() < 0 || value.scale() > type.scale()) throw JsonText.DOUBT;
    if (value.precision() - value.scale() > type.precision() - type.scale()) throw JsonText.DOUBT;
    return Decimal.apply(value, type.precision(), type.scale());
  }
}
