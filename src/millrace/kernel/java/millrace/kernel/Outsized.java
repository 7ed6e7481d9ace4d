package millrace.kernel;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.LongAccumulator;
import org.apache.spark.util.TaskCompletionListener;

/**
 * Takes records out that are larger than their topic takes, before they are sent: a broker that refuses one ends the
 * transaction, or the query, and would again each time. They go to the topic's dead letters with the reason; or, where
 * nothing may be missing, they end the flow. A task has not ended before the broker has the letters, so an epoch that
 * is committed has lost none; one that is repeated may send them again.
 */
public final class Outsized implements Serializable {
  /** What Kafka puts around a record, and a batch around that, at the most. */
  private static final int AROUND_BYTES = 61 + 21;
  /** Of the letters' topic. A broker takes no request that is larger than 100 MiB. */
  static final int LARGEST_BYTES = 100_000_000;
  private static final String PREFIX = "kafka.";
  private static final String COMPRESSION = "compression.type";
  private static final String LARGEST_REQUEST = "max.request.size";
  private static final StructType RECORD = new StructType()
      .add("key", DataTypes.StringType).add("value", DataTypes.StringType).add("topic", DataTypes.StringType);
  private static final Map<String, Count> COUNTS = new ConcurrentHashMap<>();

  private record Count(SparkContext context, LongAccumulator count) {}

  private final String flow;
  private final String inside;
  private final boolean letters;
  private final int besideBytes;
  private final int requestBytes;
  private final HashMap<String, String> kafka = new HashMap<>();
  private final LongAccumulator count;
  private transient Limits limits;
  private transient UTF8String lastTopic;
  private transient String topic;
  private transient volatile Exception failure;
  private transient boolean listening;

  private Outsized(String flow, Map<String, String> options) {
    this.flow = flow;
    inside = options.get("inside");
    letters = Boolean.parseBoolean(options.get("letters"));
    besideBytes = Integer.parseInt(options.get("besideBytes"));
    count = count(flow);
    options.forEach((name, value) -> {
      if (name.startsWith(PREFIX)) kafka.put(name.substring(PREFIX.length()), value);
    });
    requestBytes = Integer.parseInt(kafka.get(LARGEST_REQUEST));
  }

  /**
   * Whether a record, a struct of its key, value and topic, is to be written. `options` are those of Spark's Kafka, and
   * `inside`, what the project's topics begin with; `letters`, whether there are dead letters; `besideBytes`, those of
   * headers.
   */
  public static Column of(Column record, String flow, Map<String, String> options) {
    return Invoked.changing(new Outsized(flow, options), "fits", DataTypes.BooleanType, record, RECORD);
  }

  /** How many records of a flow went to dead letters, since this JVM's session began. */
  public static long counted(String flow) {
    Count found = COUNTS.get(flow);
    return found == null ? 0 : found.count.sum();
  }

  private static LongAccumulator count(String flow) {
    SparkContext context = SparkSession.active().sparkContext();
    return COUNTS.compute(flow, (unused, found) -> found != null && found.context == context
        ? found : new Count(context, context.longAccumulator("too large: " + flow))).count;
  }

  /** Called from Spark's generated code. */
  public boolean fits(InternalRow record) {
    UTF8String key = record.isNullAt(0) ? null : record.getUTF8String(0);
    UTF8String value = record.isNullAt(1) ? null : record.getUTF8String(1);
    if (limits == null) limits = Limits.of(kafka);
    if (!record.getUTF8String(2).equals(lastTopic)) {
      lastTopic = record.getUTF8String(2).clone();
      topic = lastTopic.toString();
    }
    long bytes = AROUND_BYTES + besideBytes + bytes(key) + bytes(value);
    if (bytes <= Math.min(limits.of(topic), requestBytes)) return true;
    return fits(copied(key), copied(value), (int) Math.min(bytes, Integer.MAX_VALUE));
  }

  private static byte[] copied(UTF8String text) {
    return text == null ? null : text.getBytes();
  }

  private static long bytes(UTF8String text) {
    return text == null ? 0 : text.numBytes();
  }

  /** In doubt, as exactly as the broker: it counts what was compressed, and without it what a record really takes. */
  private boolean fits(byte[] key, byte[] value, int mostBytes) {
    CompressionType type = CompressionType.forName(kafka.getOrDefault(COMPRESSION, "none"));
    int sentBytes = besideBytes
        + MemoryRecords.withRecords(Compression.of(type).build(), new SimpleRecord(0, key, value)).sizeInBytes();
    int limitBytes = limits.anew(topic);
    boolean forClient = mostBytes > requestBytes; // which counts what it was given
    if (sentBytes <= limitBytes && !forClient) return true;
    int sizeBytes = forClient ? mostBytes : sentBytes;
    int mostTaken = forClient ? Math.min(requestBytes, limitBytes) : limitBytes;
    String name = topic.startsWith(inside) ? topic.substring(inside.length()) : topic;
    if (!letters || mostBytes > LARGEST_BYTES / 2) {
      throw new IllegalStateException("MR-RECORD-TOO-LARGE " + sizeBytes + " " + mostTaken + " " + name);
    }
    send(key, value, "a record of " + sizeBytes + " bytes does not fit topic '" + name + "', which takes " + mostTaken
        + " with all around it");
    return false;
  }

  private void send(byte[] key, byte[] value, String reason) {
    TaskContext task = TaskContext.get();
    String epoch = task == null ? null : task.getLocalProperty("streaming.sql.batchId");
    List<Header> headers = List.of(
        header("topic", topic), header("flow", flow), header("epoch", epoch == null ? "" : epoch),
        header("reason", reason));
    limits.letters().send(new ProducerRecord<>(limits.dead(topic), null, key, value, headers), (place, refused) -> {
      if (refused != null) failure = refused;
    });
    count.add(1);
    if (task == null) {
      end();
    } else if (!listening) {
      listening = true;
      task.addTaskCompletionListener((TaskCompletionListener) ended -> end());
    }
  }

  private static Header header(String name, String text) {
    return new RecordHeader("millrace.dead." + name, text.getBytes(StandardCharsets.UTF_8));
  }

  private void end() {
    limits.letters().flush();
    if (failure != null) throw new IllegalStateException("dead letters of " + topic + " could not be written", failure);
  }
}
