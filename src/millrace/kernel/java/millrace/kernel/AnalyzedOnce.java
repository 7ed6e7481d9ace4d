package millrace.kernel;

import java.lang.reflect.Field;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import org.apache.spark.sql.catalyst.analysis.Analyzer;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.sources.WriteToMicroBatchDataSource;
import org.apache.spark.sql.internal.SessionState;

/**
 * Spark's analyzer, in the session of one streaming query: it takes the plan of an epoch as it is, once it has seen that
 * there was nothing to be done to that of an earlier one. A query's plan was analyzed when it started, and those of its
 * epochs differ in offsets alone; in real time rows wait meanwhile.
 */
final class AnalyzedOnce extends Analyzer {
  private final Analyzer spark;
  private boolean same;

  private AnalyzedOnce(Analyzer spark) {
    super(spark.catalogManager(), spark.sharedRelationCache(), spark.sessionConf());
    this.spark = spark;
  }

  /** Puts it in the place of the session's analyzer. The session has to be one query's own. */
  static void install(SparkSession session) {
    SessionState state = session.sessionState();
    Analyzer analyzer = state.analyzer();
    if (analyzer instanceof AnalyzedOnce) return;
    try {
      Field field = SessionState.class.getDeclaredField("analyzer");
      field.setAccessible(true);
      field.set(state, new AnalyzedOnce(analyzer));
    } catch (ReflectiveOperationException anotherSpark) {
      throw new IllegalStateException(anotherSpark);
    }
  }

  @Override
  public LogicalPlan executeAndCheck(LogicalPlan plan, QueryPlanningTracker tracker) {
    if (same && plan instanceof WriteToMicroBatchDataSource) {
      plan.setAnalyzed();
      return plan;
    }
    LogicalPlan analyzed = spark.executeAndCheck(plan, tracker);
    if (plan instanceof WriteToMicroBatchDataSource) same = analyzed.fastEquals(plan);
    return analyzed;
  }
}
