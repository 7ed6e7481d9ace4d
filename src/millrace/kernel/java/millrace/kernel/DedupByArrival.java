package millrace.kernel;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Which rows of one key are first, by the time of day at which the flow meets them: an epoch's, in real time the row's.
 *
 * Spark's own ttl is not used: a query with it never rests. An epoch without rows follows every epoch, and with
 * availableNow it never ends (SPARK-50180). So what was given is forgotten by a timer of the watermark. That may run
 * ahead of the time of day or behind it: a timer that fires too early is set again, and one that fires late only
 * forgets late. What holds: a key with state has one timer, which the state names.
 */
final class DedupByArrival extends Keeper<Row, Row, Row> {
  private static final int FORM = 1;

  private record Given(long atMs, long timerMs) {}

  private final long ttlMs;
  private transient ValueState<byte[]> state;
  private transient Forgetting forgetting;

  DedupByArrival(String told, long ttlUs) {
    super(told);
    ttlMs = ttlUs / 1_000;
  }

  /** With a watermark: where rows have none of their own, the time of day. */
  static Dataset<Row> marked(Dataset<Row> rows) {
    if (hasWatermark(((org.apache.spark.sql.classic.Dataset<Row>) rows).queryExecution().analyzed())) return rows;
    return rows.withColumn("arrived", functions.current_timestamp()).withWatermark("arrived", "0 seconds").drop("arrived");
  }

  private static boolean hasWatermark(LogicalPlan plan) {
    if (plan instanceof EventTimeWatermark) return true;
    return CollectionConverters.asJava(plan.children()).stream().anyMatch(DedupByArrival::hasWatermark);
  }

  @Override
  public void init(OutputMode mode, TimeMode time) {
    state = getHandle().getValueState("given", BoundOnce.BYTES, TTLConfig.NONE());
    forgetting = new Forgetting(this, getHandle());
  }

  @Override
  public Iterator<Row> handleInputRows(Row key, Iterator<Row> rows, TimerValues timers) {
    forgetting.tend(key, timers);
    Row first = null;
    int last = -1;
    while (rows.hasNext()) {
      Row row = rows.next();
      last = row.length() - 1;
      if (first == null || row.getLong(last - 1) < first.getLong(last - 1)) first = row;
    }
    Given before = load();
    if (first == null || before != null && !isOver(before, timers)) return CollectionConverters.asScala(List.<Row>of().iterator());
    long nowMs = timers.getCurrentProcessingTimeInMs();
    save(new Given(nowMs, before == null ? registered(timers, ttlMs) : before.timerMs()));
    return CollectionConverters.asScala(List.of(RowFactory.create(Told.RESULT, null, first.get(last))).iterator());
  }

  @Override
  public Iterator<Row> handleExpiredTimer(Row key, TimerValues timers, ExpiredTimerInfo expired) {
    Given given = load();
    if (given != null && expired.getExpiryTimeInMs() == given.timerMs()) {
      if (isOver(given, timers)) {
        state.clear();
      } else {
        long leftMs = given.atMs() + ttlMs - timers.getCurrentProcessingTimeInMs();
        save(new Given(given.atMs(), registered(timers, Math.max(leftMs, 1))));
      }
    }
    return CollectionConverters.asScala(List.<Row>of().iterator());
  }

  /** Either way: a clock that was set back must not hold a key for longer than the time. */
  private boolean isOver(Given given, TimerValues timers) {
    return Math.abs(timers.getCurrentProcessingTimeInMs() - given.atMs()) >= ttlMs;
  }

  /** When the watermark is so much further. */
  private long registered(TimerValues timers, long laterMs) {
    long timerMs = forgetting.timerMs(Math.max(timers.getCurrentWatermarkInMs(), 0) + laterMs);
    getHandle().registerTimer(timerMs);
    return timerMs;
  }

  /** For people: see Kept. */
  static void show(byte[] held, ObjectNode out) {
    out.putArray("given").add(read(held).atMs() * 1_000);
  }

  private Given load() {
    byte[] held = state.get();
    return held == null ? null : read(held);
  }

  private static Given read(byte[] held) {
    return Stored.read(held, FORM, (in, form) -> new Given(in.readLong(), in.readLong()));
  }

  private void save(Given given) {
    state.update(Stored.write(FORM, out -> {
      out.writeLong(given.atMs());
      out.writeLong(given.timerMs());
    }));
  }
}
