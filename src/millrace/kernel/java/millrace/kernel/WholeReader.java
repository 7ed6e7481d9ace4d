package millrace.kernel;

import java.io.IOException;
import java.io.InterruptedIOException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** A partition in real time, in the columns of Spark's Kafka source; see Together for what it gives, and where it ends. */
final class WholeReader implements SupportsRealTimeRead<InternalRow> {
  private static final StructType COLUMNS = new StructType()
      .add("key", DataTypes.BinaryType)
      .add("value", DataTypes.BinaryType)
      .add("topic", DataTypes.StringType)
      .add("partition", DataTypes.IntegerType)
      .add("offset", DataTypes.LongType)
      .add("timestamp", DataTypes.TimestampType)
      .add("timestampType", DataTypes.IntegerType);
  /** How long a reader waits before it looks whether the epoch is to end, and how long when it is to. */
  private static final long LOOK_MS = 50;
  private static final long LAST_MS = 5;

  private final TopicPartition place;
  private final Together together;
  private final String database;
  private final Tap tap;
  private final Ending ending = Ending.ofTask();
  private final UTF8String topic;
  private final UnsafeProjection projection = UnsafeProjection.create(COLUMNS);
  private InternalRow row;
  private WholePrompt.Reached reached;

  WholeReader(WholePrompt.Part part, Together together) {
    this.together = together;
    place = part.place();
    topic = UTF8String.fromString(part.topic());
    database = together.database(place);
    tap = together.tap(place);
    tap.from(part.from());
  }

  @Override
  public RecordStatus nextWithTimeout(Long startMs, Long timeoutMs) throws IOException {
    try {
      while (reached == null) {
        if (database == null ? unmarked() : marked()) return RecordStatus.newStatusWithoutArrivalTime(true);
      }
      return RecordStatus.newStatusWithoutArrivalTime(false);
    } catch (InterruptException | InterruptedException stopped) {
      var told = new InterruptedIOException(stopped.getMessage());
      told.initCause(stopped);
      throw told;
    }
  }

  /** One look; whether there is a row. */
  private boolean marked() throws InterruptedException {
    Together.Limit limit = together.limit(database, ending.asked());
    boolean isAll = limit != null && tap.offset() >= limit.ends().getOrDefault(place, 0L);
    ConsumerRecord<byte[], byte[]> next = isAll ? null : tap.next(limit == null ? waitMs() : LAST_MS);
    if (next != null && Frontier.after(next) < together.upTo(database)) return given(next);
    if (isAll || (next != null && limit != null)) ends(limit.lsn());
    else if (next != null) together.await(database, Frontier.after(next), waitMs());
    return false;
  }

  private boolean unmarked() {
    ConsumerRecord<byte[], byte[]> next = tap.next(waitMs());
    if (next != null && !isOver()) return given(next);
    if (isOver()) ends(0);
    return false;
  }

  private boolean isOver() {
    return ending.asked() || together.leftMs() == 0;
  }

  private long waitMs() {
    return Math.min(LOOK_MS, together.leftMs());
  }

  private void ends(long lsn) {
    reached = new WholePrompt.Reached(place.topic(), place.partition(), tap.offset(), database, lsn);
  }

  private boolean given(ConsumerRecord<byte[], byte[]> record) {
    row = projection.apply(new GenericInternalRow(new Object[] {
        record.key(), record.value(), topic, record.partition(), record.offset(), record.timestamp() * 1_000,
        record.timestampType().id}));
    tap.taken();
    return true;
  }

  @Override public boolean next() { throw new UnsupportedOperationException("in real time there is no end"); }
  @Override public InternalRow get() { return row; }

  @Override
  public PartitionOffset getOffset() {
    if (reached == null) throw new IllegalStateException("an epoch was ended elsewhere than where a transaction ends");
    return reached;
  }

  @Override
  public void close() {
    if (reached == null) together.forget(tap);
  }
}
