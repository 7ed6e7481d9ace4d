package millrace.kernel;

import java.math.BigDecimal;
import java.math.BigInteger;
import millrace.kernel.CopyRows.Growing;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;

/**
 * A value as PostgreSQL's binary format has it, by the name of its type there.
 *
 * PostgreSQL counts days and microseconds from 2000 on; the ends of Spark's types stand for its infinity, and what lies
 * before its first day becomes one that the server refuses, not another.
 */
abstract class CopyValue {
  private static final int DAYS_TO_2000 = 10_957;
  private static final long MICROS_TO_2000 = 946_684_800_000_000L;
  private static final int JSONB_FORM = 1;
  private final int oid;

  CopyValue(int oid) { this.oid = oid; }

  /** The bytes of a value that is not null. */
  abstract void write(SpecializedGetters row, int place, Growing out);

  final void field(SpecializedGetters row, int place, Growing out) {
    if (row.isNullAt(place)) {
      out.int4(-1);
      return;
    }
    int length = out.size();
    out.int4(0);
    write(row, place, out);
    out.lengthAt(length);
  }

  static CopyValue of(String kind, DataType type) {
    if (kind.endsWith("[]")) {
      String word = kind.substring(0, kind.length() - 2);
      return new Elements(of(word, ((ArrayType) type).elementType()));
    }
    switch (kind.replaceAll("\\(.*", "")) {
      case "smallint":
        return type instanceof ByteType
            ? made(21, (row, place, out) -> out.int2(row.getByte(place)))
            : made(21, (row, place, out) -> out.int2(row.getShort(place)));
      case "integer": return made(23, (row, place, out) -> out.int4(row.getInt(place)));
      case "bigint": return made(20, (row, place, out) -> out.int8(row.getLong(place)));
      case "real": return made(700, (row, place, out) -> out.int4(Float.floatToIntBits(row.getFloat(place))));
      case "double precision":
        return made(701, (row, place, out) -> out.int8(Double.doubleToLongBits(row.getDouble(place))));
      case "boolean": return made(16, (row, place, out) -> out.int1(row.getBoolean(place) ? 1 : 0));
      case "date": return made(1082, (row, place, out) -> out.int4(day(row.getInt(place))));
      case "timestamp without time zone": return made(1114, (row, place, out) -> out.int8(micros(row.getLong(place))));
      case "timestamp with time zone": return made(1184, (row, place, out) -> out.int8(micros(row.getLong(place))));
      case "bytea": return made(17, (row, place, out) -> out.bytes(row.getBinary(place)));
      case "text": return made(25, (row, place, out) -> out.bytes(row.getUTF8String(place).getBytes()));
      case "jsonb":
        return made(3802, (row, place, out) -> out.int1(JSONB_FORM).bytes(row.getUTF8String(place).getBytes()));
      case "numeric": {
        int precision = ((DecimalType) type).precision();
        int scale = ((DecimalType) type).scale();
        return made(1700, (row, place, out) ->
            numeric(row.getDecimal(place, precision, scale).toJavaBigDecimal().setScale(scale), out));
      }
      default: throw new IllegalArgumentException(kind);
    }
  }

  private static int day(int days) {
    if (days == Integer.MAX_VALUE || days == Integer.MIN_VALUE) return days;
    return (int) Math.max((long) days - DAYS_TO_2000, Integer.MIN_VALUE + 1L);
  }

  private static long micros(long micros) {
    if (micros == Long.MAX_VALUE || micros == Long.MIN_VALUE) return micros;
    return micros < Long.MIN_VALUE + 1 + MICROS_TO_2000 ? Long.MIN_VALUE + 1 : micros - MICROS_TO_2000;
  }

  private static final BigInteger BASE = BigInteger.valueOf(10_000);
  private static final int DIGITS = 4;
  private static final int MOST_GROUPS = 20;

  /** Groups of four decimal digits to either side of the point; those of zeros at the end are left out. */
  private static void numeric(BigDecimal value, Growing out) {
    int padding = Math.floorMod(-value.scale(), DIGITS);
    BigInteger rest = value.unscaledValue().abs().multiply(BigInteger.TEN.pow(padding));
    int[] groups = new int[MOST_GROUPS];
    int count = 0;
    for (; rest.bitLength() >= Long.SIZE; count++) {
      BigInteger[] parts = rest.divideAndRemainder(BASE);
      groups[count] = parts[1].intValue();
      rest = parts[0];
    }
    for (long left = rest.longValue(); left > 0; left /= 10_000) groups[count++] = (int) (left % 10_000);
    int weight = count - (value.scale() + padding) / DIGITS - 1;
    int first = 0;
    while (first < count && groups[first] == 0) first++;
    out.int2(count - first).int2(first == count ? 0 : weight).int2(value.signum() < 0 ? 0x4000 : 0).int2(value.scale());
    for (int place = count - 1; place >= first; place--) out.int2(groups[place]);
  }

  private interface Bytes {
    void write(SpecializedGetters row, int place, Growing out);
  }

  private static CopyValue made(int oid, Bytes bytes) {
    return new CopyValue(oid) {
      @Override
      void write(SpecializedGetters row, int place, Growing out) { bytes.write(row, place, out); }
    };
  }

  /** An array of one dimension, counted from 1. */
  private static final class Elements extends CopyValue {
    private final CopyValue element;

    Elements(CopyValue element) {
      super(0);
      this.element = element;
    }

    @Override
    void write(SpecializedGetters row, int place, Growing out) {
      ArrayData array = row.getArray(place);
      int count = array.numElements();
      boolean nulls = false;
      for (int each = 0; each < count && !nulls; each++) nulls = array.isNullAt(each);
      out.int4(count == 0 ? 0 : 1).int4(nulls ? 1 : 0).int4(element.oid);
      if (count > 0) out.int4(count).int4(1);
      for (int each = 0; each < count; each++) element.field(array, each, out);
    }
  }
}
