package millrace.kernel;

import static millrace.kernel.Answer.got;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** How large a record the topics of a Kafka take, and where those go that are larger. One for each JVM and Kafka. */
final class Limits {
  static final String LIMIT = "max.message.bytes";
  /** Where the broker does not say: its own default. */
  private static final int USUAL_BYTES = 1_048_588;
  /** Limits are altered while flows run: a lower one fails a flow, which finds it when it is started again. */
  private static final long AGAIN_NS = Duration.ofSeconds(10).toNanos();
  private static final long SOON_NS = Duration.ofSeconds(1).toNanos();
  private static final Map<Map<String, String>, Limits> BY_KAFKA = new ConcurrentHashMap<>();

  private record Known(int bytes, long atNs) {
    boolean isOlder(long thanNs) {
      return System.nanoTime() - atNs > thanNs;
    }
  }

  private final Map<String, String> kafka;
  private final Admin admin;
  private final Map<String, Known> known = new ConcurrentHashMap<>();
  private final Map<String, String> dead = new ConcurrentHashMap<>();
  private KafkaProducer<byte[], byte[]> letters;

  private Limits(Map<String, String> kafka) {
    this.kafka = kafka;
    admin = Admin.create(new HashMap<>(kafka));
  }

  static Limits of(Map<String, String> kafka) {
    return BY_KAFKA.computeIfAbsent(kafka, Limits::new);
  }

  /** As it was some seconds ago: nobody waits for it but the first. */
  int of(String topic) {
    Known found = known.get(topic);
    if (found == null) return asked(topic);
    if (found.isOlder(AGAIN_NS)) {
      known.put(topic, new Known(found.bytes, System.nanoTime()));
      described(topic).whenComplete((told, failure) -> {
        if (failure == null) known.put(topic, new Known(bytes(told), System.nanoTime()));
      });
    }
    return found.bytes;
  }

  /** Somebody may have raised it for the very record that is about to be refused. */
  int anew(String topic) {
    return known.get(topic).isOlder(SOON_NS) ? asked(topic) : known.get(topic).bytes;
  }

  private int asked(String topic) {
    int bytes;
    try {
      bytes = bytes(got(described(topic)));
    } catch (AuthorizationException secret) {
      bytes = USUAL_BYTES;
    } catch (UnknownTopicOrPartitionException gone) {
      bytes = Integer.MAX_VALUE; // which is told when it is written
    }
    known.put(topic, new Known(bytes, System.nanoTime()));
    return bytes;
  }

  private KafkaFuture<Config> described(String topic) {
    ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
    return admin.describeConfigs(List.of(resource)).values().get(resource);
  }

  private static int bytes(Config told) {
    return Integer.parseInt(told.get(LIMIT).value());
  }

  /** The topic of a topic's dead letters, which is there then and takes what the other does not. */
  String dead(String topic) {
    return dead.computeIfAbsent(topic, unused -> made(topic + ".dead"));
  }

  private String made(String letters) {
    Map<String, String> config = Map.of("retention.ms", "-1", LIMIT, String.valueOf(Outsized.LARGEST_BYTES));
    NewTopic wanted = new NewTopic(letters, Optional.of(1), Optional.empty()).configs(config);
    try {
      got(admin.createTopics(Set.of(wanted)).all());
    } catch (TopicExistsException there) {
      ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, letters);
      ConfigEntry entry = new ConfigEntry(LIMIT, config.get(LIMIT));
      AlterConfigOp wider = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
      got(admin.incrementalAlterConfigs(Map.of(resource, List.of(wider))).all());
    }
    return letters;
  }

  synchronized KafkaProducer<byte[], byte[]> letters() {
    if (letters == null) {
      Map<String, Object> options = new HashMap<>(kafka);
      options.put("max.request.size", String.valueOf(Outsized.LARGEST_BYTES));
      options.put("buffer.memory", String.valueOf(Outsized.LARGEST_BYTES));
      options.put("key.serializer", ByteArraySerializer.class.getName());
      options.put("value.serializer", ByteArraySerializer.class.getName());
      letters = new KafkaProducer<>(options);
    }
    return letters;
  }
}
