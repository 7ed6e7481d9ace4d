package millrace.kernel;

/** What a table's row is known by: its topic and the record's key, both as the bytes of their text. */
public final class RecordKey {
  private byte[] topic;
  private byte[] key;

  public byte[] getTopic() { return topic; }
  public void setTopic(byte[] topic) { this.topic = topic; }

  /** Null for a record without a key. */
  public byte[] getKey() { return key; }
  public void setKey(byte[] key) { this.key = key; }
}
