package millrace.kernel;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.ObjectType;
import scala.jdk.javaapi.CollectionConverters;

/** A column that is what a method of an object gives, called from Spark's generated code with Spark's own values. */
final class Invoked {
  /** `on` has a copy of its own in each task. */
  static Column column(Serializable on, String method, DataType gives, Column of, DataType takes) {
    return column(on, method, gives, of, takes, true);
  }

  /** What it gives depends on what it was given before, so Spark may not ask it twice, or for other rows. */
  static Column changing(Serializable on, String method, DataType gives, Column of, DataType takes) {
    return column(on, method, gives, of, takes, false);
  }

  private static Column column(
      Serializable on, String method, DataType gives, Column of, DataType takes, boolean deterministic) {
    Expression object = new Literal(on, new ObjectType(on.getClass()));
    List<Expression> arguments = List.of(ExpressionUtils.expression(of));
    List<AbstractDataType> types = List.of((AbstractDataType) takes);
    return ExpressionUtils.column(new Invoke(
        object, method, gives, CollectionConverters.asScala(arguments).toList(),
        CollectionConverters.asScala(types).toList(), true, true, deterministic));
  }

  private Invoked() {}
}
