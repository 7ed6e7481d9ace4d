package millrace.kernel;

import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.optimizer.Optimizer;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.rules.RuleExecutor;
import org.apache.spark.sql.catalyst.trees.TreePattern$;
import org.apache.spark.sql.classic.SparkSession;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A streaming plan that is optimized when its query starts, and not again at every epoch. Spark optimizes the same plan
 * for each epoch anew; in real time rows wait meanwhile.
 */
public final class Settled {
  private static final String SPARK = "org.apache.spark.sql.";
  private static final String EXCLUDED = "spark.sql.optimizer.excludedRules";
  /** Spark looks for parts of a plan that are there twice, which in real time it refuses. */
  private static final List<String> REUSE = List.of("spark.sql.exchange.reuse", "spark.sql.execution.reuseSubquery");

  /**
   * The same rows by an optimized plan, and a session that leaves it as it is; the rows as they were given, and the
   * session too, where an epoch's plan is another than that of the one before: it holds the time of day or something
   * that is not a stream, of which there may be more later.
   */
  public static Dataset<Row> plan(Dataset<Row> rows) {
    var given = (org.apache.spark.sql.classic.Dataset<Row>) rows;
    SparkSession spark = given.sparkSession();
    LogicalPlan plan = given.queryExecution().analyzed();
    if (varies(plan)) return rows;
    Optimizer optimizer = spark.sessionState().optimizer();
    // With its session active: the optimizer asks that one which rules are off, and views have some off (0027).
    LogicalPlan optimized = spark.withActive(() -> optimizer.execute(plan.clone()));
    Dataset<Row> settled = org.apache.spark.sql.classic.Dataset.ofRows(spark, optimized);
    Set<String> rules = names(optimizer);
    spark.conf().getOption(EXCLUDED).foreach(own -> rules.addAll(Set.of(own.split("\\s*,\\s*"))));
    spark.conf().set(EXCLUDED, String.join(",", rules));
    for (String setting : REUSE) spark.conf().set(setting, false);
    return settled;
  }

  private static boolean varies(LogicalPlan plan) {
    var patterns = TreePattern$.MODULE$;
    if (plan.containsPattern(patterns.CURRENT_LIKE()) || plan.containsPattern(patterns.PLAN_EXPRESSION())) return true;
    return CollectionConverters.asJava(plan.collectLeaves()).stream()
        .anyMatch(leaf -> !leaf.isStreaming() && !(leaf instanceof LocalRelation));
  }

  /** Spark's rules that a plan does not need to which they have been applied. */
  private static Set<String> names(Optimizer optimizer) {
    Set<String> names = new TreeSet<>();
    for (RuleExecutor<LogicalPlan>.Batch batch : CollectionConverters.asJava(optimizer.defaultBatches())) {
      for (Rule<LogicalPlan> rule : CollectionConverters.asJava(batch.rules())) {
        if (rule.getClass().getName().startsWith(SPARK)) names.add(rule.ruleName());
      }
    }
    names.removeAll(CollectionConverters.asJava(optimizer.nonExcludableRules()));
    return names;
  }

  private Settled() {}
}
