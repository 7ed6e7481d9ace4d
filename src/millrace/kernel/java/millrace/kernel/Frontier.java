package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * How far the topics of a database are complete, and where in them a position is.
 *
 * A record says in a header after which commit its change came; within a partition that only grows, and all changes of
 * a transaction have the same. A mark, in a topic of its own, says up to which commit everything can be seen. So what
 * came after an earlier commit than a mark's is whole.
 */
final class Frontier implements AutoCloseable {
  private static final String AFTER = "millrace.after";
  private static final String KAFKA = "kafka.";
  private static final Duration POLL = Duration.ofMillis(200);
  private static final long PATIENCE_NS = 60_000_000_000L;
  /** Of so many offsets at a topic's end marks are read; between them stand those of Kafka's transactions. */
  private static final long MARKS_READ = 40;
  /** So many offsets before an end are looked at first, and then so many times more. */
  private static final long LOOKED_AT = 64;
  private static final long MORE = 8;
  /** Before every commit, and behind what says nothing of one. */
  private static final long FIRST = 1;

  private record Database(List<TopicPartition> marks, Set<String> topics) {}

  private final Map<String, Database> databases = new TreeMap<>();
  private final Properties properties = new Properties();
  private final Map<TopicPartition, Long> ends = new HashMap<>();
  private final Map<TopicPartition, Long> marked = new HashMap<>();
  private KafkaConsumer<byte[], byte[]> consumer;

  Frontier(CaseInsensitiveStringMap options) {
    options.asCaseSensitiveMap().forEach((name, value) -> {
      if (name.toLowerCase().startsWith(KAFKA)) properties.put(name.substring(KAFKA.length()), value);
    });
    properties.put("isolation.level", "read_committed");
    properties.put("enable.auto.commit", "false");
    properties.put("auto.offset.reset", "none");
    // The client asks for what follows before anybody wants it, and has one request on its way to a broker at a time:
    // the next look would wait for as long as that does.
    properties.put("fetch.max.wait.ms", "5");
    properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
    properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
    Json.read(options.get("marks")).fields().forEachRemaining(each -> {
      List<TopicPartition> marks = new ArrayList<>();
      Set<String> topics = new HashSet<>();
      for (JsonNode topic : each.getValue().get("marks")) marks.add(new TopicPartition(topic.asText(), 0));
      for (JsonNode topic : each.getValue().get("topics")) topics.add(topic.asText());
      databases.put(each.getKey(), new Database(marks, topics));
    });
  }

  Collection<String> databases() {
    return databases.keySet();
  }

  /** Where the marks of a database are. */
  List<TopicPartition> marks(String database) {
    return databases.get(database).marks();
  }

  /** Whose topic this is; null if nobody marks it. */
  String database(String topic) {
    return databases.entrySet().stream()
        .filter(each -> each.getValue().topics().contains(topic)).map(Map.Entry::getKey).findFirst().orElse(null);
  }

  /** For a consumer of one's own. */
  Properties properties() {
    Properties copy = new Properties();
    copy.putAll(properties);
    return copy;
  }

  /** Whether marks speak of all these places. */
  boolean marks(Collection<TopicPartition> places) {
    return places.stream().allMatch(place ->
        databases.values().stream().anyMatch(database -> database.topics().contains(place.topic())));
  }

  /** Of these places those that are the database's. */
  Map<TopicPartition, Long> of(String database, Map<TopicPartition, Long> places) {
    Map<TopicPartition, Long> own = new HashMap<>(places);
    own.keySet().removeIf(place -> !databases.get(database).topics().contains(place.topic()));
    return own;
  }

  /** For each database up to which commit everything can be seen; 0 if there is no mark yet. */
  Map<String, Long> reached() {
    try {
      return asked();
    } catch (InterruptException stopped) {
      throw interrupted(stopped);
    }
  }

  /** In words by which Spark knows that a query was stopped, and did not fail. */
  private static RuntimeException interrupted(InterruptException stopped) {
    var told = new InterruptedIOException(stopped.getMessage());
    told.initCause(stopped);
    return new UncheckedIOException(told);
  }

  private Map<String, Long> asked() {
    Map<TopicPartition, Long> begins = new HashMap<>();
    List<TopicPartition> all = databases.values().stream().flatMap(each -> each.marks().stream()).toList();
    Map<TopicPartition, Long> now = reading().endOffsets(all);
    Map<TopicPartition, Long> first = ends.keySet().containsAll(all) ? ends : reading().beginningOffsets(all);
    now.forEach((place, end) -> {
      long begin = Math.max(first.get(place), end - MARKS_READ);
      if (begin < end) begins.put(place, begin);
    });
    read(begins, now).forEach((place, found) -> {
      for (ConsumerRecord<byte[], byte[]> record : found) {
        JsonNode mark = Json.read(new String(record.value(), StandardCharsets.UTF_8));
        if (mark.path("whole").asBoolean(true)) marked.merge(place, mark.get("lsn").asLong(), Math::max);
      }
    });
    ends.putAll(now);
    Map<String, Long> reached = new TreeMap<>();
    databases.forEach((name, database) -> reached.put(
        name, database.marks().stream().mapToLong(place -> marked.getOrDefault(place, 0L)).min().orElse(0)));
    return reached;
  }

  /** The least position of the first records at or behind these places; none there: the highest number. */
  long first(Map<TopicPartition, Long> places, Map<TopicPartition, Long> ends) {
    long least = Long.MAX_VALUE;
    for (Map.Entry<TopicPartition, Long> place : places.entrySet()) {
      long end = ends.get(place.getKey());
      for (long begin = place.getValue(); begin < end; begin += LOOKED_AT) {
        Map<TopicPartition, Long> to = Map.of(place.getKey(), Math.min(begin + LOOKED_AT, end));
        var found = read(Map.of(place.getKey(), begin), to).get(place.getKey());
        if (found.isEmpty()) continue;
        least = Math.min(least, Math.max(after(found.get(0)), FIRST));
        break;
      }
    }
    return least;
  }

  /** For each place where the changes begin that came after the position or later; its end if there are none. */
  Map<TopicPartition, Long> before(long position, Map<TopicPartition, Long> starts, Map<TopicPartition, Long> ends) {
    Map<TopicPartition, Long> found = new HashMap<>(ends);
    Map<TopicPartition, Long> begins = new HashMap<>();
    if (position <= 0) {
      starts.forEach((place, start) -> found.computeIfPresent(place, (unused, end) -> start));
      return found;
    }
    for (Map.Entry<TopicPartition, Long> each : ends.entrySet()) {
      long start = starts.getOrDefault(each.getKey(), 0L);
      if (start < each.getValue()) begins.put(each.getKey(), Math.max(start, each.getValue() - LOOKED_AT));
    }
    for (long width = LOOKED_AT * MORE; !begins.isEmpty(); width *= MORE) {
      Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> read = read(begins, ends);
      Map<TopicPartition, Long> further = new HashMap<>();
      for (Map.Entry<TopicPartition, Long> each : begins.entrySet()) {
        TopicPartition place = each.getKey();
        long start = starts.getOrDefault(place, 0L);
        boolean isAll = each.getValue() <= start;
        boolean isSure = isAll;
        for (ConsumerRecord<byte[], byte[]> record : read.get(place)) {
          if (after(record) >= position) {
            found.put(place, record.offset());
            break;
          }
          isSure |= after(record) > 0; // what stands before this one came before it
        }
        if (!isSure) further.put(place, Math.max(start, ends.get(place) - width));
      }
      begins = further;
    }
    return found;
  }

  /** Rows of a snapshot, and deletes that a repair wrote, say nothing: they belong to no transaction. */
  static long after(ConsumerRecord<byte[], byte[]> record) {
    Header header = record.headers().lastHeader(AFTER);
    return header == null ? 0 : Long.parseLong(new String(header.value(), StandardCharsets.UTF_8));
  }

  private Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> read(
      Map<TopicPartition, Long> begins, Map<TopicPartition, Long> ends) {
    Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> found = new HashMap<>();
    begins.keySet().forEach(place -> found.put(place, new ArrayList<>()));
    if (begins.isEmpty()) return found;
    try {
      return read(begins, ends, found);
    } catch (InterruptException stopped) {
      throw interrupted(stopped);
    }
  }

  private Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> read(
      Map<TopicPartition, Long> begins,
      Map<TopicPartition, Long> ends,
      Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> found) {
    KafkaConsumer<byte[], byte[]> reading = reading();
    reading.assign(begins.keySet());
    reading.resume(begins.keySet()); // a partition that is assigned once more is still paused
    begins.forEach(reading::seek);
    Set<TopicPartition> open = new HashSet<>(begins.keySet());
    for (long began = System.nanoTime(); !open.isEmpty();) {
      for (ConsumerRecord<byte[], byte[]> record : reading.poll(POLL)) {
        TopicPartition place = new TopicPartition(record.topic(), record.partition());
        if (record.offset() < ends.get(place)) found.get(place).add(record);
      }
      Set<TopicPartition> done = new HashSet<>();
      for (TopicPartition place : open) if (reading.position(place) >= ends.get(place)) done.add(place);
      open.removeAll(done);
      reading.pause(done);
      if (System.nanoTime() - began > PATIENCE_NS) throw new IllegalStateException("Kafka does not give the records of " + open);
    }
    return found;
  }

  /** Made when it is needed, in the thread that plans epochs, and used there only. */
  private KafkaConsumer<byte[], byte[]> reading() {
    if (consumer == null) consumer = new KafkaConsumer<>(properties);
    return consumer;
  }

  @Override
  public void close() {
    try {
      if (consumer != null) consumer.close(Duration.ZERO);
    } catch (InterruptException stopped) {
      // It is closed, and whoever stops the query has interrupted this thread.
    }
  }
}
