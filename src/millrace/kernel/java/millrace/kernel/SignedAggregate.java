package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.ValueState;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A table grouped by key, and what is told of each group: its old row goes and its new one comes, if they differ. The
 * key is packed, a row of the table is the packed values that the aggregates look at. Without aggregates it is what SQL
 * calls distinct.
 *
 * What holds: a group of no rows is not there and leaves no state. Without a key there is one group, which is there from
 * the first call on, whatever its rows: a row as NUDGE only says that the chain has begun, and goes on to the next step.
 */
final class SignedAggregate extends SignedStep {
  private static final int NUDGE = 1;
  private static final byte[] NO_ROW = {};

  private final GroupShape shape;
  private final int nudgeTag;
  private transient UnsafeProjection projection;
  private transient ValueState<byte[]> held;
  private transient MapState<Long, byte[]> nodes;

  SignedAggregate(String settings, JsonNode told) {
    super(settings);
    shape = new GroupShape(told);
    nudgeTag = told.get("nudge").asInt();
  }

  @Override
  public void init(OutputMode mode, TimeMode time) {
    projection = UnsafeProjection.create(shape.out());
    held = getHandle().getValueState("group", BoundOnce.BYTES, TTLConfig.NONE());
    if (shape.hasSets()) nodes = getHandle().getMapState("nodes", BoundOnce.LONG, BoundOnce.BYTES, TTLConfig.NONE());
  }

  /** For people: see Kept. */
  static void show(JsonNode json, byte[] held, Map<Long, byte[]> nodes, ObjectNode out) {
    GroupShape shape = new GroupShape(json);
    Group group = new Group(shape, UnsafeProjection.create(shape.out()), held, History.Nodes.read(nodes));
    // Of its key nothing is held but where it is.
    byte[] row = group.row(new GenericInternalRow(shape.keys()));
    out.put("rows", group.rows()).put("row", row == null ? null : Kept.row(row, json.get("out").toString()));
  }

  @Override
  Iterator<Row> own(byte[] key, Iterator<Row> rows) {
    byte[] state = held.get();
    Group group = new Group(shape, projection, state, nodes == null ? null : History.Nodes.in(nodes));
    UnsafeRow of = new UnsafeRow(shape.keys());
    of.pointTo(key, key.length);
    byte[] before = group.row(of);
    boolean nudged = false;
    UnsafeRow values = new UnsafeRow(shape.values());
    while (rows.hasNext()) {
      Row row = rows.next();
      if (side(row) == NUDGE) {
        nudged = true;
        continue;
      }
      byte[] bytes = row(row);
      values.pointTo(bytes, bytes.length);
      group.add(values, diff(row));
    }
    group.begin();
    byte[] after = group.row(of);
    if (!group.isEmpty()) held.update(group.written());
    else if (state != null) held.clear();
    List<Row> out = new ArrayList<>(3);
    if (!Arrays.equals(before, after)) {
      // In this order: in real time a row is then never seen to go that only becomes another one (see SignedOnly).
      if (after != null) out.add(told(shape.tag(), after, 1));
      if (before != null) out.add(told(shape.tag(), before, -1));
    }
    if (nudged) out.add(told(nudgeTag, NO_ROW, 0));
    return CollectionConverters.asScala(out.iterator());
  }
}
