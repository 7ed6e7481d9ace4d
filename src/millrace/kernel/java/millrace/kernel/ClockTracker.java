package millrace.kernel;

import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.CollectMetricsExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.streaming.operators.stateful.EventTimeWatermarkExec;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import org.apache.spark.sql.execution.streaming.runtime.MultipleWatermarkPolicy$;
import org.apache.spark.sql.execution.streaming.runtime.WatermarkTracker;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A query's watermark: the least of its sources' clocks, but for those that have nothing more to say. Spark tells when an epoch has ended, asks at each trigger how
 * far it is, and itself writes the answer into the checkpoint. A source without a clock of ours counts as Spark counts
 * it.
 */
final class ClockTracker extends WatermarkTracker {
  private static final String EPOCH = "streaming.sql.batchId";
  /** As `flow/matches.py` has them; the folder's name is none that a source can have. */
  private static final String PARTIAL_METRIC = "millrace.partial.";
  private static final String PARTIAL = "partial";
  private static final String PARTIAL_FOLDER = "_partial";

  private final MicroBatchExecution query;
  private final Simulated simulated;
  private final Map<UUID, Clock> clocks = new HashMap<>();
  private final Map<UUID, Long> others = new HashMap<>();

  private long lastEpoch = -1;
  private EpochCount tally;

  ClockTracker(MicroBatchExecution query) {
    super(MultipleWatermarkPolicy$.MODULE$.apply("min"), query.logicalPlan());
    this.query = query;
    simulated = new Simulated(query);
    setWatermark(query.watermarkTracker().currentWatermark());
  }

  @Override
  public synchronized void updateWatermark(SparkPlan plan) {
    lastEpoch = Long.parseLong(plan.sparkContext().getLocalProperty(EPOCH));
    update(plan);
    choose();
    tally(plan);
  }

  /** Adds up by how many the partial matches have become more or fewer. */
  private void tally(SparkPlan plan) {
    Long more = partial(plan);
    if (more == null || clocks.isEmpty()) return;
    if (tally == null) {
      Path folder = clocks.values().iterator().next().beside(PARTIAL_FOLDER);
      if (folder == null) return;
      tally = new EpochCount(folder);
    }
    tally.add(lastEpoch, more);
  }

  private static Long partial(SparkPlan plan) {
    Long found = null;
    if (plan instanceof CollectMetricsExec observed && observed.name().startsWith(PARTIAL_METRIC)) {
      found = observed.collectedMetrics().getAs(PARTIAL);
    }
    for (SparkPlan child : CollectionConverters.asJava(plan.children())) {
      Long more = partial(child);
      if (more != null) found = (found == null ? 0 : found) + more;
    }
    return found;
  }

  /** Time goes on without an epoch, too: a partition may have been silent for long enough by now. */
  @Override
  public synchronized long currentWatermark() {
    long before = super.currentWatermark();
    if (query == null || Thread.currentThread() != query.queryExecutionThread()) return before;
    for (Clock clock : clocks.values()) clock.tick();
    choose();
    if (super.currentWatermark() > before) simulated.forgetAfter(lastEpoch);
    return super.currentWatermark();
  }

  /** The least of the sources that are waited for; of none, the greatest. */
  private void choose() {
    long least = Long.MAX_VALUE;
    long most = 0;
    for (Clock clock : clocks.values()) {
      long reached = clock.watermarkMs() == null ? 0 : clock.watermarkMs();
      most = Math.max(most, reached);
      if (clock.waits()) least = Math.min(least, reached);
    }
    for (long other : others.values()) least = Math.min(least, other);
    long chosen = least == Long.MAX_VALUE ? most : least;
    if (chosen > super.currentWatermark()) setWatermark(chosen);
  }

  private void update(SparkPlan plan) {
    if (plan instanceof EventTimeWatermarkExec node) {
      if (node.eventTime().metadata().contains(Clocks.SETTINGS)) advance(node);
      else others.merge(node.nodeId(), native_(node), Math::max);
    }
    for (SparkPlan child : CollectionConverters.asJava(plan.children())) update(child);
  }

  private void advance(EventTimeWatermarkExec node) {
    Clock clock = clocks.computeIfAbsent(
        node.nodeId(),
        id -> new Clock(node.eventTime().metadata().getString(Clocks.SETTINGS), Reach.of(query, id)));
    CollectMetricsExec observed = first(node, CollectMetricsExec.class);
    String seen = observed == null ? null : observed.collectedMetrics().getAs(Clock.SEEN);
    clock.advance(lastEpoch, seen == null ? "{}" : seen);
  }

  private static long native_(EventTimeWatermarkExec node) {
    var stats = node.eventTimeStats().value();
    return stats.count() == 0 ? 0 : stats.max() - node.delayMs();
  }

  private static <T extends SparkPlan> T first(SparkPlan plan, Class<T> kind) {
    if (kind.isInstance(plan)) return kind.cast(plan);
    for (SparkPlan child : CollectionConverters.asJava(plan.children())) {
      T found = first(child, kind);
      if (found != null) return found;
    }
    return null;
  }
}
