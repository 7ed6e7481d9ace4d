package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
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
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Two tables joined by key: pairs of their rows (inner, left), and rows of the left one with nothing beside them (left,
 * anti) or with something (semi). A pair is there as often as the product of its rows.
 *
 * What holds: a pair, or a row alone, is told once in a call, by how much oftener it is there than before. A row with a
 * null in its key has a partner on no side; it comes as LONE if it is to be told, and leaves no state.
 */
final class SignedJoin extends SignedStep {
  private static final int LEFT = 0;
  private static final int RIGHT = 1;
  private static final int LONE = 2;
  private static final int FORM = 1;

  private final int tag;
  private final boolean pairs;
  /** Whether left rows are told alone: without a partner (-1), with one (1), never (0). */
  private final int alone;
  private final StructType left;
  private final StructType right;
  private transient UnsafeProjection projection;
  private transient InternalRow nothing;
  private transient ValueState<byte[]> held;
  private transient MapState<byte[], Long> leftRows;
  private transient MapState<byte[], Long> rightRows;

  SignedJoin(String settings, JsonNode told) {
    super(settings);
    String how = told.get("how").asText();
    tag = told.get("tag").asInt();
    pairs = how.equals("inner") || how.equals("left");
    alone = how.equals("semi") ? 1 : how.equals("inner") ? 0 : -1;
    left = (StructType) DataType.fromJson(told.get("left").toString());
    right = (StructType) DataType.fromJson(told.get("right").toString());
  }

  @Override
  public void init(OutputMode mode, TimeMode time) {
    held = getHandle().getValueState("sides", BoundOnce.BYTES, TTLConfig.NONE());
    leftRows = getHandle().getMapState("left", BoundOnce.BYTES, BoundOnce.LONG, TTLConfig.NONE());
    if (!pairs) return;
    rightRows = getHandle().getMapState("right", BoundOnce.BYTES, BoundOnce.LONG, TTLConfig.NONE());
    List<DataType> types = new ArrayList<>();
    for (var field : left.fields()) types.add(field.dataType());
    for (var field : right.fields()) types.add(field.dataType());
    projection = UnsafeProjection.create(types.toArray(DataType[]::new));
    nothing = new GenericInternalRow(right.length());
  }

  @Override
  Iterator<Row> own(byte[] key, Iterator<Row> rows) {
    Net[] nets = {new Net(), new Net(), new Net()};
    boolean keyed = false;
    while (rows.hasNext()) {
      Row row = rows.next();
      nets[side(row)].add(row(row), diff(row));
      keyed |= side(row) != LONE;
    }
    List<Row> lone = new ArrayList<>();
    nets[LONE].each((row, diff) -> lone.add(told(tag, alone(row), diff)));
    Iterator<Row> joined = keyed ? joined(nets[LEFT], nets[RIGHT]) : nobody();
    return CollectionConverters.asScala(lone.iterator()).concat(() -> joined);
  }

  /** For people: see Kept. Rows that are kept one by one are in `lefts` and `rights`. */
  static void show(
      JsonNode json, byte[] held, Map<ByteBuffer, Long> lefts, Map<ByteBuffer, Long> rights, ObjectNode out) {
    boolean pairs = List.of("inner", "left").contains(json.get("how").asText());
    Side ours = new Side(null, true);
    Side theirs = new Side(null, pairs);
    read(held, ours, theirs);
    ours.show(lefts, json.get("left").toString(), out.putObject("left"));
    theirs.show(rights, json.get("right").toString(), out.putObject("right"));
  }

  private static void read(byte[] held, Side ours, Side theirs) {
    Stored.read(held, FORM, (in, form) -> {
      ours.read(in);
      theirs.read(in);
      return null;
    });
  }

  private Iterator<Row> joined(Net lefts, Net rights) {
    Side ours = new Side(leftRows, true);
    Side theirs = new Side(rightRows, pairs);
    byte[] bytes = held.get();
    if (bytes != null) read(bytes, ours, theirs);
    ours.apply(lefts);
    theirs.apply(rights);
    if (!ours.isEmpty() || !theirs.isEmpty()) {
      held.update(Stored.write(FORM, out -> {
        ours.write(out);
        theirs.write(out);
      }));
    } else if (bytes != null) {
      held.clear();
    }
    Iterator<Row> paired = pairs ? paired(ours, theirs) : nobody();
    Iterator<Row> out = alone == 0 ? paired : paired.concat(() -> unpaired(ours, theirs));
    return out.filter(Objects::nonNull);
  }

  private Iterator<Row> paired(Side ours, Side theirs) {
    Iterator<Row> changed = ours.changed().flatMap(mine -> theirs.all().map(other -> {
      long after = Math.multiplyExact(mine.after(), other.after());
      return pair(mine, other, Math.subtractExact(after, Math.multiplyExact(mine.before(), other.before())));
    }));
    return changed.concat(() -> theirs.changed().flatMap(other -> ours.unchanged().map(mine ->
        pair(mine, other, Math.multiplyExact(mine.after(), other.after() - other.before())))));
  }

  private Iterator<Row> unpaired(Side ours, Side theirs) {
    int before = theirs.wasThere() == alone > 0 ? 1 : 0;
    int after = theirs.isThere() == alone > 0 ? 1 : 0;
    Iterator<Side.Change> rows = before == after ? ours.changed() : ours.all();
    return rows.map(mine -> {
      long diff = mine.after() * after - mine.before() * before;
      return diff == 0 ? null : told(tag, alone(mine.row()), diff);
    });
  }

  private Row pair(Side.Change mine, Side.Change other, long diff) {
    return diff == 0 ? null : told(tag, both(mine.row(), unpacked(other.row(), right)), diff);
  }

  private byte[] alone(byte[] row) {
    return pairs ? both(row, nothing) : row;
  }

  private byte[] both(byte[] mine, InternalRow other) {
    // Copied, because the projection writes the next one to the same place.
    return projection.apply(new JoinedRow(unpacked(mine, left), other)).copy().getBytes();
  }

  private static UnsafeRow unpacked(byte[] bytes, StructType type) {
    UnsafeRow row = new UnsafeRow(type.length());
    row.pointTo(bytes, bytes.length);
    return row;
  }

  private static Iterator<Row> nobody() {
    return CollectionConverters.asScala(java.util.Collections.emptyIterator());
  }
}
