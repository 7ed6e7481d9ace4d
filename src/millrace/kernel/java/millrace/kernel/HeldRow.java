package millrace.kernel;

/** The state of a key: its row, and the place of the record that last said so. Checkpoints hold these fields. */
public final class HeldRow {
  private byte[] row;
  private int partition;
  private long offset;

  public HeldRow() {}

  HeldRow(byte[] row, int partition, long offset) {
    this.row = row;
    this.partition = partition;
    this.offset = offset;
  }

  public byte[] getRow() { return row; }
  public void setRow(byte[] row) { this.row = row; }

  public int getPartition() { return partition; }
  public void setPartition(int partition) { this.partition = partition; }

  public long getOffset() { return offset; }
  public void setOffset(long offset) { this.offset = offset; }
}
