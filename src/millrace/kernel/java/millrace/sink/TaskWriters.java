package millrace.sink;

import java.io.Serializable;
import java.util.HashMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;

/** Goes to the executors with everything that a task of an epoch has to know. */
record TaskWriters(Plan plan, RowRecords records, long batchEpoch)
    implements DataWriterFactory, StreamingDataWriterFactory {
  /**
   * How an epoch is written, by the driver `owner`. One that is delivered already is computed for Spark's sake, and its
   * rows are discarded. `settled` are the transactions that the driver committed last, by their ids.
   */
  record Plan(
      SinkOptions options,
      String owner,
      long timeoutMs,
      boolean discard,
      HashMap<String, Producers.Settled> settled)
      implements Serializable {}

  @Override
  public DataWriter<InternalRow> createWriter(int partition, long task) {
    return new TaskWriter(plan, records, partition, batchEpoch);
  }

  @Override
  public DataWriter<InternalRow> createWriter(int partition, long task, long epoch) {
    return new TaskWriter(plan, records, partition, epoch);
  }
}
