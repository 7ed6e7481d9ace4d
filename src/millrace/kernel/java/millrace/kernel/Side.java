package millrace.kernel;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.sql.streaming.MapState;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * One side of a join under one key during one call: its rows, and how often each is there.
 *
 * Few rows are kept in the value of the key; many one by one in a map, so that a row more does not write the others
 * again. They stay there until all are gone. Where no rows are kept, only their number is.
 */
final class Side {
  private static final int MOST_ROWS = 8;
  private static final int MOST_BYTES = 1_024;

  /** How often a row was there before the call, and is now. */
  record Change(byte[] row, long before, long after) {}

  private final MapState<byte[], Long> map;
  private final boolean keepsRows;
  private final Map<ByteBuffer, Long> few = new LinkedHashMap<>();
  private final Map<ByteBuffer, Change> changes = new LinkedHashMap<>();
  private boolean many;
  private long size;
  private long total;
  private long totalBefore;

  Side(MapState<byte[], Long> map, boolean keepsRows) {
    this.map = map;
    this.keepsRows = keepsRows;
  }

  void apply(Net net) {
    totalBefore = total;
    net.each((row, diff) -> {
      total = Math.addExact(total, diff);
      if (keepsRows) change(row, diff);
    });
    if (!many && isTooLarge()) spill();
  }

  private void change(byte[] row, long diff) {
    ByteBuffer known = ByteBuffer.wrap(row);
    Long held = many ? map.getValue(row) : few.get(known);
    long before = held == null ? 0 : held;
    long after = Math.addExact(before, diff);
    changes.put(known, new Change(row, before, after));
    if (before == 0) size++;
    if (after == 0) size--;
    if (after == 0 && many) map.removeKey(row);
    else if (after == 0) few.remove(known);
    else if (many) map.updateValue(row, after);
    else few.put(known, after);
    if (size == 0) many = false;
  }

  private boolean isTooLarge() {
    return few.size() > MOST_ROWS || few.keySet().stream().mapToInt(ByteBuffer::remaining).sum() > MOST_BYTES;
  }

  private void spill() {
    few.forEach((row, count) -> map.updateValue(row.array(), count));
    few.clear();
    many = true;
  }

  boolean isThere() {
    return total > 0;
  }

  boolean wasThere() {
    return totalBefore > 0;
  }

  /** Where rows are kept they count, otherwise their number. */
  boolean isEmpty() {
    return size == 0 && total == 0;
  }

  Iterator<Change> changed() {
    return CollectionConverters.asScala(changes.values().iterator());
  }

  Iterator<Change> unchanged() {
    if (many) {
      return map.iterator()
          .map(each -> new Change(each._1(), each._2(), each._2()))
          .filter(each -> !changes.containsKey(ByteBuffer.wrap(each.row)));
    }
    return CollectionConverters.asScala(few.entrySet().iterator())
        .filter(each -> !changes.containsKey(each.getKey()))
        .map(each -> new Change(each.getKey().array(), each.getValue(), each.getValue()));
  }

  /** Those that were there, are there, or both. */
  Iterator<Change> all() {
    return changed().concat(this::unchanged);
  }

  /** For people: see Kept. */
  void show(Map<ByteBuffer, Long> rows, String schema, ObjectNode out) {
    ArrayNode shown = out.put("total", total).putArray("rows");
    (many ? rows : few).forEach((row, count) ->
        shown.addObject().put("count", count).put("row", Kept.row(row.array(), schema)));
  }

  void write(DataOutputStream out) throws IOException {
    out.writeBoolean(many);
    VarLong.write(size, out);
    VarLong.write(total, out);
    if (many) return;
    for (Map.Entry<ByteBuffer, Long> each : few.entrySet()) {
      Ranked.bytes(each.getKey().array(), out);
      VarLong.write(each.getValue(), out);
    }
  }

  void read(DataInputStream in) throws IOException {
    many = in.readBoolean();
    size = VarLong.read(in);
    total = totalBefore = VarLong.read(in);
    if (many || !keepsRows) return;
    for (long row = 0; row < size; row++) few.put(ByteBuffer.wrap(Ranked.bytes(in)), VarLong.read(in));
  }
}
