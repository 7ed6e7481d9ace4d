package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.ValueState;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The only row of each key, of a table that changes.
 *
 * What holds: of a key whose row is another one at the end of a call, one row is told: the one that it has now, +1, or
 * if it has none the one that it had, -1. A key that has two rows at the end of an epoch stops the query: whoever knows the
 * table by this key would see one of them. In real time it may have two for a moment, when the row that comes took a
 * shorter way than the one that goes: nothing is told of it until that is over, and what has not been told is not state.
 */
final class SignedOnly extends SignedStep {
  private static final int FORM = 1;
  /** More keys than that do not have two rows for a moment. */
  private static final int MOST_OPEN = 100_000;

  private final int tag;
  private final String schema;
  private transient ValueState<byte[]> held;
  /** What came of keys that have more than one row now, beside the row that was told. */
  private transient Map<ByteBuffer, Net> open;

  SignedOnly(String settings, JsonNode told) {
    super(settings);
    tag = told.get("tag").asInt();
    schema = told.get("schema").toString();
  }

  @Override
  public void init(OutputMode mode, TimeMode time) {
    held = getHandle().getValueState("row", BoundOnce.BYTES, TTLConfig.NONE());
    open = new HashMap<>();
  }

  private static byte[] restored(byte[] state) {
    return Stored.read(state, FORM, (in, form) -> in.readAllBytes());
  }

  /** For people: see Kept. */
  static void show(JsonNode json, byte[] held, ObjectNode out) {
    out.put("row", Kept.row(restored(held), json.get("schema").toString()));
  }

  private IllegalStateException repeated(byte[] row) {
    return new IllegalStateException("MR-VIEW-KEY-REPEATED " + Kept.row(row, schema));
  }

  /** When all rows of an epoch have come. */
  @Override
  public void close() {
    if (open == null) return;
    open.values().forEach(came -> came.each((row, count) -> { throw repeated(row); }));
  }

  @Override
  Iterator<Row> own(byte[] key, Iterator<Row> rows) {
    byte[] state = held.get();
    byte[] before = state == null ? null : restored(state);
    ByteBuffer place = ByteBuffer.wrap(key);
    Net came = open.isEmpty() ? new Net() : Objects.requireNonNullElseGet(open.remove(place), Net::new);
    while (rows.hasNext()) {
      Row row = rows.next();
      came.add(row(row), diff(row));
    }
    Net net = new Net();
    if (before != null) net.add(before, 1);
    came.each(net::add);
    List<byte[]> left = new ArrayList<>(1);
    net.each((row, count) -> left.addAll(count == 1 ? List.of(row) : List.of(row, row)));
    if (left.size() > 1) {
      if (open.size() == MOST_OPEN) throw repeated(left.get(1));
      open.put(place, came);
      return CollectionConverters.asScala(Collections.emptyIterator());
    }
    byte[] after = left.isEmpty() ? null : left.get(0);
    List<Row> out = new ArrayList<>(1);
    if (!Arrays.equals(before, after)) {
      out.add(after == null ? told(tag, before, -1) : told(tag, after, 1));
      if (after == null) held.clear();
      else held.update(Stored.write(FORM, to -> to.write(after)));
    }
    return CollectionConverters.asScala(out.iterator());
  }
}
