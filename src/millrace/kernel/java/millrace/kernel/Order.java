package millrace.kernel;

import java.io.Serializable;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.Arrays;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Values as bytes whose order, unsigned and one by one, is the values' own; nulls are last, whichever way the others go.
 * Values are equal if and only if their bytes are. State holds these bytes: they may not change.
 */
public final class Order implements Serializable {
  private static final byte VALUE = 0;
  private static final byte NULL = 1;
  /** Of a text, so that what follows it does not count as part of it. */
  private static final byte[] END = {0, 0};

  private final DataType[] types;
  private final boolean[] descending;
  private byte[] bytes = new byte[64];
  private int size;

  private Order(DataType[] types, boolean[] descending) {
    this.types = types;
    this.descending = descending;
  }

  /** `ways` has a letter for each field of the struct: d where the greatest is first, a otherwise. */
  public static Column of(Column struct, String schema, String ways) {
    StructType type = (StructType) DataType.fromJson(schema);
    DataType[] types = Arrays.stream(type.fields()).map(field -> field.dataType()).toArray(DataType[]::new);
    boolean[] descending = new boolean[types.length];
    for (int place = 0; place < types.length; place++) descending[place] = ways.charAt(place) == 'd';
    return Invoked.column(new Order(types, descending), "bytes", DataTypes.BinaryType, struct, type);
  }

  /** Called from Spark's generated code. */
  public byte[] bytes(InternalRow row) {
    size = 0;
    for (int place = 0; place < types.length; place++) {
      boolean isNull = row.isNullAt(place);
      add(isNull ? NULL : VALUE);
      if (isNull) continue;
      int from = size;
      value(row, place, types[place]);
      if (descending[place]) for (int each = from; each < size; each++) bytes[each] = (byte) ~bytes[each];
    }
    return Arrays.copyOf(bytes, size);
  }

  private void value(InternalRow row, int place, DataType type) {
    if (type instanceof LongType || type instanceof TimestampType || type instanceof TimestampNTZType) {
      whole(row.getLong(place));
    } else if (type instanceof IntegerType || type instanceof DateType) {
      whole(row.getInt(place));
    } else if (type instanceof StringType) {
      put(row.getUTF8String(place).getBytes());
    } else if (type instanceof DecimalType decimal) {
      decimal(row, place, decimal);
    } else if (type instanceof DoubleType) {
      real(row.getDouble(place));
    } else if (type instanceof FloatType) {
      real(row.getFloat(place));
    } else if (type instanceof BinaryType) {
      put(row.getBinary(place));
    } else if (type instanceof BooleanType) {
      add((byte) (row.getBoolean(place) ? 1 : 0));
    } else if (type instanceof ShortType) {
      whole(row.getShort(place));
    } else if (type instanceof ByteType) {
      whole(row.getByte(place));
    } else {
      throw new IllegalArgumentException(type.sql());
    }
  }

  /** The value of such bytes, as Spark itself holds it; they are of one value, not null, the least first. */
  static Object read(byte[] bytes, DataType type) {
    if (type instanceof StringType) return UTF8String.fromBytes(text(bytes));
    if (type instanceof BinaryType) return text(bytes);
    if (type instanceof BooleanType) return bytes[1] == 1;
    if (type instanceof DecimalType decimal) {
      byte[] digits = Arrays.copyOfRange(bytes, 1, bytes.length);
      digits[0] ^= (byte) 0x80;
      return Decimal.apply(
          new BigDecimal(new BigInteger(digits), decimal.scale()), decimal.precision(), decimal.scale());
    }
    long whole = ByteBuffer.wrap(bytes, 1, Long.BYTES).getLong() ^ Long.MIN_VALUE;
    double real = Double.longBitsToDouble(whole < 0 ? whole ^ Long.MAX_VALUE : whole);
    if (type instanceof DoubleType) return real;
    if (type instanceof FloatType) return (float) real;
    if (type instanceof IntegerType || type instanceof DateType) return (int) whole;
    if (type instanceof ShortType) return (short) whole;
    if (type instanceof ByteType) return (byte) whole;
    return whole;
  }

  private static byte[] text(byte[] bytes) {
    byte[] found = new byte[bytes.length];
    int length = 0;
    for (int place = 1; place < bytes.length - END.length; place++) {
      found[length++] = bytes[place];
      if (bytes[place] == 0) place++;
    }
    return Arrays.copyOf(found, length);
  }

  private void whole(long value) {
    for (int shift = 56; shift >= 0; shift -= 8) add((byte) ((value ^ Long.MIN_VALUE) >> shift));
  }

  /** NaN is the greatest, and the two zeros are one. */
  private void real(double value) {
    long bits = Double.doubleToLongBits(value + 0.0);
    whole(bits < 0 ? bits ^ Long.MAX_VALUE : bits);
  }

  private void decimal(InternalRow row, int place, DecimalType type) {
    var value = row.getDecimal(place, type.precision(), type.scale()).toJavaBigDecimal().setScale(type.scale());
    byte[] digits = value.unscaledValue().toByteArray();
    byte rest = (byte) (digits[0] < 0 ? -1 : 0);
    for (int each = 16; each > 0; each--) {
      byte digit = each > digits.length ? rest : digits[digits.length - each];
      add((byte) (each == 16 ? digit ^ 0x80 : digit));
    }
  }

  private void put(byte[] value) {
    for (byte each : value) {
      add(each);
      if (each == 0) add((byte) 0xff);
    }
    add(END[0]);
    add(END[1]);
  }

  private void add(byte value) {
    if (size == bytes.length) bytes = Arrays.copyOf(bytes, size * 2);
    bytes[size++] = value;
  }
}
