package millrace.kernel;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;

/** The few types in which the kernel holds values, each in Spark's order and written in its own bytes. */
enum Carrier {
  LONG {
    @Override Object plus(Object one, Object two) { return Math.addExact((Long) one, (Long) two); }
    @Override int compare(Object one, Object two) { return Long.compare((Long) one, (Long) two); }
    @Override void write(Object value, DataOutput out) throws IOException { out.writeLong((Long) value); }
    @Override Object read(DataInput in) throws IOException { return in.readLong(); }
  },
  DOUBLE {
    @Override Object plus(Object one, Object two) { return (Double) one + (Double) two; }

    /** NaN is the greatest, and the two zeros are one. */
    @Override int compare(Object one, Object two) { return Double.compare((Double) one + 0.0, (Double) two + 0.0); }

    @Override Object key(Object value) { return (Double) value + 0.0; }
    @Override void write(Object value, DataOutput out) throws IOException { out.writeDouble((Double) value); }
    @Override Object read(DataInput in) throws IOException { return in.readDouble(); }
  },
  DECIMAL {
    @Override Object plus(Object one, Object two) { return ((BigDecimal) one).add((BigDecimal) two); }
    @Override int compare(Object one, Object two) { return ((BigDecimal) one).compareTo((BigDecimal) two); }

    @Override
    Object key(Object value) {
      BigDecimal plain = ((BigDecimal) value).stripTrailingZeros();
      return plain.scale() < 0 ? plain.setScale(0) : plain;
    }

    @Override
    void write(Object value, DataOutput out) throws IOException {
      BigDecimal decimal = (BigDecimal) value;
      out.writeInt(decimal.scale());
      bytes(decimal.unscaledValue().toByteArray(), out);
    }

    @Override
    Object read(DataInput in) throws IOException {
      int scale = in.readInt();
      return new BigDecimal(new BigInteger(bytes(in)), scale);
    }
  },
  TEXT {
    @Override Object plus(Object one, Object two) { throw new UnsupportedOperationException(); }

    /** By the bytes of UTF-8, as Spark does; Java's own order is that of UTF-16. */
    @Override
    int compare(Object one, Object two) {
      return Arrays.compareUnsigned(utf8(one), utf8(two));
    }

    @Override void write(Object value, DataOutput out) throws IOException { bytes(utf8(value), out); }
    @Override Object read(DataInput in) throws IOException { return new String(bytes(in), StandardCharsets.UTF_8); }
  },
  BYTES {
    @Override Object plus(Object one, Object two) { throw new UnsupportedOperationException(); }
    @Override int compare(Object one, Object two) { return Arrays.compareUnsigned((byte[]) one, (byte[]) two); }
    @Override void write(Object value, DataOutput out) throws IOException { bytes((byte[]) value, out); }
    @Override Object read(DataInput in) throws IOException { return bytes(in); }
    @Override Object key(Object value) { return ByteBuffer.wrap((byte[]) value); }
    @Override Object value(Object key) { return ((ByteBuffer) key).array(); }
  },
  /** That something is true of a row, as the 1 that a count adds; otherwise there is no value. */
  FLAG {
    @Override Object plus(Object one, Object two) { return (Long) one + (Long) two; }
    @Override int compare(Object one, Object two) { return 0; }
    @Override void write(Object value, DataOutput out) {}
    @Override Object read(DataInput in) { return 1L; }
    @Override Object taken(Object value) { return 1L; }
  },
  /** By latitude, then by longitude. */
  POSITION {
    @Override Object plus(Object one, Object two) { throw new UnsupportedOperationException(); }

    @Override
    int compare(Object one, Object two) {
      Position from = (Position) one;
      Position to = (Position) two;
      int order = DOUBLE.compare(from.latitude(), to.latitude());
      return order != 0 ? order : DOUBLE.compare(from.longitude(), to.longitude());
    }

    @Override
    void write(Object value, DataOutput out) throws IOException {
      out.writeDouble(((Position) value).latitude());
      out.writeDouble(((Position) value).longitude());
    }

    @Override Object read(DataInput in) throws IOException { return new Position(in.readDouble(), in.readDouble()); }
    @Override Object taken(Object value) { return new Position(((Row) value).getDouble(0), ((Row) value).getDouble(1)); }
  };

  static Carrier of(DataType type) {
    if (type instanceof LongType) return LONG;
    if (type instanceof DoubleType) return DOUBLE;
    if (type instanceof DecimalType) return DECIMAL;
    if (type instanceof StringType) return TEXT;
    if (type instanceof BinaryType) return BYTES;
    if (type instanceof BooleanType) return FLAG;
    if (type instanceof StructType) return POSITION;
    throw new IllegalArgumentException(type.sql());
  }

  abstract Object plus(Object one, Object two);

  abstract int compare(Object one, Object two);

  /** A value as it is held, from what a row has. */
  Object taken(Object value) {
    return value;
  }

  /** Something that is equal, and has the same hash in every JVM, for values that are the same. */
  Object key(Object value) {
    return value;
  }

  /** A value that has this key. */
  Object value(Object key) {
    return key;
  }

  abstract void write(Object value, DataOutput out) throws IOException;

  abstract Object read(DataInput in) throws IOException;

  void writeNullable(Object value, DataOutput out) throws IOException {
    out.writeBoolean(value != null);
    if (value != null) write(value, out);
  }

  Object readNullable(DataInput in) throws IOException {
    return in.readBoolean() ? read(in) : null;
  }

  private static byte[] utf8(Object text) {
    return ((String) text).getBytes(StandardCharsets.UTF_8);
  }

  private static void bytes(byte[] value, DataOutput out) throws IOException {
    out.writeInt(value.length);
    out.write(value);
  }

  private static byte[] bytes(DataInput in) throws IOException {
    byte[] value = new byte[in.readInt()];
    in.readFully(value);
    return value;
  }
}
