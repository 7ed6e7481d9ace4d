package millrace.kernel;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.SparkDataStream;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import org.apache.spark.sql.streaming.SourceProgress;
import org.apache.spark.sql.streaming.StreamingQueryProgress;
import scala.collection.immutable.VectorMap;
import scala.jdk.javaapi.CollectionConverters;

/**
 * How many records an epoch of a query reads of a source that has a limit. What holds: a backlog is read in epochs that
 * take about as long as they should, whatever a record costs, and the limit changes only where it was met. Offsets are
 * written before an epoch begins, so that one that is done again is the same.
 */
public final class Pace {
  private static final long LEAST = 1_000;
  private static final long MOST = 250_000;
  /** An epoch that took longer is followed by smaller ones, one that took less than half of it by larger ones. */
  private static final long LONG_MS = 10_000;

  private static final Map<MicroBatchExecution, Pace> PACES = Collections.synchronizedMap(new WeakHashMap<>());

  private long seenEpoch = -1;

  /** Called while an epoch is planned, with its offsets chosen already: what changes, changes for the next one. */
  static void adapt(MicroBatchExecution query) {
    PACES.computeIfAbsent(query, unused -> new Pace()).step(query);
  }

  private void step(MicroBatchExecution query) {
    StreamingQueryProgress last = query.lastProgress();
    if (last == null || last.batchId() <= seenEpoch || !last.durationMs().containsKey("addBatch")) return;
    seenEpoch = last.batchId();
    long tookMs = last.durationMs().get("triggerExecution");
    long most = 0;
    for (SourceProgress source : last.sources()) most = Math.max(most, source.numInputRows());
    // In the order of before: Spark asks the sources how far they go in it, and lookups ask for events first.
    Map<SparkDataStream, ReadLimit> limits = new LinkedHashMap<>();
    query.uniqueSources().foreachEntry((source, limit) -> limits.put(source, limit));
    long met = most;
    limits.replaceAll((source, limit) ->
        limit instanceof ReadMaxRows rows ? ReadLimit.maxRows(next(rows.maxRows(), met, tookMs)) : limit);
    query.uniqueSources_$eq(VectorMap.from(CollectionConverters.asScala(limits)));
  }

  /** The limit after an epoch that had this one, read so many rows and took so long. */
  public static long next(long limit, long rows, long tookMs) {
    if (tookMs > LONG_MS && rows > LEAST) return Math.min(limit, Math.max(LEAST, rows * LONG_MS / tookMs));
    boolean met = rows >= limit * 9 / 10;
    return met && tookMs < LONG_MS / 2 ? Math.max(limit, Math.min(MOST, limit * 2)) : limit;
  }
}
