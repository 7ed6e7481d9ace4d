package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.json.JSONOptions;
import org.apache.spark.sql.catalyst.json.JacksonGenerator;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What operators keep of a key, as JSON that `kernel/kept.py` makes words of. Each codec shows its own bytes: what wrote
 * them is what reads them. Times are µs.
 */
public final class Kept {
  private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
  /** Times with all their digits, and nulls too. */
  private static final scala.collection.immutable.Map<String, String> WRITTEN = scala.collection.immutable.Map.from(
      CollectionConverters.asScala(Map.of(
          "timestampFormat", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
          "timestampNTZFormat", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
          "ignoreNullFields", "false")));

  /** What the operator of a plan was told; null if it is none of ours. */
  public static String of(Object processor) {
    return processor instanceof Keeper<?, ?, ?> keeper ? keeper.told() : null;
  }

  /** `held` has the bytes of the operator's values by their names; of a map, such bytes by its keys. */
  public static String shown(String told, Map<String, Object> held) {
    JsonNode json = Json.read(told);
    ObjectNode out = NODES.objectNode();
    switch (json.get("operator").asText()) {
      case "window", "session" -> Windows.show(json, held, out);
      case "lookback" -> LookbackProcessor.show(json, (byte[]) held.get("history"), numbered(held.get("nodes")), out);
      case "match" -> MatchProcessor.show(json, (byte[]) held.get("newest"), numbered(held.get("older")), out);
      case "top", "latest" -> Best.show(json, (byte[]) held.get("best"), named(held.get("all")), out);
      case "as_of" -> AsOfState.show(json, (byte[]) held.get("history"), name -> numbered(held.get(name)), out);
      case "stream_join" -> JoinState.show(json, (byte[]) held.get("rows"), numbered(held.get("parts")), out);
      case "join" -> SignedJoin.show(
          json, (byte[]) held.get("sides"), counted(held.get("left")), counted(held.get("right")), out);
      case "aggregate", "distinct" -> SignedAggregate.show(
          json, (byte[]) held.get("group"), numbered(held.get("nodes")), out);
      case "first" -> SignedTop.show(json, (byte[]) held.get("rows"), numbered(held.get("nodes")), out);
      case "span" -> SignedSpan.show(json, (byte[]) held.get("due"), numbered(held.get("nodes")), out);
      case "only" -> SignedOnly.show(json, (byte[]) held.get("row"), out);
      case "dedup" -> {
        if (json.get("byArrival").asBoolean()) DedupByArrival.show((byte[]) held.get("given"), out);
        else DedupProcessor.show((byte[]) held.get("given"), out);
      }
      default -> throw new IllegalArgumentException(json.get("operator").asText());
    }
    return out.toString();
  }

  /** Python's numbers come as whatever they fit into. */
  private static Map<Long, byte[]> numbered(Object map) {
    Map<Long, byte[]> found = new HashMap<>();
    if (map != null) ((Map<?, ?>) map).forEach((key, bytes) -> found.put(((Number) key).longValue(), (byte[]) bytes));
    return found;
  }

  private static Map<ByteBuffer, byte[]> named(Object map) {
    Map<ByteBuffer, byte[]> found = new HashMap<>();
    if (map != null) ((Map<?, ?>) map).forEach((key, bytes) -> found.put(ByteBuffer.wrap((byte[]) key), (byte[]) bytes));
    return found;
  }

  private static Map<ByteBuffer, Long> counted(Object map) {
    Map<ByteBuffer, Long> found = new HashMap<>();
    if (map != null) {
      ((Map<?, ?>) map).forEach((row, count) -> found.put(ByteBuffer.wrap((byte[]) row), ((Number) count).longValue()));
    }
    return found;
  }

  /** Whatever an aggregate or slot holds. Numbers that JSON has no word for are texts, and so are decimals. */
  static JsonNode node(Object value) {
    if (value == null) return NODES.nullNode();
    if (value instanceof Long number) return NODES.numberNode(number);
    if (value instanceof Double number) return Double.isFinite(number) ? NODES.numberNode(number) : NODES.textNode(number.toString());
    if (value instanceof BigDecimal number) return NODES.textNode(number.toPlainString());
    if (value instanceof byte[] bytes) return NODES.binaryNode(bytes);
    if (value instanceof Position at) return NODES.arrayNode().add(at.latitude()).add(at.longitude());
    if (value instanceof List<?> several) {
      ArrayNode all = NODES.arrayNode();
      several.forEach(each -> all.add(node(each)));
      return all;
    }
    if (value instanceof scala.collection.Seq<?> several) return node(CollectionConverters.asJava(several));
    if (value instanceof Row row) return node(row.toSeq());
    return NODES.textNode(value.toString());
  }

  /** A packed row (see Packed), of these columns; as text, in which its numbers have all their digits. */
  static String row(byte[] packed, String schema) {
    StructType type = (StructType) DataType.fromJson(schema);
    StringWriter text = new StringWriter();
    JacksonGenerator generator = new JacksonGenerator(type, text, new JSONOptions(WRITTEN, "UTC", ""));
    generator.write(Packed.of(type).row(packed));
    generator.flush();
    return text.toString();
  }

  private Kept() {}
}
