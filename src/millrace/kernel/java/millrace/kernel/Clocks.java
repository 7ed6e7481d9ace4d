package millrace.kernel;

import java.util.List;
import java.util.UUID;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.streaming.RealTimeTrigger;
import org.apache.spark.sql.execution.streaming.runtime.IncrementalExecution;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Puts Millrace's clock where Spark would keep its own watermark, in queries whose time columns carry a clock's
 * settings, keeps the pace of queries, and lets those in real time be analyzed once. Spark plans every epoch in the
 * query's own thread; a rule that changes no result is how to be there before the first epoch ends.
 */
public final class Clocks {
  /** The name under which a time column's metadata holds the clock's settings. */
  static final String SETTINGS = "millrace.clock";

  private static final String QUERY = "sql.streaming.queryId";

  /** Makes a session's queries look for clocks, and keep their pace. */
  public static void install(SparkSession spark) {
    var methods = ((org.apache.spark.sql.classic.SparkSession) spark).experimental();
    for (Rule<LogicalPlan> rule : CollectionConverters.asJava(methods.extraOptimizations())) {
      if (rule instanceof Watch) return;
    }
    List<Rule<LogicalPlan>> rules = new java.util.ArrayList<>(CollectionConverters.asJava(methods.extraOptimizations()));
    rules.add(new Watch());
    methods.extraOptimizations_$eq(CollectionConverters.asScala(rules).toList());
  }

  private static final class Watch extends Rule<LogicalPlan> {
    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      if (plan.isStreaming() && query() instanceof MicroBatchExecution query) {
        Behind.install(query, plan);
        if (hasClock(plan) && !(query.watermarkTracker() instanceof ClockTracker)) {
          query.watermarkTracker_$eq(new ClockTracker(query));
        }
        if (isRealTime(query)) {
          session().sparkContext().setLocalProperty(Forgetting.REAL_TIME, "true"); // this thread's jobs are the query's
          AnalyzedOnce.install(session());
        } else {
          Pace.adapt(query);
        }
        IncrementalExecution epoch = query.lastExecution();
        return EpochTime.in(plan, epoch == null ? Long.MAX_VALUE : epoch.offsetSeqMetadata().batchWatermarkMs() * 1_000);
      }
      return plan;
    }
  }

  private static org.apache.spark.sql.classic.SparkSession session() {
    return (org.apache.spark.sql.classic.SparkSession) org.apache.spark.sql.classic.SparkSession.active();
  }

  /** The streaming query whose thread this is; null if it is none's. */
  static Object query() {
    var spark = session();
    String id = spark.sparkContext().getLocalProperty(QUERY);
    return id == null ? null : spark.sharedState().activeStreamingQueries().get(UUID.fromString(id));
  }

  /** Whether rows leave at once, and an epoch is as long as was asked for. */
  static boolean isRealTime(Object query) {
    return query instanceof StreamExecution running && running.trigger() instanceof RealTimeTrigger;
  }

  private static boolean hasClock(LogicalPlan plan) {
    if (plan instanceof EventTimeWatermark node && node.eventTime().metadata().contains(SETTINGS)) return true;
    for (LogicalPlan child : CollectionConverters.asJava(plan.children())) {
      if (hasClock(child)) return true;
    }
    return false;
  }

  private Clocks() {}
}
