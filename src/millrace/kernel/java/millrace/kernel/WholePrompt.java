package millrace.kernel;

import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/**
 * Kafka's stream in real time, whose epochs end where transactions do: the same cuts as those of `WholeStream`, so that a
 * query goes on with the other at any start.
 *
 * Spark ends an epoch when its own time is over, wherever its readers then are. So it is told a time that never comes, and
 * the readers end the epoch by themselves (see Together).
 */
final class WholePrompt implements MicroBatchStream, SupportsRealTimeMode, SupportsTriggerAvailableNow {
  private static final String EPOCH = "streaming.sql.batchId";

  /** A partition and where to go on in it; null: from its beginning. */
  record Part(String topic, int partition, Long from) implements InputPartition {
    TopicPartition place() { return new TopicPartition(topic, partition); }
  }

  /** Where a reader ended, and at which position of which database, if it is of one. */
  record Reached(String topic, int partition, long offset, String database, long lsn) implements PartitionOffset {}

  private final MicroBatchStream kafka;
  private final Together together;
  private final FirstEpochs first;
  private final long epochMs;
  private Cut from;

  WholePrompt(MicroBatchStream kafka, Together together, FirstEpochs first, long epochMs) {
    this.kafka = kafka;
    this.together = together;
    this.first = first;
    this.epochMs = epochMs;
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    Cut cut = (Cut) start;
    return new Cut(Cut.offsets(limited().latestOffset(cut.kafka(kafka), ReadLimit.allAvailable())), cut.positions());
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start) {
    from = (Cut) start;
    Map<TopicPartition, Long> all = Cut.offsets(limited().latestOffset(from.kafka(kafka), ReadLimit.allAvailable()));
    together.from(new Cut(all, from.positions()));
    return all.keySet().stream()
        .map(place -> new Part(place.topic(), place.partition(), from.offsets().get(place)))
        .toArray(InputPartition[]::new);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    String epoch = SparkContext.getOrCreate().getLocalProperty(EPOCH);
    together.begin(epoch == null ? -1 : Long.parseLong(epoch), Math.min(first.mostMs(), epochMs));
    String name = together.name;
    return (PartitionReaderFactory & Serializable) part -> new WholeReader((Part) part, Together.of(name));
  }

  @Override
  public Offset mergeOffsets(PartitionOffset[] reached) {
    Map<TopicPartition, Long> offsets = new HashMap<>();
    Map<String, Long> positions = new TreeMap<>(from.positions());
    Map<String, Long> told = new HashMap<>();
    for (PartitionOffset each : reached) {
      Reached end = (Reached) each;
      offsets.put(new TopicPartition(end.topic(), end.partition()), end.offset());
      if (end.database() == null) continue;
      Long other = told.put(end.database(), end.lsn());
      if (other != null && other != end.lsn()) throw new IllegalStateException("an epoch ended at two positions");
      positions.merge(end.database(), end.lsn(), Math::max);
    }
    return new Cut(offsets, positions);
  }

  @Override
  public void stop() {
    try {
      together.close();
    } finally {
      kafka.stop();
    }
  }

  private SupportsTriggerAvailableNow limited() { return (SupportsTriggerAvailableNow) kafka; }

  @Override public void prepareForRealTimeMode() { ((SupportsRealTimeMode) kafka).prepareForRealTimeMode(); }
  @Override public void prepareForTriggerAvailableNow() { throw new UnsupportedOperationException("in real time"); }
  @Override public ReadLimit getDefaultReadLimit() { return limited().getDefaultReadLimit(); }
  @Override public Offset reportLatestOffset() { return limited().reportLatestOffset(); }
  @Override public Offset latestOffset() { throw new UnsupportedOperationException("an epoch has a limit"); }
  @Override public Offset initialOffset() { return new Cut(Cut.offsets(kafka.initialOffset()), Map.of()); }
  @Override public Offset deserializeOffset(String json) { return Cut.of(json); }
  @Override public void commit(Offset end) { kafka.commit(((Cut) end).kafka(kafka)); }
  @Override public String toString() { return kafka.toString(); }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    throw new UnsupportedOperationException("in real time an epoch's end is not known before");
  }
}
