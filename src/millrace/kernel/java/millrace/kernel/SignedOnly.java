package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
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
 * if it has none the one that it had, -1. A key that has two rows then stops the query: whoever knows the table by this
 * key would see one of them.
 */
final class SignedOnly extends SignedStep {
  private static final int FORM = 1;

  private final int tag;
  private final String schema;
  private transient ValueState<byte[]> held;

  SignedOnly(String settings, JsonNode told) {
    super(settings);
    tag = told.get("tag").asInt();
    schema = told.get("schema").toString();
  }

  @Override
  public void init(OutputMode mode, TimeMode time) {
    held = getHandle().getValueState("row", BoundOnce.BYTES, TTLConfig.NONE());
  }

  private static byte[] restored(byte[] state) {
    return Stored.read(state, FORM, (in, form) -> in.readAllBytes());
  }

  /** For people: see Kept. */
  static void show(JsonNode json, byte[] held, ObjectNode out) {
    out.put("row", Kept.row(restored(held), json.get("schema").toString()));
  }

  @Override
  Iterator<Row> own(byte[] key, Iterator<Row> rows) {
    byte[] state = held.get();
    byte[] before = state == null ? null : restored(state);
    Net net = new Net();
    if (before != null) net.add(before, 1);
    while (rows.hasNext()) {
      Row row = rows.next();
      net.add(row(row), diff(row));
    }
    List<byte[]> left = new ArrayList<>(1);
    net.each((row, count) -> {
      if (count != 1 || !left.isEmpty()) throw new IllegalStateException("MR-VIEW-KEY-REPEATED " + Kept.row(row, schema));
      left.add(row);
    });
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
