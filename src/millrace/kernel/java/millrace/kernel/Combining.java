package millrace.kernel;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NumericEvalContext;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.aggregate.Complete$;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.expressions.aggregate.Sum;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.PlanLater;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.aggregate.HashAggregateExec;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Rows that will be added up anyway are added up by each task before they go over the network: a projection all of whose
 * columns say how ("key", "sum", "min", "max") is planned as Spark's own hash aggregate, in one step and without a
 * shuffle, with the same columns. It is free to do so or not: whoever reads its rows adds them up again.
 *
 * Spark would make a streaming aggregate with state of a `groupBy`, hence a projection. In real time a task's rows have
 * no end to wait for, so there it stays a projection.
 */
public final class Combining extends SparkStrategy {
  /** The name under which a column's metadata says how it is added up. */
  static final String HOW = "millrace.combine";

  private static final String KEY = "key";

  /** Makes a session's queries look for such projections. */
  public static void install(SparkSession spark) {
    var methods = ((org.apache.spark.sql.classic.SparkSession) spark).experimental();
    List<SparkStrategy> strategies = new ArrayList<>(CollectionConverters.asJava(methods.extraStrategies()));
    if (strategies.stream().anyMatch(Combining.class::isInstance)) return;
    strategies.add(new Combining());
    methods.extraStrategies_$eq(seq(strategies));
  }

  @Override
  public Seq<SparkPlan> apply(LogicalPlan plan) {
    if (plan instanceof Project project && marked(project) && !Clocks.isRealTime(Clocks.query())) {
      return seq(List.of(combined(CollectionConverters.asJava(project.projectList()), project.child())));
    }
    return seq(List.of());
  }

  private static boolean marked(Project project) {
    List<NamedExpression> columns = CollectionConverters.asJava(project.projectList());
    return !columns.isEmpty() && columns.stream().allMatch(column -> column.metadata().contains(HOW));
  }

  private static SparkPlan combined(List<NamedExpression> columns, LogicalPlan child) {
    List<NamedExpression> inputs = new ArrayList<>();
    List<NamedExpression> keys = new ArrayList<>();
    List<AggregateExpression> aggregates = new ArrayList<>();
    List<Attribute> results = new ArrayList<>();
    List<NamedExpression> outputs = new ArrayList<>();
    for (NamedExpression column : columns) {
      // A new identity for what goes in: what comes out has the column's own.
      Alias input = alias(column instanceof Alias made ? made.child() : (Expression) column, column.name(), NamedExpression.newExprId());
      Attribute attribute = input.toAttribute();
      inputs.add(input);
      String how = column.metadata().getString(HOW);
      Expression output = (Expression) attribute;
      if (how.equals(KEY)) {
        keys.add(attribute);
      } else {
        AggregateExpression aggregate = new AggregateExpression(
            function(how, (Expression) attribute), Complete$.MODULE$, false, Option.empty(), NamedExpression.newExprId());
        aggregates.add(aggregate);
        results.add(aggregate.resultAttribute());
        output = (Expression) aggregate.resultAttribute();
        // Spark widens a sum of decimals each time.
        if (!output.dataType().equals(attribute.dataType())) {
          output = new Cast(output, attribute.dataType(), Option.empty(), EvalMode$.MODULE$.ANSI());
        }
      }
      outputs.add(alias(output, column.name(), column.exprId()));
    }
    return new HashAggregateExec(
        Option.empty(), false, Option.empty(), seq(keys), seq(aggregates), seq(results), 0, seq(outputs),
        new ProjectExec(seq(inputs), new PlanLater(child)));
  }

  private static AggregateFunction function(String how, Expression of) {
    switch (how) {
      // A sum that does not fit is an error, whatever the session says.
      case "sum": return new Sum(of, new NumericEvalContext(EvalMode$.MODULE$.ANSI(), true));
      case "min": return new Min(of);
      case "max": return new Max(of);
      default: throw new IllegalArgumentException(how);
    }
  }

  private static Alias alias(Expression of, String name, ExprId id) {
    return new Alias(of, name, id, seq(List.of()), Option.empty(), seq(List.of()));
  }

  private static <T> Seq<T> seq(List<? extends T> items) {
    return CollectionConverters.<T>asScala(new ArrayList<T>(items)).toList();
  }
}
