package millrace.kernel;

import java.io.IOException;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/** Kafka's stream; its readers look, while they wait for a record, whether their epoch is to end. */
final class PromptStream
    implements MicroBatchStream, SupportsRealTimeMode, SupportsTriggerAvailableNow, ReportsSourceMetrics {
  /** How long a reader waits for a record before it looks. */
  private static final long LOOK_MS = 100;

  private final MicroBatchStream kafka;

  PromptStream(MicroBatchStream kafka) {
    this.kafka = kafka;
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    PartitionReaderFactory readers = kafka.createReaderFactory();
    return (PartitionReaderFactory & java.io.Serializable) partition -> new Reader(readers.createReader(partition));
  }

  private static final class Reader implements SupportsRealTimeRead<InternalRow> {
    private final SupportsRealTimeRead<InternalRow> kafka;
    private final Ending ending = Ending.ofTask();

    @SuppressWarnings("unchecked")
    Reader(PartitionReader<InternalRow> kafka) {
      this.kafka = (SupportsRealTimeRead<InternalRow>) kafka;
    }

    @Override
    public RecordStatus nextWithTimeout(Long startMs, Long timeoutMs) throws IOException {
      long leftMs = timeoutMs;
      long began = System.nanoTime();
      while (leftMs > 0 && !ending.asked()) {
        RecordStatus status = kafka.nextWithTimeout(startMs, Math.min(leftMs, LOOK_MS));
        if (status.hasRecord()) return status;
        leftMs = timeoutMs - (System.nanoTime() - began) / 1_000_000;
      }
      return RecordStatus.newStatusWithoutArrivalTime(false);
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

  @Override
  public Map<String, String> metrics(Optional<Offset> latest) {
    return ((ReportsSourceMetrics) kafka).metrics(latest);
  }
}
