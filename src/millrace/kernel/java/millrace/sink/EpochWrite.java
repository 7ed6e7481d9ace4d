package millrace.sink;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;

/** One epoch into Kafka: as a query's own sink, or as the batch that `foreachBatch` writes, which says its `epoch`. */
final class EpochWrite implements Write, BatchWrite, StreamingWrite {
  private static final String EPOCH = "streaming.sql.batchId";

  private final LogicalWriteInfo info;
  private final SinkOptions options;
  private final RowRecords records;

  private EpochWrite(LogicalWriteInfo info) {
    this.info = info;
    options = SinkOptions.of(info.options());
    records = new RowRecords(info.schema(), options.topic());
  }

  record Builder(LogicalWriteInfo info) implements SupportsStreamingUpdateAsAppend {
    @Override
    public Write build() {
      return new EpochWrite(info);
    }
  }

  @Override
  public BatchWrite toBatch() {
    return this;
  }

  @Override
  public StreamingWrite toStreaming() {
    return this;
  }

  /** Of two attempts at a task only one may hand its transaction over. */
  @Override
  public boolean useCommitCoordinator() {
    return true;
  }

  @Override
  public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo tasks) {
    return writers(batchEpoch(), tasks);
  }

  @Override
  public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo tasks) {
    String epoch = SparkSession.active().sparkContext().getLocalProperty(EPOCH); // Spark says it to nobody here
    return writers(Long.parseLong(epoch), tasks);
  }

  private long batchEpoch() {
    String epoch = info.options().get("epoch");
    if (epoch == null) throw new IllegalArgumentException("a transactional write of a batch needs the option epoch");
    return Long.parseLong(epoch);
  }

  private Delivery delivery() {
    return Delivery.of(SparkSession.active(), options);
  }

  private TaskWriters writers(long epoch, PhysicalWriteInfo tasks) {
    try {
      return new TaskWriters(delivery().plan(SparkSession.active(), epoch, tasks.numPartitions()), records, epoch);
    } catch (IOException failure) {
      throw new UncheckedIOException(failure);
    }
  }

  @Override
  public void commit(WriterCommitMessage[] written) {
    commit(batchEpoch(), written);
  }

  @Override
  public void commit(long epoch, WriterCommitMessage[] written) {
    try {
      delivery().commit(epoch, told(written));
    } catch (IOException failure) {
      throw new UncheckedIOException(failure);
    }
  }

  @Override
  public void abort(WriterCommitMessage[] written) {
    abort(batchEpoch(), written);
  }

  @Override
  public void abort(long epoch, WriterCommitMessage[] written) {
    delivery().abort(epoch, told(written));
  }

  /** Of an epoch that failed, those that came. */
  private static List<TaskWriter.Written> told(WriterCommitMessage[] written) {
    List<TaskWriter.Written> all = new ArrayList<>();
    for (WriterCommitMessage each : written) if (each != null) all.add((TaskWriter.Written) each);
    return all;
  }
}
