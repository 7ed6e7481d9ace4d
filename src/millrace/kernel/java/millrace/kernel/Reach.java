package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** How far a query has read a topic, and where that ends as Spark was told last: it asks at every trigger. */
final class Reach {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final MicroBatchExecution query;
  private final SupportsAdmissionControl source;

  private Reach(MicroBatchExecution query, SupportsAdmissionControl source) {
    this.query = query;
    this.source = source;
  }

  /** Of the source below a watermark; null if that does not say how far it is read. */
  static Reach of(MicroBatchExecution query, UUID watermark) {
    SupportsAdmissionControl source = source(query.logicalPlan(), watermark, false);
    return source == null ? null : new Reach(query, source);
  }

  private static SupportsAdmissionControl source(LogicalPlan plan, UUID watermark, boolean below) {
    if (below && plan instanceof StreamingDataSourceV2ScanRelation scan) {
      return scan.stream() instanceof SupportsAdmissionControl found ? found : null;
    }
    boolean nowBelow = below || plan instanceof EventTimeWatermark node && node.nodeId().equals(watermark);
    for (LogicalPlan child : CollectionConverters.asJava(plan.children())) {
      SupportsAdmissionControl found = source(child, watermark, nowBelow);
      if (found != null) return found;
    }
    return null;
  }

  /**
   * All partitions of the topic, and whether each is read to its end: at an epoch's end by that epoch; at a trigger by
   * those before, since the trigger may have found more.
   */
  Map<Integer, Boolean> ended(boolean atEpochEnd) {
    Map<Integer, Long> read = offsets((atEpochEnd ? query.availableOffsets() : query.committedOffsets()).get(source));
    Map<Integer, Long> latest = offsets(latest());
    Map<Integer, Boolean> ended = new TreeMap<>();
    read.forEach((number, offset) -> ended.put(number, offset >= latest.getOrDefault(number, Long.MAX_VALUE)));
    for (int unread : latest.keySet()) ended.putIfAbsent(unread, false);
    return ended;
  }

  /** None in an epoch that is done again after a restart: then nobody has asked yet where the topic ends. */
  private Option<Offset> latest() {
    try {
      return Option.apply(source.reportLatestOffset());
    } catch (NullPointerException notAskedYet) { // what Kafka's source gives instead of null
      return Option.empty();
    }
  }

  /** As Kafka's source writes them: {"topic": {"0": 17}}. */
  private static Map<Integer, Long> offsets(Option<Offset> offset) {
    Map<Integer, Long> found = new TreeMap<>();
    if (offset.isEmpty()) return found;
    try {
      for (JsonNode topic : JSON.readTree(offset.get().json())) {
        topic.fields().forEachRemaining(each -> found.put(Integer.parseInt(each.getKey()), each.getValue().asLong()));
      }
    } catch (IOException | NumberFormatException notATopic) {
      found.clear();
    }
    return found;
  }
}
