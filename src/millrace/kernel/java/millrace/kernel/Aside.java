package millrace.kernel;

import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.TaskCompletionListener;

/**
 * Takes refused rows out of a query that has one result, and sends them to a topic of their own, at once. A task has
 * not ended before the broker has all of them, so an epoch that is committed has lost none; one that is repeated may
 * send them again.
 */
public final class Aside implements Serializable {
  private static final String PREFIX = "kafka.";
  private static final Map<Map<String, Object>, KafkaProducer<byte[], byte[]>> PRODUCERS = new ConcurrentHashMap<>();

  private final String topic;
  private final HashMap<String, Object> options = new HashMap<>();
  private transient KafkaProducer<byte[], byte[]> producer;
  private transient volatile Exception failure;

  private Aside(String topic, Map<String, String> source) {
    this.topic = topic;
    source.forEach((name, value) -> {
      if (name.startsWith(PREFIX)) options.put(name.substring(PREFIX.length()), value);
    });
    options.put("key.serializer", ByteArraySerializer.class.getName());
    options.put("value.serializer", ByteArraySerializer.class.getName());
  }

  /** Whether a row stays: one whose record is not empty goes to the topic instead. `options` are those of Spark's Kafka. */
  public static Column of(Column value, String topic, Map<String, String> options) {
    return Invoked.changing(new Aside(topic, options), "stays", DataTypes.BooleanType, value, DataTypes.StringType);
  }

  /** Called from Spark's generated code. */
  public boolean stays(UTF8String record) {
    if (record.numBytes() == 0) return true;
    if (producer == null) {
      producer = PRODUCERS.computeIfAbsent(options, KafkaProducer::new);
      TaskContext.get().addTaskCompletionListener((TaskCompletionListener) task -> end());
    }
    producer.send(new ProducerRecord<>(topic, record.getBytes()), (place, refused) -> {
      if (refused != null) failure = refused;
    });
    return false;
  }

  private void end() {
    producer.flush();
    if (failure != null) throw new IllegalStateException("late rows could not be written to " + topic, failure);
  }
}
