package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.ValueState;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The first rows of each key in an order, of a table that changes: whoever goes makes room for the next. A row comes as
 * two values, the bytes it is ordered by and the row itself; rows alike in the former are in the order of their bytes.
 *
 * What holds: all rows of a key are kept, in an ordered multiset of which a change reads and writes a few nodes. Told is
 * how the first `count` differ from before; with `number`, each with its place from 1 on as its last column.
 */
final class SignedTop extends SignedStep {
  private static final int FORM = 1;
  private static final int PARTS = 2;

  private final int tag;
  private final int count;
  private final boolean numbered;
  private final StructType schema;
  private transient UnsafeProjection projection;
  private transient ValueState<byte[]> held;
  private transient MapState<Long, byte[]> nodes;

  SignedTop(String settings, JsonNode told) {
    super(settings);
    tag = told.get("tag").asInt();
    count = told.get("count").asInt();
    numbered = told.get("numbered").asBoolean();
    schema = (StructType) DataType.fromJson(told.get("schema").toString());
  }

  @Override
  public void init(OutputMode mode, TimeMode time) {
    held = getHandle().getValueState("rows", BoundOnce.BYTES, TTLConfig.NONE());
    nodes = getHandle().getMapState("nodes", BoundOnce.LONG, BoundOnce.BYTES, TTLConfig.NONE());
    List<DataType> types = new ArrayList<>();
    for (var field : schema.fields()) types.add(field.dataType());
    if (numbered) types.add(DataTypes.LongType);
    projection = UnsafeProjection.create(types.toArray(DataType[]::new));
  }

  /** For people: see Kept. */
  static void show(JsonNode json, byte[] held, Map<Long, byte[]> nodes, ObjectNode out) {
    Multiset all = new Multiset(History.Nodes.read(nodes));
    restore(all, held);
    ArrayNode first = out.put("rows", all.size()).putArray("first");
    for (byte[] each : all.first(json.get("count").asInt())) first.add(Kept.row(Placed.row(each), json.get("schema").toString()));
  }

  private static void restore(Multiset all, byte[] held) {
    Stored.read(held, FORM, (in, form) -> {
      all.restore(in);
      return null;
    });
  }

  @Override
  Iterator<Row> own(byte[] key, Iterator<Row> rows) {
    Net net = new Net();
    UnsafeRow parts = new UnsafeRow(PARTS);
    while (rows.hasNext()) {
      Row row = rows.next();
      byte[] bytes = row(row);
      parts.pointTo(bytes, bytes.length);
      net.add(Placed.of(parts.getBinary(0), parts.getBinary(1)), diff(row));
    }
    Multiset all = new Multiset(History.Nodes.in(nodes));
    byte[] state = held.get();
    if (state != null) restore(all, state);
    List<byte[]> before = all.first(count);
    net.each(all::add);
    List<byte[]> after = all.first(count);
    if (all.size() > 0) held.update(Stored.write(FORM, all::write));
    else if (state != null) held.clear();
    return CollectionConverters.asScala(numbered ? byPlace(before, after) : byRow(before, after));
  }

  private java.util.Iterator<Row> byPlace(List<byte[]> before, List<byte[]> after) {
    List<Row> out = new ArrayList<>();
    for (int place = 0; place < Math.max(before.size(), after.size()); place++) {
      byte[] old = place < before.size() ? before.get(place) : null;
      byte[] now = place < after.size() ? after.get(place) : null;
      if (Arrays.equals(old, now)) continue;
      if (now != null) out.add(told(tag, numbered(Placed.row(now), place + 1), 1));
      if (old != null) out.add(told(tag, numbered(Placed.row(old), place + 1), -1));
    }
    return out.iterator();
  }

  private java.util.Iterator<Row> byRow(List<byte[]> before, List<byte[]> after) {
    Net change = new Net();
    for (byte[] each : before) change.add(Placed.row(each), -1);
    for (byte[] each : after) change.add(Placed.row(each), 1);
    List<Row> out = new ArrayList<>();
    change.each((row, diff) -> out.add(told(tag, row, diff)));
    return out.iterator();
  }

  private byte[] numbered(byte[] row, long place) {
    UnsafeRow of = new UnsafeRow(schema.length());
    of.pointTo(row, row.length);
    InternalRow number = new GenericInternalRow(new Object[] {place});
    // Copied, because the projection writes the next one to the same place.
    return projection.apply(new JoinedRow(of, number)).copy().getBytes();
  }
}
