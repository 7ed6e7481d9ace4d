package millrace.kernel;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A row as the bytes that Spark itself holds it in. An operator that only passes rows on takes them so: it would
 * otherwise be given every value as an object of Java's, and have each made into Spark's own again. The bytes mean
 * something to this version of Spark only, so they are not kept in state.
 */
public final class Packed implements Serializable {
  private final StructType type;
  private transient UnsafeProjection projection;

  private Packed(StructType type) {
    this.type = type;
  }

  public static Column pack(Column row, String schema) {
    StructType type = (StructType) DataType.fromJson(schema);
    return invoked(type, "bytes", DataTypes.BinaryType, row, type);
  }

  public static Column unpack(Column bytes, String schema) {
    StructType type = (StructType) DataType.fromJson(schema);
    return invoked(type, "row", type, bytes, DataTypes.BinaryType);
  }

  private static Column invoked(StructType type, String method, DataType gives, Column of, DataType takes) {
    Expression packed = new Literal(new Packed(type), new ObjectType(Packed.class));
    List<Expression> arguments = List.of(ExpressionUtils.expression(of));
    List<AbstractDataType> types = List.of((AbstractDataType) takes);
    return ExpressionUtils.column(new Invoke(
        packed, method, gives, CollectionConverters.asScala(arguments).toList(),
        CollectionConverters.asScala(types).toList(), true, true, true));
  }

  /** Called from Spark's generated code, as the next one is. */
  public byte[] bytes(InternalRow row) {
    if (row instanceof UnsafeRow unsafe) return unsafe.getBytes();
    if (projection == null) projection = UnsafeProjection.create(type);
    return projection.apply(row).getBytes();
  }

  public InternalRow row(byte[] bytes) {
    UnsafeRow row = new UnsafeRow(type.length());
    row.pointTo(bytes, bytes.length);
    return row;
  }
}
