package millrace.kernel;

import java.io.Serializable;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * A row as the bytes that Spark itself holds it in. An operator that only passes rows on takes them so: it would
 * otherwise be given every value as an object of Java's, and have each made into Spark's own again. They are Spark's
 * UnsafeRow, the form in which it keeps the rows of every state, so an operator may keep them; it must not be started
 * with other columns then.
 */
public final class Packed implements Serializable {
  private final StructType type;
  private transient UnsafeProjection projection;

  private Packed(StructType type) {
    this.type = type;
  }

  static Packed of(StructType type) {
    return new Packed(type);
  }

  public static Column pack(Column row, String schema) {
    StructType type = (StructType) DataType.fromJson(schema);
    return Invoked.column(new Packed(type), "bytes", DataTypes.BinaryType, row, type);
  }

  public static Column unpack(Column bytes, String schema) {
    StructType type = (StructType) DataType.fromJson(schema);
    return Invoked.column(new Packed(type), "row", type, bytes, DataTypes.BinaryType);
  }

  /** Called from Spark's generated code, as the next one is. */
  public byte[] bytes(InternalRow row) {
    if (row instanceof UnsafeRow unsafe) return unsafe.getBytes();
    if (projection == null) projection = UnsafeProjection.create(type);
    // The projection writes every row into the same bytes; where Spark computes a table of constants, it keeps them all.
    return projection.apply(row).copy().getBytes();
  }

  public InternalRow row(byte[] bytes) {
    UnsafeRow row = new UnsafeRow(type.length());
    row.pointTo(bytes, bytes.length);
    return row;
  }
}
