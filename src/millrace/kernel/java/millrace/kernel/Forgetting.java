package millrace.kernel;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.ImplicitGroupingKeyTracker;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.StatefulProcessorHandleImpl;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.timers.ExpiredTimerInfoImpl;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.util.NextIterator;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterator;

/**
 * The timers by which keys forget, of a processor of which nobody waits for what it tells when they fire. A watermark moves
 * at an epoch's end, so all that fell due in the epoch before falls due at once. Epoch by epoch Spark fires it after the rows. In real time
 * it would fire all of it at an epoch's first row, and the others would wait: 0.4 s for 20,000 keys. There such a timer is
 * set for later than it is needed, and what is needed is done here, a little with every few rows; Spark is left what no
 * rows came for.
 *
 * After each row Spark looks for timers from the watermark on, and would pass all that were removed here, every time. So
 * guards are set right behind the watermark: at the first it stops, when its iterator is at the second already. They fire
 * in a later epoch: that a timer fires does not say that it was the processor's own.
 */
final class Forgetting {
  /** What the tasks of a query in real time are told (see Clocks). */
  static final String REAL_TIME = "millrace.realtime";
  private static final long LATER_MS = 600_000;
  /** After so many rows so many keys at most: two for a row are enough where each row has a new one. */
  private static final int ROWS = 16;
  private static final int TIMERS = 32;
  private static final int GUARDS = 2;

  private final StatefulProcessor<Row, Row, Row> processor;
  private final StatefulProcessorHandleImpl handle;
  private final boolean realTime;
  private int rows;
  private int left;
  private long guardedMs = Long.MIN_VALUE;
  private long doneMs = Long.MIN_VALUE;
  private long setMs = Long.MIN_VALUE;
  private Option<Object> from;

  Forgetting(StatefulProcessor<Row, Row, Row> processor, StatefulProcessorHandle handle) {
    this.processor = processor;
    this.handle = handle instanceof StatefulProcessorHandleImpl own ? own : null; // another one where Spark only asks
    TaskContext task = TaskContext.get();
    realTime = this.handle != null && task != null && task.getLocalProperty(REAL_TIME) != null;
  }

  /** What `registerTimer` is to be told for a key that may forget from this watermark on. */
  long timerMs(long neededMs) {
    return realTime ? neededMs + LATER_MS : neededMs;
  }

  /** From which watermark on a key may forget whose timer has this time, set in either mode. */
  static long[] neededMs(long timerMs) {
    return new long[] {timerMs, timerMs - LATER_MS};
  }

  /** Whether two timers, set in either mode, are for the same watermark. */
  static boolean same(long timerMs, long otherMs) {
    return timerMs == otherMs || Math.abs(timerMs - otherMs) == LATER_MS;
  }

  /** To be called by a processor that had more to do for a timer than its one key. */
  void alsoDid(int keys) {
    left -= keys;
  }

  /** Sets a timer of the key at hand, which may be the one that fires: of a processor some of whose timers are awaited. */
  void set(long timerMs) {
    handle.registerTimer(timerMs);
    setMs = timerMs;
  }

  /** To be called before the rows of a key are looked at, with nothing of it loaded. What others told, if anything. */
  List<Row> tend(Row key, TimerValues timers) {
    List<Row> told = new ArrayList<>();
    if (!realTime || rows++ % ROWS != 0) return told;
    long watermarkMs = timers.getCurrentWatermarkInMs();
    if (watermarkMs == doneMs) return told;
    if (watermarkMs != guardedMs) guard(watermarkMs);
    NextIterator<Tuple2<Object, Object>> due = due(from, watermarkMs + LATER_MS);
    ImplicitGroupingKeyTracker.removeImplicitKey();
    try {
      for (left = TIMERS; due.hasNext(); left--) {
        if (left <= 0) return told;
        Tuple2<Object, Object> one = due.next();
        fire((Row) one._1(), (Long) one._2(), timers).foreach(told::add);
      }
      doneMs = watermarkMs;
      return told;
    } finally {
      due.closeIfNeeded();
      ImplicitGroupingKeyTracker.setImplicitKey(key);
    }
  }

  private void guard(long watermarkMs) {
    for (long guardMs = watermarkMs + 1; guardMs <= watermarkMs + GUARDS; guardMs++) {
      NextIterator<Tuple2<Object, Object>> there = due(Option.apply(guardMs - 1), guardMs);
      if (!there.hasNext()) handle.registerTimer(guardMs);
      there.closeIfNeeded();
    }
    guardedMs = watermarkMs;
    if (from == null) from = Option.apply(watermarkMs + GUARDS);
  }

  /** Those after one time, until the other. */
  private NextIterator<Tuple2<Object, Object>> due(Option<Object> afterMs, long untilMs) {
    Iterator<Tuple2<Object, Object>> found = handle.getExpiredTimers(untilMs, afterMs);
    return (NextIterator<Tuple2<Object, Object>>) found;
  }

  private Iterator<Row> fire(Row key, long timerMs, TimerValues timers) {
    ImplicitGroupingKeyTracker.setImplicitKey(key);
    setMs = Long.MIN_VALUE;
    try {
      handle.deleteTimer(timerMs); // first: one that is awaited is set again
      return processor.handleExpiredTimer(key, timers, new ExpiredTimerInfoImpl(Option.apply(timerMs)));
    } finally {
      ImplicitGroupingKeyTracker.removeImplicitKey();
      from = Option.apply(setMs == timerMs ? timerMs : timerMs - 1); // what was looked at need not be passed again
    }
  }
}
