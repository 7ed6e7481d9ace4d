package millrace.kernel;

import java.io.IOException;
import java.util.concurrent.atomic.LongAdder;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/**
 * Kafka's stream; its readers look, while they wait for a record, whether their epoch is to end. It leaves out Kafka's
 * metrics, for which Spark would ask the broker once more at each end, while rows wait.
 */
final class PromptStream
    implements MicroBatchStream, SupportsRealTimeMode, SupportsTriggerAvailableNow {
  /** How long a reader waits for a record before it looks. */
  private static final long LOOK_MS = 100;

  private final MicroBatchStream kafka;
  private final FirstEpochs first;
  private final long epochMs;

  /** `epochMs`: how long an epoch may be, if that is less than Spark's own time. */
  PromptStream(MicroBatchStream kafka, FirstEpochs first, long epochMs) {
    this.kafka = kafka;
    this.first = first;
    this.epochMs = epochMs;
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    PartitionReaderFactory readers = kafka.createReaderFactory();
    long mostMs = Math.min(first.mostMs(), epochMs);
    return (PartitionReaderFactory & java.io.Serializable)
        partition -> new Reader(readers.createReader(partition), mostMs);
  }

  private static final class Reader implements SupportsRealTimeRead<InternalRow> {
    private final SupportsRealTimeRead<InternalRow> kafka;
    private final Ending ending = Ending.ofTask();
    private final LongAdder taken = Taken.ofTask();
    private final long mostMs;
    private final long made = System.nanoTime();

    @SuppressWarnings("unchecked")
    Reader(PartitionReader<InternalRow> kafka, long mostMs) {
      this.kafka = (SupportsRealTimeRead<InternalRow>) kafka;
      this.mostMs = mostMs;
    }

    @Override
    public RecordStatus nextWithTimeout(Long startMs, Long timeoutMs) throws IOException {
      long beganMs = passedMs();
      long endMs = Math.min(mostMs, beganMs + timeoutMs);
      for (long nowMs = beganMs; nowMs < endMs && !ending.asked(); nowMs = passedMs()) {
        RecordStatus status = kafka.nextWithTimeout(startMs, Math.min(endMs - nowMs, LOOK_MS));
        if (status.hasRecord()) {
          taken.increment();
          return status;
        }
      }
      return RecordStatus.newStatusWithoutArrivalTime(false);
    }

    private long passedMs() {
      return (System.nanoTime() - made) / 1_000_000;
    }

    @Override public boolean next() throws IOException { return kafka.next(); }
    @Override public InternalRow get() { return kafka.get(); }
    @Override public PartitionOffset getOffset() { return kafka.getOffset(); }
    @Override public CustomTaskMetric[] currentMetricsValues() { return kafka.currentMetricsValues(); }
    @Override public void close() throws IOException { kafka.close(); }
  }

  private SupportsRealTimeMode realTime() { return (SupportsRealTimeMode) kafka; }
  private SupportsTriggerAvailableNow limited() { return (SupportsTriggerAvailableNow) kafka; }

  @Override public void prepareForRealTimeMode() { realTime().prepareForRealTimeMode(); }
  @Override public InputPartition[] planInputPartitions(Offset start) { return realTime().planInputPartitions(start); }
  @Override public Offset mergeOffsets(PartitionOffset[] offsets) { return realTime().mergeOffsets(offsets); }
  @Override public void prepareForTriggerAvailableNow() { limited().prepareForTriggerAvailableNow(); }
  @Override public ReadLimit getDefaultReadLimit() { return limited().getDefaultReadLimit(); }
  @Override public Offset latestOffset(Offset start, ReadLimit limit) { return limited().latestOffset(start, limit); }
  @Override public Offset reportLatestOffset() { return limited().reportLatestOffset(); }
  @Override public Offset latestOffset() { return kafka.latestOffset(); }
  @Override public InputPartition[] planInputPartitions(Offset start, Offset end) { return kafka.planInputPartitions(start, end); }
  @Override public Offset initialOffset() { return kafka.initialOffset(); }
  @Override public Offset deserializeOffset(String json) { return kafka.deserializeOffset(json); }
  @Override public void commit(Offset end) { kafka.commit(end); }
  @Override public void stop() { kafka.stop(); }
  @Override public String toString() { return kafka.toString(); }
}
