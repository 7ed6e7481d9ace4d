package millrace.kernel;

/** What a table's row is known by: its topic and the record's key, both as the bytes of their text. */
public final class RecordKey {
  /** Before the name of a topic whose records are no changes of a table, but events: no topic's own name begins so. */
  private static final byte EVENTS = '+';

  private byte[] topic;
  private byte[] key;

  public byte[] getTopic() { return topic; }
  public void setTopic(byte[] topic) { this.topic = topic; }

  /** Null for a record without a key. */
  public byte[] getKey() { return key; }
  public void setKey(byte[] key) { this.key = key; }

  /** Not `is…`, which a bean's properties are called. */
  static boolean ofEvents(RecordKey key) {
    return key.topic != null && key.topic.length > 0 && key.topic[0] == EVENTS;
  }
}
