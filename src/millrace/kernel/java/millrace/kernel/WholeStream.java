package millrace.kernel;

import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/**
 * Kafka's stream, cut where transactions end.
 *
 * What holds: an epoch has, of every database (`Frontier`), exactly the changes of the transactions that committed up to
 * a position, and says which: beside the topics' offsets stands `"@database": {"lsn": …}`. A position never goes back. An
 * epoch is as large as Spark's limit says, unless no transaction ends there; then it is larger.
 */
final class WholeStream implements MicroBatchStream, SupportsTriggerAvailableNow {
  /** An epoch without changes, which only says that the view is true up to a later position, is not made more often. */
  private static final long IDLE_NS = 4_000_000_000L;
  /** Where no transaction ends within the limit, so many times as many records are looked at. */
  private static final long MORE = 8;

  private final MicroBatchStream kafka;
  private final Frontier frontier;
  private final String view;
  /** With availableNow: how far all were complete when the query began. */
  private Map<String, Long> reachedThen;
  /** How far all were complete when everything of it was given to an epoch; null if that was not so. */
  private Map<String, Long> given;
  private long saidNs = System.nanoTime() - IDLE_NS;

  WholeStream(MicroBatchStream kafka, Frontier frontier, String view) {
    this.kafka = kafka;
    this.frontier = frontier;
    this.view = view;
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    Cut from = (Cut) start;
    // In this order: what a mark speaks of can be seen when the ends are asked for.
    Map<String, Long> reached = reachedThen == null ? frontier.reached() : reachedThen;
    boolean isIdle = reachedThen == null && reached.equals(given) && frontier.marks(from.offsets().keySet());
    if (isIdle && (!isDue(from, reached) || from.positions().equals(reached))) return from; // which costs the broker one question
    Map<TopicPartition, Long> all = Cut.offsets(limited().latestOffset(from.kafka(kafka), ReadLimit.allAvailable()));
    Map<TopicPartition, Long> most = most(from, limit, all);
    Cut cut = cut(from, reached, most, all);
    for (long rows = rows(limit); cut.offsets().equals(from.offsets()) && !most.equals(all);) {
      rows = rows < Long.MAX_VALUE / MORE ? rows * MORE : Long.MAX_VALUE;
      most = most(from, ReadLimit.maxRows(rows), all);
      cut = cut(from, reached, most, all);
    }
    given = most.equals(all) ? reached : null;
    boolean isNews = !cut.positions().equals(from.positions()) && (reachedThen != null || isDue(from, cut.positions()));
    if (cut.offsets().equals(from.offsets()) && !isNews) return from;
    saidNs = System.nanoTime();
    return cut;
  }

  private boolean isDue(Cut from, Map<String, Long> now) {
    if (System.nanoTime() - saidNs >= IDLE_NS) return true;
    return now.entrySet().stream().anyMatch(
        each -> Wanted.is(view, from.positions().getOrDefault(each.getKey(), 0L), each.getValue()));
  }

  private static long rows(ReadLimit limit) {
    return limit instanceof ReadMaxRows most ? most.maxRows() : Long.MAX_VALUE;
  }

  private Map<TopicPartition, Long> most(Cut from, ReadLimit limit, Map<TopicPartition, Long> all) {
    Map<TopicPartition, Long> found = Cut.offsets(limited().latestOffset(from.kafka(kafka), limit));
    found.replaceAll((place, end) -> Math.min(end, all.getOrDefault(place, end)));
    return found;
  }

  private Cut cut(Cut from, Map<String, Long> reached, Map<TopicPartition, Long> most, Map<TopicPartition, Long> all) {
    Map<TopicPartition, Long> ends = new HashMap<>(most);
    Map<String, Long> positions = new TreeMap<>();
    for (String database : frontier.databases()) {
      long before = from.positions().getOrDefault(database, 0L);
      Map<TopicPartition, Long> own = frontier.of(database, most);
      long position = Math.max(before, reached.getOrDefault(database, 0L));
      Map<TopicPartition, Long> left = new HashMap<>();
      own.forEach((place, end) -> { if (end < all.get(place)) left.put(place, end); });
      position = Math.max(before, Math.min(position, frontier.first(left, all)));
      ends.putAll(frontier.before(position, from.offsets(), own));
      positions.put(database, position);
    }
    return new Cut(ends, positions);
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    reachedThen = frontier.reached();
    limited().prepareForTriggerAvailableNow();
  }

  @Override
  public void stop() {
    try {
      frontier.close();
    } finally {
      kafka.stop();
    }
  }

  private SupportsTriggerAvailableNow limited() { return (SupportsTriggerAvailableNow) kafka; }

  @Override public Offset initialOffset() { return new Cut(Cut.offsets(kafka.initialOffset()), Map.of()); }
  @Override public Offset deserializeOffset(String json) { return Cut.of(json); }
  @Override public Offset latestOffset() { throw new UnsupportedOperationException("an epoch has a limit"); }
  @Override public Offset reportLatestOffset() { return limited().reportLatestOffset(); }
  @Override public ReadLimit getDefaultReadLimit() { return limited().getDefaultReadLimit(); }
  @Override public PartitionReaderFactory createReaderFactory() { return kafka.createReaderFactory(); }
  @Override public void commit(Offset end) { kafka.commit(((Cut) end).kafka(kafka)); }
  @Override public String toString() { return kafka.toString(); }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    return kafka.planInputPartitions(((Cut) start).kafka(kafka), ((Cut) end).kafka(kafka));
  }
}
