package millrace.kernel;

import java.util.Comparator;
import org.apache.spark.sql.Row;

/** One record of a captured topic, as it is read; its topic and key are the group's. */
public final class LogRecord {
  static final Comparator<LogRecord> PLACE =
      Comparator.comparingInt(LogRecord::getPartition).thenComparingLong(LogRecord::getOffset);

  private byte[] value;
  private int partition;
  private long offset;
  private Long timestampUs;

  /** From (key, value, partition, offset). */
  static LogRecord of(Row row) {
    LogRecord record = new LogRecord();
    record.value = row.getAs(1);
    record.partition = row.getInt(2);
    record.offset = row.getLong(3);
    return record;
  }

  /** Null for a tombstone. */
  public byte[] getValue() { return value; }
  public void setValue(byte[] value) { this.value = value; }

  public int getPartition() { return partition; }
  public void setPartition(int partition) { this.partition = partition; }

  public long getOffset() { return offset; }
  public void setOffset(long offset) { this.offset = offset; }

  public Long getTimestampUs() { return timestampUs; }
  public void setTimestampUs(Long timestampUs) { this.timestampUs = timestampUs; }
}
