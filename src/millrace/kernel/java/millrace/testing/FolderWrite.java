package millrace.testing;

import java.util.ArrayList;
import java.util.List;
import millrace.kernel.Times;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;

/** Writes an epoch, or a batch, to a log in a folder: all of it when its tasks have ended; or meets a test's fault. */
final class FolderWrite implements Write, BatchWrite, StreamingWrite {
  static final String BEFORE = "before write";
  static final String AFTER = "after write";
  private static final String DEAD = ".dead";
  private static final String CRASHED = "a play crashes ";

  private final LogicalWriteInfo info;

  private FolderWrite(LogicalWriteInfo info) {
    this.info = info;
  }

  record Builder(LogicalWriteInfo info) implements SupportsStreamingUpdateAsAppend {
    @Override
    public Write build() {
      return new FolderWrite(info);
    }
  }

  private record Written(List<LogLine> records) implements WriterCommitMessage {}

  private record Factory(StructType schema, String topic) implements DataWriterFactory, StreamingDataWriterFactory {
    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task) {
      return new Writer(schema, topic);
    }

    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task, long epoch) {
      return new Writer(schema, topic);
    }
  }

  private static final class Writer implements DataWriter<InternalRow> {
    private final StructType schema;
    private final List<String> names;
    private final String topic;
    private final List<LogLine> records = new ArrayList<>();

    Writer(StructType schema, String topic) {
      this.schema = schema;
      this.names = List.of(schema.fieldNames());
      this.topic = topic;
    }

    @Override
    public void write(InternalRow row) {
      int named = names.indexOf("topic");
      String to = named < 0 || row.isNullAt(named) ? topic : row.getUTF8String(named).toString();
      records.add(new LogLine(to, bytes(row, "key"), bytes(row, "value"), headers(row)));
    }

    private byte[] bytes(InternalRow row, String name) {
      int place = names.indexOf(name);
      if (place < 0 || row.isNullAt(place)) return null;
      boolean text = schema.apply(place).dataType() instanceof StringType;
      return text ? row.getUTF8String(place).getBytes() : row.getBinary(place);
    }

    private List<LogLine.Header> headers(InternalRow row) {
      List<LogLine.Header> found = new ArrayList<>();
      int place = names.indexOf("headers");
      if (place < 0 || row.isNullAt(place)) return found;
      ArrayData all = row.getArray(place);
      for (int number = 0; number < all.numElements(); number++) {
        InternalRow header = all.getStruct(number, 2);
        byte[] value = header.isNullAt(1) ? null : header.getBinary(1);
        found.add(new LogLine.Header(header.getUTF8String(0).toString(), value));
      }
      return found;
    }

    @Override
    public WriterCommitMessage commit() {
      return new Written(List.copyOf(records));
    }

    @Override
    public void abort() {}

    @Override
    public void close() {}
  }

  @Override
  public BatchWrite toBatch() {
    return this;
  }

  @Override
  public StreamingWrite toStreaming() {
    return this;
  }

  @Override
  public boolean useCommitCoordinator() {
    return false;
  }

  @Override
  public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo unused) {
    return new Factory(info.schema(), info.options().get("topic"));
  }

  @Override
  public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo unused) {
    return new Factory(info.schema(), info.options().get("topic"));
  }

  @Override
  public void commit(long epoch, WriterCommitMessage[] written) {
    commit(written);
  }

  @Override
  public void commit(WriterCommitMessage[] written) {
    LogFolder folder = new LogFolder(info.options().get("folder"));
    List<LogLine> records = new ArrayList<>();
    for (WriterCommitMessage each : written) if (each != null) records.addAll(((Written) each).records());
    boolean dead = !records.isEmpty() && records.stream().allMatch(record -> record.topic().endsWith(DEAD));
    String fault = dead ? "" : folder.fault(); // dead letters are no part of an epoch
    if (fault.equals(BEFORE)) throw new IllegalStateException(CRASHED + fault);
    folder.append(records, Times.now(info.options().get("time")));
    if (fault.equals(AFTER)) throw new IllegalStateException(CRASHED + fault);
  }

  @Override
  public void abort(long epoch, WriterCommitMessage[] written) {}

  @Override
  public void abort(WriterCommitMessage[] written) {}
}
