package millrace.kernel;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/**
 * What the readers of a real-time query know together, so that an epoch ends at one position in all of their topics.
 *
 * What holds: a reader gives a record only when a mark says that its transaction is whole (`upTo`). When an epoch is to
 * end, the first reader to see that fixes, for its database, the last mark that anybody could have known; from then on no
 * one gives what came after it, and each reads to where its partition ended when that was fixed. Readers are tasks in this
 * JVM: on the executors of a cluster there is no such object.
 */
final class Together implements AutoCloseable {
  /** Where an epoch ends: its position, and where each partition of the database ended when it was fixed. */
  record Limit(long lsn, Map<TopicPartition, Long> ends) {}

  private static final Map<String, Together> ALL = new ConcurrentHashMap<>();
  /** Of so many offsets at a topic's end marks are read at first; between them stand those of Kafka's transactions. */
  private static final long MARKS_READ = 40;
  private static final Duration POLL = Duration.ofMillis(200);

  final String name = UUID.randomUUID().toString();
  private final String view;
  private final Frontier frontier;
  private final Map<TopicPartition, String> marks = new HashMap<>();
  private final Map<String, Long> known = new TreeMap<>();
  private final Map<String, Long> before = new TreeMap<>();
  private final Map<String, Limit> limits = new HashMap<>();
  private final Map<TopicPartition, Tap> taps = new ConcurrentHashMap<>();
  private Map<TopicPartition, Long> places = Map.of();
  private KafkaConsumer<byte[], byte[]> asking;
  private Thread listening;
  private RuntimeException failure;
  private long epoch = -1;
  private long endNs;
  private volatile boolean ended;

  Together(Frontier frontier, String view) {
    this.frontier = frontier;
    this.view = view;
    frontier.databases().forEach(database -> frontier.marks(database).forEach(place -> marks.put(place, database)));
    ALL.put(name, this);
  }

  static Together of(String name) {
    Together found = ALL.get(name);
    if (found == null) throw new IllegalStateException("the readers of a view in real time are not in its driver's process");
    return found;
  }

  /** On the driver, while an epoch is planned, maybe more than once. */
  synchronized void begin(long number, long lengthMs) {
    if (number == epoch) return;
    epoch = number;
    limits.clear();
    endNs = System.nanoTime() + lengthMs * 1_000_000;
  }

  /** From where an epoch goes on; a position never goes back. */
  synchronized void from(Cut cut) {
    places = cut.offsets();
    before.clear();
    before.putAll(cut.positions());
    cut.positions().forEach((database, lsn) -> known.merge(database, lsn, Math::max));
    if (listening == null && !marks.isEmpty()) {
      listening = new Thread(this::listen, "marks of " + view);
      listening.setDaemon(true);
      listening.start();
    }
  }

  String database(TopicPartition place) {
    return frontier.database(place.topic());
  }

  Tap tap(TopicPartition place) {
    return taps.computeIfAbsent(place, unused -> new Tap(place, consumer(500)));
  }

  /** One that a task left in the middle of something. */
  void forget(Tap tap) {
    taps.remove(tap.place, tap);
    tap.close();
  }

  long leftMs() {
    return Math.max((endNs - System.nanoTime()) / 1_000_000, 0);
  }

  /** Up to which position records may be given now. */
  synchronized long upTo(String database) {
    if (failure != null) throw failure;
    Limit limit = limits.get(database);
    return limit == null ? known.getOrDefault(database, 0L) : limit.lsn();
  }

  /** Null as long as the epoch goes on: until its time is over, the query stops, or somebody waits for its position. */
  synchronized Limit limit(String database, boolean isAsked) {
    Limit found = limits.get(database);
    long now = known.getOrDefault(database, 0L);
    boolean isDue = isAsked || leftMs() == 0 || Wanted.is(view, before.getOrDefault(database, 0L), now);
    if (found != null || !isDue) return found;
    if (asking == null) asking = consumer(5);
    // In this order: what a mark speaks of can be seen when the ends are asked for.
    Limit made = new Limit(now, asking.endOffsets(frontier.of(database, places).keySet()));
    limits.put(database, made);
    notifyAll();
    return made;
  }

  /** Returns when there is another mark, an epoch's end, or after a while. */
  synchronized void await(String database, long after, long mostMs) throws InterruptedException {
    if (upTo(database) <= after && limits.get(database) == null && mostMs > 0) wait(mostMs);
  }

  private void listen() {
    try (KafkaConsumer<byte[], byte[]> consumer = consumer(500)) {
      consumer.assign(marks.keySet());
      Map<TopicPartition, Long> first = consumer.beginningOffsets(marks.keySet());
      consumer.endOffsets(marks.keySet()).forEach(
          (place, end) -> consumer.seek(place, Math.max(first.get(place), end - MARKS_READ)));
      while (!ended) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        consumer.poll(POLL).forEach(found::add);
        if (!found.isEmpty()) heard(found);
      }
    } catch (RuntimeException error) {
      synchronized (this) {
        if (!ended) failure = new IllegalStateException("the marks of " + marks.keySet() + " cannot be read", error);
        notifyAll();
      }
    }
  }

  private synchronized void heard(List<ConsumerRecord<byte[], byte[]>> found) {
    for (ConsumerRecord<byte[], byte[]> record : found) {
      String database = marks.get(new TopicPartition(record.topic(), record.partition()));
      long lsn = Json.read(new String(record.value(), StandardCharsets.UTF_8)).get("lsn").asLong();
      known.merge(database, lsn, Math::max);
    }
    notifyAll();
  }

  private KafkaConsumer<byte[], byte[]> consumer(int waitMs) {
    Properties properties = frontier.properties();
    properties.put("fetch.max.wait.ms", String.valueOf(waitMs));
    return new KafkaConsumer<>(properties);
  }

  @Override
  public synchronized void close() {
    ended = true;
    ALL.remove(name);
    taps.values().forEach(Tap::close);
    taps.clear();
    if (asking != null) asking.close(Duration.ZERO);
    asking = null;
  }
}
