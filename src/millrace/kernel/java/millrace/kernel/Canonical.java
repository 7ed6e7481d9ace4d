package millrace.kernel;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Values as a packed row whose bytes are equal where SQL takes the values for the same: one zero, one NaN. Everything is
 * written anew, because a null may leave other bytes behind, depending on who wrote it.
 */
public final class Canonical implements Serializable {
  private final StructType type;
  private transient UnsafeProjection projection;

  private Canonical(StructType type) {
    this.type = type;
  }

  public static Column of(Column struct, String schema) {
    StructType type = (StructType) DataType.fromJson(schema);
    return Invoked.column(new Canonical(type), "bytes", DataTypes.BinaryType, struct, type);
  }

  /** Called from Spark's generated code. */
  public byte[] bytes(InternalRow row) {
    if (projection == null) projection = made();
    return projection.apply(row).copy().getBytes();
  }

  private UnsafeProjection made() {
    List<Expression> values = new ArrayList<>();
    for (int place = 0; place < type.length(); place++) {
      Expression value = new BoundReference(place, type.fields()[place].dataType(), true);
      values.add(NormalizeFloatingNumbers$.MODULE$.normalize(value));
    }
    return UnsafeProjection.create(CollectionConverters.asScala(values).toList());
  }
}
