package millrace.kernel;

/** One record of a captured topic, as it is read; its topic and key are the group's. */
public final class LogRecord {
  private byte[] value;
  private int partition;
  private long offset;
  private Long timestampUs;

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
