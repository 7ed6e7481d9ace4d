package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;

/** Where an epoch ends: offsets of topics, and the position of each database up to which that is everything. */
final class Cut extends Offset {
  /** No topic's name begins so. */
  private static final String MARK = "@";
  private static final String LSN = "lsn";

  private final Map<TopicPartition, Long> offsets;
  private final Map<String, Long> positions;

  Cut(Map<TopicPartition, Long> offsets, Map<String, Long> positions) {
    this.offsets = offsets;
    this.positions = positions;
  }

  Map<TopicPartition, Long> offsets() { return offsets; }

  Map<String, Long> positions() { return positions; }

  static Cut of(String json) {
    Map<String, Long> positions = new TreeMap<>();
    Json.read(json).fields().forEachRemaining(each -> {
      if (each.getKey().startsWith(MARK)) positions.put(each.getKey().substring(1), each.getValue().get(LSN).asLong());
    });
    return new Cut(read(json), positions);
  }

  /** Those of an offset of Spark's own source. */
  static Map<TopicPartition, Long> offsets(Offset kafka) {
    return read(kafka.json());
  }

  private static Map<TopicPartition, Long> read(String json) {
    Map<TopicPartition, Long> found = new HashMap<>();
    Json.read(json).fields().forEachRemaining(topic -> {
      if (topic.getKey().startsWith(MARK)) return;
      JsonNode parts = topic.getValue();
      parts.fields().forEachRemaining(part -> found.put(
          new TopicPartition(topic.getKey(), Integer.parseInt(part.getKey())), part.getValue().asLong()));
    });
    return found;
  }

  Offset kafka(MicroBatchStream source) {
    return source.deserializeOffset(written(false));
  }

  @Override
  public String json() {
    return written(true);
  }

  private String written(boolean whole) {
    ObjectNode json = JsonNodeFactory.instance.objectNode();
    Map<String, Map<String, Long>> sorted = new TreeMap<>();
    offsets.forEach((place, offset) ->
        sorted.computeIfAbsent(place.topic(), unused -> new TreeMap<>()).put(String.valueOf(place.partition()), offset));
    sorted.forEach((topic, parts) -> {
      ObjectNode written = json.putObject(topic);
      parts.forEach(written::put);
    });
    if (whole) positions.forEach((database, lsn) -> json.putObject(MARK + database).put(LSN, lsn));
    return json.toString();
  }
}
