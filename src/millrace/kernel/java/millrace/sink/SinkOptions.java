package millrace.sink;

import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What the sink is told. `flow` is what transactional ids begin with, `checkpoint` the folder of the query's
 * checkpoint, `epoch` the number of the epoch where it is written as a batch, `topic` where records go that do not say;
 * and Kafka's own options behind `kafka.`.
 */
record SinkOptions(String flow, String checkpoint, String topic, HashMap<String, String> kafka)
    implements Serializable {
  private static final String PREFIX = "kafka.";
  static final String TIMEOUT = "transaction.timeout.ms";

  static SinkOptions of(Map<String, String> options) {
    HashMap<String, String> kafka = new HashMap<>();
    options.forEach((name, value) -> {
      if (name.startsWith(PREFIX)) kafka.put(name.substring(PREFIX.length()), value);
    });
    return new SinkOptions(needed(options, "flow"), needed(options, "checkpoint"), options.get("topic"), kafka);
  }

  private static String needed(Map<String, String> options, String name) {
    String value = options.get(name);
    if (value == null) throw new IllegalArgumentException("a transactional write needs the option " + name);
    return value;
  }

  /** For a producer of one id. A flush ends every wait for more records, so waiting costs no latency. */
  Map<String, Object> producer(String id, String role, long timeoutMs) {
    Map<String, Object> all = new HashMap<>();
    all.put("client.id", id + role); // the driver's and the task's may be in one JVM, which wants different names
    all.put("linger.ms", "20");
    all.put("batch.size", "131072");
    all.putAll(kafka);
    all.put("acks", "all");
    all.put("enable.idempotence", "true");
    all.put("transactional.id", id);
    all.put(TIMEOUT, String.valueOf(timeoutMs));
    all.put("key.serializer", ByteArraySerializer.class);
    all.put("value.serializer", ByteArraySerializer.class);
    return all;
  }

  Map<String, Object> admin() {
    return new HashMap<>(kafka);
  }
}
