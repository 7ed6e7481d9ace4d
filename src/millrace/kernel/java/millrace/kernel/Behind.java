package millrace.kernel;

import java.lang.reflect.Field;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.TransformWithState;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec;
import org.apache.spark.sql.execution.streaming.runtime.IncrementalExecution;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import org.apache.spark.sql.execution.streaming.runtime.WatermarkPropagator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The watermark of what stands behind a join of ours. A pair may have a row that is older than the watermark by as much
 * as the interval: for whoever comes next the watermark is that much earlier. Spark works the same out for a join of its
 * own, and takes for granted that no other operator holds rows back.
 */
final class Behind implements WatermarkPropagator {
  private static final String FIELD = "watermarkPropagator";

  private final WatermarkPropagator spark;
  /** By the number of a stateful step, how much earlier its watermark is than Spark takes it for. */
  private final Map<Long, Long> behindMs = new ConcurrentHashMap<>();

  private Behind(WatermarkPropagator spark) {
    this.spark = spark;
  }

  /** Called while an epoch is planned, before Spark asks for its watermarks: the first epoch asks the one it began with. */
  static void install(MicroBatchExecution query, LogicalPlan plan) {
    if (!hasJoin(plan)) return;
    try {
      Field ofQuery = field(MicroBatchExecution.class);
      if (ofQuery.get(query) instanceof Behind) return;
      Behind behind = new Behind((WatermarkPropagator) ofQuery.get(query));
      ofQuery.set(query, behind);
      if (query.lastExecution() != null) field(IncrementalExecution.class).set(query.lastExecution(), behind);
    } catch (ReflectiveOperationException anotherSpark) {
      throw new IllegalStateException(anotherSpark);
    }
  }

  /** Spark's own. */
  static WatermarkPropagator underneath(MicroBatchExecution query) throws ReflectiveOperationException {
    Object found = field(MicroBatchExecution.class).get(query);
    return found instanceof Behind behind ? behind.spark : (WatermarkPropagator) found;
  }

  private static Field field(Class<?> of) throws ReflectiveOperationException {
    Field field = of.getDeclaredField(FIELD);
    field.setAccessible(true);
    return field;
  }

  private static boolean hasJoin(LogicalPlan plan) {
    if (plan instanceof TransformWithState step && (Object) step.statefulProcessor() instanceof JoinProcessor) return true;
    for (LogicalPlan child : CollectionConverters.asJava(plan.children())) if (hasJoin(child)) return true;
    return false;
  }

  @Override
  public void propagate(long epoch, SparkPlan plan, long watermarkMs) {
    behindMs(plan);
    spark.propagate(epoch, plan, watermarkMs);
  }

  /** How far behind the rows are that a step gives; on the way, notes those that it takes. */
  private long behindMs(SparkPlan plan) {
    long most = 0;
    for (SparkPlan child : CollectionConverters.asJava(plan.children())) most = Math.max(most, behindMs(child));
    if (plan instanceof StateStoreWriter step && step.stateInfo().isDefined()) {
      behindMs.put(step.stateInfo().get().operatorId(), most);
    }
    if (plan instanceof TransformWithStateExec step && (Object) step.statefulProcessor() instanceof JoinProcessor join) {
      most += Math.floorDiv(join.behindUs() + 999, 1_000L);
    }
    return most;
  }

  @Override
  public long getInputWatermarkForLateEvents(long epoch, long operator) {
    return earlier(operator, spark.getInputWatermarkForLateEvents(epoch, operator));
  }

  @Override
  public long getInputWatermarkForEviction(long epoch, long operator) {
    return earlier(operator, spark.getInputWatermarkForEviction(epoch, operator));
  }

  private long earlier(long operator, long watermarkMs) {
    return Math.max(0, watermarkMs - behindMs.getOrDefault(operator, 0L));
  }

  @Override
  public void purge(long epoch) {
    spark.purge(epoch);
  }
}
