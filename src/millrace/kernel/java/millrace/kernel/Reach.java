package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.execution.datasources.v2.MicroBatchScanExec;

/** How far an epoch read: all partitions of its topic, and whether each was read to its end as of then. */
final class Reach {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** Empty for a source that is no topic: then only the partitions of its rows are known, and all count as read. */
  static Map<Integer, Boolean> of(MicroBatchScanExec scan) {
    Map<Integer, Boolean> ended = new TreeMap<>();
    if (scan == null || !(scan.stream() instanceof SupportsAdmissionControl source)) return ended;
    Map<Integer, Long> latest = offsets(latest(source));
    for (Map.Entry<Integer, Long> read : offsets(scan.end()).entrySet()) {
      ended.put(read.getKey(), read.getValue() >= latest.getOrDefault(read.getKey(), Long.MAX_VALUE));
    }
    for (int unread : latest.keySet()) ended.putIfAbsent(unread, false);
    return ended;
  }

  /** Null in an epoch that is done again after a restart: then nobody has asked yet where the topic ends. */
  private static Offset latest(SupportsAdmissionControl source) {
    try {
      return source.reportLatestOffset();
    } catch (NullPointerException notAskedYet) { // what Kafka's source gives instead of null
      return null;
    }
  }

  /** As Kafka's source writes them: {"topic": {"0": 17}}. */
  private static Map<Integer, Long> offsets(Offset offset) {
    Map<Integer, Long> found = new TreeMap<>();
    if (offset == null) return found;
    try {
      for (JsonNode topic : JSON.readTree(offset.json())) {
        topic.fields().forEachRemaining(each -> found.put(Integer.parseInt(each.getKey()), each.getValue().asLong()));
      }
    } catch (IOException | NumberFormatException notATopic) {
      found.clear();
    }
    return found;
  }

  private Reach() {}
}
