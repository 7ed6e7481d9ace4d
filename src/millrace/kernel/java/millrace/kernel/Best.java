package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.ValueState;

/**
 * The best rows of one key during one call: loaded, changed, told and kept.
 *
 * Rows that cannot be replaced are kept whole in one value, in order, and no more of them than are asked for. If they
 * can, all rows are in a map by what they are known by, and the value has the places of the best and of some behind
 * them: a row that falls out of the best is followed by one of those, and only when these are used up is the whole map
 * looked through. What holds: every row that is not among the held ones has a place behind `floor`.
 */
final class Best {
  private static final int FORM = 1;
  private static final Comparator<Ranked> FIRST = (one, other) -> one.compareTo(other.place);

  private final TopSettings settings;
  private final ValueState<byte[]> state;
  private final MapState<byte[], byte[]> all;
  private final List<Ranked> held = new ArrayList<>();
  private final List<Long> timersMs = new ArrayList<>();
  private final List<Ranked> before;
  /** The rows that this call has replaced or removed, as they were, by what they are known by; null for new ones. */
  private final Map<ByteBuffer, byte[]> replaced = new HashMap<>();
  private long endUs;
  private byte[] floor;
  private boolean changed;
  private boolean touched;

  Best(TopSettings settings, ValueState<byte[]> state, MapState<byte[], byte[]> all) {
    this(settings, state, all, state.get());
  }

  private Best(TopSettings settings, ValueState<byte[]> state, MapState<byte[], byte[]> all, byte[] bytes) {
    this.settings = settings;
    this.state = state;
    this.all = all;
    if (bytes != null) read(bytes);
    before = new ArrayList<>(best());
  }

  void take(Ranked row) {
    if (settings.replacing() && !replaces(row)) return;
    add(row);
  }

  /** When the window ends that all rows of the key belong to. */
  void ends(long atUs) {
    endUs = atUs;
  }

  long endUs() {
    return endUs;
  }

  /** Whether there is no such timer yet. */
  boolean timer(long atMs) {
    if (timersMs.contains(atMs)) return false;
    timersMs.add(atMs);
    return touched = true;
  }

  void fired(long atMs) {
    touched |= timersMs.remove((Long) atMs);
  }

  /** Removes the rows that no longer count. */
  void expire(long watermarkUs) {
    if (!settings.replacing()) {
      touched |= held.removeIf(row -> settings.overUs(row.timeUs) <= watermarkUs);
      return;
    }
    List<Ranked> over = new ArrayList<>();
    var rows = all.values();
    while (rows.hasNext()) {
      Ranked row = whole(rows.next());
      if (settings.overUs(row.timeUs) <= watermarkUs) over.add(row);
    }
    for (Ranked row : over) {
      byte[] of = row.of();
      all.removeKey(of);
      leave(of, row);
    }
  }

  /** What has changed in this call: what went, then what came. */
  List<Row> changes() {
    List<Row> out = new ArrayList<>();
    List<Ranked> after = best();
    for (int rank = 0; rank < before.size(); rank++) {
      if (differs(rank, after)) out.add(told(formerly(before.get(rank)), rank, -1));
    }
    for (int rank = 0; rank < after.size(); rank++) {
      if (differs(rank, after)) out.add(told(row(after.get(rank)), rank, 1));
    }
    return out;
  }

  /** The best, if they are others than when they were last told. */
  List<Row> results() {
    List<Row> out = new ArrayList<>();
    if (!changed) return out;
    List<Ranked> after = best();
    for (int rank = 0; rank < after.size(); rank++) out.add(told(row(after.get(rank)), rank, 1));
    changed = false;
    touched = true;
    return out;
  }

  /** After the last row and before anything is told. */
  void settle() {
    if (floor != null && held.size() < settings.n()) refill();
    List<Ranked> after = best();
    if (before.size() != after.size()) changed = true;
    for (int rank = 0; rank < after.size() && !changed; rank++) changed = differs(rank, after);
  }

  void save() {
    if (held.isEmpty() && timersMs.isEmpty()) state.clear();
    else if (touched) state.update(written());
  }

  void clear() {
    state.clear();
    if (all != null) all.clear();
  }

  /** Whether the row takes the place of the one that is known by the same. */
  private boolean replaces(Ranked row) {
    byte[] of = row.of();
    byte[] bytes = all.getValue(of);
    if (bytes != null) {
      Ranked old = whole(bytes);
      boolean ordered = settings.timed() || replaced.containsKey(ByteBuffer.wrap(of));
      if (ordered && old.timeUs > row.timeUs) return false;
      if (ordered && old.timeUs == row.timeUs && old.compareTo(row.place) <= 0) return false;
      leave(of, old);
    } else {
      replaced.putIfAbsent(ByteBuffer.wrap(of), null);
    }
    all.updateValue(of, Stored.write(FORM, out -> row.write(out, settings.timed(), true)));
    return true;
  }

  private void leave(byte[] of, Ranked row) {
    replaced.putIfAbsent(ByteBuffer.wrap(of), row.row);
    if (floor != null && row.compareTo(floor) > 0) return;
    held.remove(place(row));
    touched = true;
  }

  private void add(Ranked row) {
    if (floor != null && row.compareTo(floor) > 0) return;
    int place = place(row);
    if (place < 0) place = -place - 1;
    if (place == settings.held()) {
      if (settings.replacing()) setFloor();
      return;
    }
    held.add(place, row);
    touched = true;
    if (held.size() > settings.held()) {
      held.remove(held.size() - 1);
      if (settings.replacing()) setFloor();
    }
  }

  private void setFloor() {
    floor = held.get(held.size() - 1).place;
    touched = true;
  }

  private int place(Ranked row) {
    int low = 0;
    for (int high = held.size() - 1; low <= high; ) {
      int middle = (low + high) >>> 1;
      int compared = held.get(middle).compareTo(row.place);
      if (compared == 0) return middle;
      if (compared < 0) low = middle + 1;
      else high = middle - 1;
    }
    return -low - 1;
  }

  private void refill() {
    PriorityQueue<Ranked> found = new PriorityQueue<>(FIRST.reversed());
    boolean more = false;
    var rows = all.values();
    while (rows.hasNext()) {
      found.add(whole(rows.next()));
      if (found.size() > settings.held()) {
        found.remove();
        more = true;
      }
    }
    held.clear();
    held.addAll(found);
    held.sort(FIRST);
    floor = null;
    if (more) setFloor();
    touched = true;
  }

  private List<Ranked> best() {
    return held.subList(0, Math.min(settings.n(), held.size()));
  }

  private boolean differs(int rank, List<Ranked> after) {
    return rank >= before.size() || rank >= after.size() || before.get(rank).compareTo(after.get(rank).place) != 0;
  }

  private byte[] row(Ranked ranked) {
    return ranked.row != null ? ranked.row : whole(all.getValue(ranked.of())).row;
  }

  private byte[] formerly(Ranked ranked) {
    byte[] row = replaced.get(ByteBuffer.wrap(ranked.of()));
    return settings.replacing() && row != null ? row : row(ranked);
  }

  private static Row told(byte[] row, int rank, int diff) {
    return RowFactory.create(Told.RESULT, null, row, rank + 1, diff);
  }

  /** For people: see Kept. Of rows that can be replaced, those behind the ones in order are told as a number. */
  static void show(JsonNode json, byte[] bytes, Map<ByteBuffer, byte[]> all, ObjectNode out) {
    Best best = new Best(new TopSettings(json), null, null, bytes);
    ArrayNode shown = out.putArray("rows");
    for (Ranked row : best.held) {
      byte[] packed = row.row != null ? row.row : best.whole(all.get(ByteBuffer.wrap(row.of()))).row;
      shown.add(Kept.row(packed, json.get("schema").asText()));
    }
    out.put("behind", Math.max(0, all.size() - best.held.size()));
  }

  private Ranked whole(byte[] bytes) {
    return Stored.read(bytes, FORM, (in, form) -> Ranked.read(in, settings.timed(), true));
  }

  private byte[] written() {
    return Stored.write(FORM, out -> {
      out.writeBoolean(changed);
      if (settings.windowed()) out.writeLong(endUs);
      out.writeBoolean(floor != null);
      if (floor != null) Ranked.bytes(floor, out);
      Ranked.length(timersMs.size(), out);
      for (long each : timersMs) out.writeLong(each);
      Ranked.length(held.size(), out);
      for (Ranked row : held) row.write(out, settings.timed(), !settings.replacing());
    });
  }

  private void read(byte[] bytes) {
    Stored.read(bytes, FORM, (in, form) -> {
      changed = in.readBoolean();
      if (settings.windowed()) endUs = in.readLong();
      if (in.readBoolean()) floor = Ranked.bytes(in);
      for (int timers = Ranked.length(in); timers > 0; timers--) timersMs.add(in.readLong());
      for (int rows = Ranked.length(in); rows > 0; rows--) {
        held.add(Ranked.read(in, settings.timed(), !settings.replacing()));
      }
      return null;
    });
  }
}
