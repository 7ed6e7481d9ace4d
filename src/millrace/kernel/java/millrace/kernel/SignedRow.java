package millrace.kernel;

/** A row that came (+1) or went (-1), with the record that said so; or a record that could not be understood. */
public final class SignedRow {
  private final RecordKey key;
  private final LogRecord record;
  private byte[] row;
  private Integer diff;
  private String op;
  private Long changedAtUs;
  private Long lsn;
  private String error;

  /** Only so that Spark takes this for a bean: it writes these and never reads one. */
  public SignedRow() { this(null, null, null); }

  SignedRow(RecordKey key, LogRecord record, String op) {
    this.key = key;
    this.record = record;
    this.op = op;
  }

  static SignedRow of(RecordKey key, LogRecord record, Envelope envelope, byte[] row, int diff) {
    SignedRow signed = new SignedRow(key, record, envelope.op);
    signed.row = row;
    signed.diff = diff;
    signed.changedAtUs = envelope.changedAtUs;
    signed.lsn = envelope.lsn;
    return signed;
  }

  /** An event is a row that came, and never goes. */
  static SignedRow event(RecordKey key, LogRecord record) {
    SignedRow signed = new SignedRow(key, record, "c");
    signed.row = record.getValue();
    signed.diff = 1;
    return signed;
  }

  static SignedRow refused(RecordKey key, LogRecord record, Envelope envelope, String error) {
    SignedRow signed = new SignedRow(key, record, envelope.op);
    signed.error = error;
    signed.changedAtUs = envelope.changedAtUs;
    signed.lsn = envelope.lsn;
    return signed;
  }

  /** The same change with another row and sign. */
  SignedRow with(byte[] otherRow, int otherDiff) {
    SignedRow signed = new SignedRow(key, record, op);
    signed.row = otherRow;
    signed.diff = otherDiff;
    signed.changedAtUs = changedAtUs;
    signed.lsn = lsn;
    return signed;
  }

  public byte[] getTopic() { return key.getTopic(); }
  public byte[] getKey() { return key.getKey(); }
  public byte[] getRow() { return row; }
  public Integer getDiff() { return diff; }
  public String getOp() { return op; }
  public int getPartition() { return record.getPartition(); }
  public long getOffset() { return record.getOffset(); }
  public Long getTimestampUs() { return record.getTimestampUs(); }
  public Long getChangedAtUs() { return changedAtUs; }
  public Long getLsn() { return lsn; }
  public String getError() { return error; }

  /** The record's value as it came, where it could not be understood. */
  public byte[] getValue() { return error == null ? null : record.getValue(); }

  public void setTopic(byte[] unused) { throw new UnsupportedOperationException(); }
  public void setKey(byte[] unused) { throw new UnsupportedOperationException(); }
  public void setRow(byte[] unused) { throw new UnsupportedOperationException(); }
  public void setDiff(Integer unused) { throw new UnsupportedOperationException(); }
  public void setOp(String unused) { throw new UnsupportedOperationException(); }
  public void setPartition(int unused) { throw new UnsupportedOperationException(); }
  public void setOffset(long unused) { throw new UnsupportedOperationException(); }
  public void setTimestampUs(Long unused) { throw new UnsupportedOperationException(); }
  public void setChangedAtUs(Long unused) { throw new UnsupportedOperationException(); }
  public void setLsn(Long unused) { throw new UnsupportedOperationException(); }
  public void setError(String unused) { throw new UnsupportedOperationException(); }
  public void setValue(byte[] unused) { throw new UnsupportedOperationException(); }
}
