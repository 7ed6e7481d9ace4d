package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.ValueState;

/**
 * The rows of the key at hand that may still find others, by stream. Few are kept in one value. What is more than that
 * goes into parts of their own, which are not written again, and are read only by those who can find something there:
 * the value has the times of each.
 */
final class JoinState {
  private static final int FORM = 1;
  private static final long NO_TIMER = 0;

  private record Part(long id, long firstUs, long lastUs) {}

  /** What is kept of a key; `parts` and `inline` are by stream. */
  private record Held(long timerMs, long nextId, List<List<Part>> parts, JoinRows[] inline) {}

  private final JoinSettings settings;
  private final SharedTimers shared;
  private final ValueState<byte[]> state;
  private final MapState<Long, byte[]> stored;

  /** By stream. */
  private JoinRows[] inline;
  private List<List<Part>> parts;
  private long nextId;
  private long timerMs;

  JoinState(JoinSettings settings, StatefulProcessorHandle handle, SharedTimers shared) {
    this.settings = settings;
    this.shared = shared;
    state = handle.getValueState("rows", BoundOnce.BYTES, TTLConfig.NONE());
    stored = handle.getMapState("parts", BoundOnce.LONG, BoundOnce.BYTES, TTLConfig.NONE());
  }

  void load() {
    byte[] bytes = state.get();
    Held held = bytes == null ? nothing(settings) : read(bytes, settings);
    timerMs = held.timerMs;
    nextId = held.nextId;
    parts = held.parts;
    inline = held.inline;
  }

  private static Held nothing(JoinSettings settings) {
    List<List<Part>> parts = new ArrayList<>();
    for (int stream = 0; stream < settings.streams(); stream++) parts.add(new ArrayList<>());
    return new Held(NO_TIMER, 0, parts, JoinRows.of(settings.streams()));
  }

  private static Held read(byte[] bytes, JoinSettings settings) {
    return Stored.read(bytes, FORM, (in, form) -> {
      Held held = nothing(settings);
      long timerMs = VarLong.read(in);
      long nextId = VarLong.read(in);
      for (int stream = 0; stream < settings.streams(); stream++) {
        for (long left = VarLong.read(in); left > 0; left--) {
          held.parts.get(stream).add(new Part(VarLong.read(in), in.readLong(), in.readLong()));
        }
        held.inline[stream] = JoinRows.read(in);
      }
      return new Held(timerMs, nextId, held.parts, held.inline);
    });
  }

  private static JoinRows part(byte[] bytes) {
    return Stored.read(bytes, FORM, (in, form) -> JoinRows.read(in));
  }

  /** For people: see Kept. Of each stream its rows in the order of time, each with the last time of another that fits. */
  static void show(JsonNode json, byte[] bytes, Map<Long, byte[]> stored, ObjectNode out) {
    JoinSettings settings = new JoinSettings(json);
    Held held = read(bytes, settings);
    ArrayNode streams = out.putArray("streams");
    for (int number = 0; number < settings.streams(); number++) {
      int stream = number;
      String schema = json.get("schemas").get(stream).toString();
      JoinRows rows = new JoinRows();
      for (Part each : held.parts.get(stream)) rows.addAll(part(stored.get(each.id)));
      rows.addAll(held.inline[stream]);
      rows.sort();
      ArrayNode shown = streams.addArray();
      rows.each().forEach(each -> shown.addObject()
          .put("time", each.timeUs())
          .put("until", settings.untilUs(stream, each.timeUs()))
          .put("row", Kept.row(each.row(), schema)));
    }
  }

  /** The kept rows of the first stream around which some of these may be, and others. */
  JoinRows keptInTheMiddle(JoinRows[] fresh) {
    long fromUs = Long.MAX_VALUE;
    long toUs = Long.MIN_VALUE;
    for (int stream = 1; stream < fresh.length; stream++) {
      if (fresh[stream].isEmpty()) continue;
      fromUs = Math.min(fromUs, fresh[stream].firstUs() - settings.lastUs()[stream]);
      toUs = Math.max(toUs, fresh[stream].lastUs() - settings.firstUs()[stream]);
    }
    return kept(0, fromUs, toUs);
  }

  /** The kept rows of another stream that may be around some of these, and others. */
  JoinRows keptAround(int stream, JoinRows middle) {
    if (middle.isEmpty()) return new JoinRows();
    return kept(stream, middle.firstUs() + settings.firstUs()[stream], middle.lastUs() + settings.lastUs()[stream]);
  }

  private JoinRows kept(int stream, long fromUs, long toUs) {
    if (fromUs > toUs) return new JoinRows();
    JoinRows found = new JoinRows();
    for (Part part : parts.get(stream)) {
      if (part.firstUs > toUs || part.lastUs < fromUs) continue;
      found.addAll(part(stored.getValue(part.id)));
    }
    found.sort();
    return JoinRows.sorted(found, inline[stream]);
  }

  /** One that was set before the key was last empty changes nothing. Whom a key follows may have its timer of another mode. */
  void fired(long expiredMs) {
    if (Forgetting.same(expiredMs, timerMs)) timerMs = NO_TIMER;
  }

  /** Keeps new rows of the key at hand, and lets go those that can make nothing new any more. */
  void add(Row key, JoinRows[] fresh, long watermarkUs) {
    long untilUs = Long.MIN_VALUE;
    for (int number = 0; number < fresh.length; number++) {
      int stream = number;
      parts.get(stream).removeIf(part -> {
        boolean over = settings.untilUs(stream, part.lastUs) < watermarkUs;
        if (over) stored.removeKey(part.id);
        return over;
      });
      // Others than before: those may be what is being told.
      JoinRows rows = new JoinRows();
      for (JoinRows some : List.of(inline[stream], fresh[stream])) {
        rows.addAll(some, each -> settings.untilUs(stream, each.timeUs()) >= watermarkUs);
      }
      rows.sort();
      inline[stream] = rows.bytes() > settings.mostInline() ? putAway(stream, rows) : rows;
      for (Part part : parts.get(stream)) untilUs = Math.max(untilUs, settings.untilUs(stream, part.lastUs));
      if (!rows.isEmpty()) untilUs = Math.max(untilUs, settings.untilUs(stream, rows.lastUs()));
    }
    save(key, untilUs);
  }

  private JoinRows putAway(int stream, JoinRows rows) {
    for (JoinRows each : rows.parts(settings.mostTogether())) {
      parts.get(stream).add(new Part(nextId, each.firstUs(), each.lastUs()));
      stored.updateValue(nextId++, Stored.write(FORM, each::write));
    }
    return new JoinRows();
  }

  /** One timer is set at a time, which keys share, for when all is over; what is over before goes with the key's next row. */
  private void save(Row key, long untilUs) {
    if (untilUs == Long.MIN_VALUE) {
      state.clear();
      return;
    }
    if (timerMs == NO_TIMER) timerMs = shared.join(key, Math.floorDiv(untilUs, 1_000L) + 1);
    state.update(Stored.write(FORM, out -> {
      VarLong.write(timerMs, out);
      VarLong.write(nextId, out);
      for (int stream = 0; stream < inline.length; stream++) {
        VarLong.write(parts.get(stream).size(), out);
        for (Part part : parts.get(stream)) {
          VarLong.write(part.id, out);
          out.writeLong(part.firstUs);
          out.writeLong(part.lastUs);
        }
        inline[stream].write(out);
      }
    }));
  }
}
