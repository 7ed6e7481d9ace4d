package millrace.kernel;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.CurrentBatchTimestamp;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.ObjectType;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * The time of day at which an epoch began, which is what `current_timestamp()` is in a stream. Spark writes it as a number
 * into the code that it generates: each epoch's is another one, compiled anew, and run slowly until the JVM has compiled
 * it again. Given as an object the code stays the same.
 */
public final class EpochTime implements Serializable {
  private final long us;

  private EpochTime(long us) {
    this.us = us;
  }

  /** Called from Spark's generated code. */
  public long us() {
    return us;
  }

  /** A plan with an epoch's time as an object, and its watermark known to those who ask for it. */
  static LogicalPlan in(LogicalPlan plan, long watermarkUs) {
    return (LogicalPlan) plan.transformAllExpressions(new AbstractPartialFunction<Expression, Expression>() {
      @Override
      public boolean isDefinedAt(Expression each) {
        // Spark asks until nothing changes any more.
        if (each instanceof Literal literal) return literal.value() instanceof Sieve sieve && !sieve.isUnder(watermarkUs);
        return each instanceof CurrentBatchTimestamp time && time.dataType().equals(DataTypes.TimestampType);
      }

      @Override
      public Expression apply(Expression each) {
        if (each instanceof CurrentBatchTimestamp time) return of(time.timestampMs() * 1_000);
        return new Literal(((Sieve) ((Literal) each).value()).under(watermarkUs), each.dataType());
      }
    });
  }

  private static Expression of(long us) {
    List<Expression> none = List.of();
    List<AbstractDataType> types = List.of();
    return new Invoke(
        new Literal(new EpochTime(us), new ObjectType(EpochTime.class)), "us", DataTypes.TimestampType,
        CollectionConverters.asScala(none).toList(), CollectionConverters.asScala(types).toList(), true, false, true);
  }
}
