package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.function.Function;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.ValueState;

/**
 * What is kept of the key at hand: the versions of its row, the events that may still be told or corrected, and the
 * place in the log of the newest version. `toldUs`: events before this time were told, where they are told once.
 */
final class AsOfState {
  private static final int FORM = 1;
  private static final long NO_TIMER = 0;

  private final AsOfSettings settings;
  private final StatefulProcessorHandle handle;
  private final Forgetting forgetting;
  private final ValueState<byte[]> state;
  private final History.Nodes versionNodes;
  private final History.Nodes rows;
  private final History.Nodes eventNodes;
  private final History.Nodes eventRows;

  Versions versions;
  KeptEvents events;
  long toldUs;
  private HeldRow place;
  private long timerMs;

  AsOfState(AsOfSettings settings, StatefulProcessorHandle handle, Forgetting forgetting) {
    this(
        settings, handle, forgetting, handle.getValueState("history", BoundOnce.BYTES, TTLConfig.NONE()),
        name -> History.Nodes.in(handle.getMapState(name, BoundOnce.LONG, BoundOnce.BYTES, TTLConfig.NONE())));
  }

  private AsOfState(
      AsOfSettings settings, StatefulProcessorHandle handle, Forgetting forgetting, ValueState<byte[]> state,
      Function<String, History.Nodes> maps) {
    this.settings = settings;
    this.handle = handle;
    this.forgetting = forgetting;
    this.state = state;
    versionNodes = maps.apply("versionNodes");
    rows = maps.apply("rows");
    eventNodes = maps.apply("eventNodes");
    eventRows = maps.apply("events");
  }

  /** For people: see Kept. `held` is the key's value, `maps` has the entries of each map. */
  static void show(JsonNode json, byte[] held, Function<String, Map<Long, byte[]>> maps, ObjectNode out) {
    AsOfState state = new AsOfState(AsOfSettings.of(json), null, null, null, name -> History.Nodes.read(maps.apply(name)));
    state.read(held);
    if (state.toldUs != Long.MIN_VALUE) out.put("toldUs", state.toldUs);
    ArrayNode versions = out.putArray("versions");
    state.versions.each((timeUs, row) -> {
      versions.addObject().put("time", timeUs).put("row", row == null ? null : row(row, json.get("rowSchema")));
    });
    ArrayNode events = out.putArray("events");
    state.events.walk(Long.MIN_VALUE, Long.MAX_VALUE, (timeUs, event) -> {
      events.addObject().put("time", timeUs).put("row", row(event, json.get("eventSchema")));
    });
  }

  /** Those of a captured table are texts. */
  private static String row(byte[] row, JsonNode schema) {
    return schema.isNull() ? new String(row, StandardCharsets.UTF_8) : Kept.row(row, schema.asText());
  }

  void load() {
    read(state.get());
  }

  private void read(byte[] held) {
    versions = new Versions(
        settings.versions(), versionNodes, rows, settings.whole(), settings.captured(), settings.goneUs());
    events = new KeptEvents(settings.events(), eventNodes, eventRows);
    toldUs = Long.MIN_VALUE;
    place = new HeldRow(null, 0, 0);
    timerMs = NO_TIMER;
    if (held == null) return;
    Stored.read(held, FORM, (in, form) -> {
      timerMs = VarLong.read(in);
      if (in.readBoolean()) toldUs = VarLong.read(in);
      if (settings.captured()) place = new HeldRow(null, (int) VarLong.read(in), VarLong.read(in));
      versions.read(in);
      events.read(in);
      return null;
    });
  }

  /** The row as the last record left it, with that record's place; null if there is none. */
  HeldRow newest() {
    byte[] row = versions.newestRow();
    return row == null ? null : new HeldRow(row, place.getPartition(), place.getOffset());
  }

  void placed(HeldRow newest) {
    if (newest != null) place = newest;
  }

  /** Cuts the versions to those that an event can ask for that is kept or may come. */
  void cut(long watermarkUs) {
    Long firstUs = events.firstUs(Long.MIN_VALUE);
    long askedFromUs = watermarkUs - settings.graceUs();
    versions.cut(firstUs == null ? askedFromUs : Math.min(askedFromUs, firstUs));
  }

  void fired(long expiredMs) {
    if (expiredMs == timerMs) timerMs = NO_TIMER;
  }

  void save() {
    if (versions.isEmpty() && events.isEmpty()) {
      state.clear();
      return;
    }
    long needMs = neededMs();
    if (needMs != NO_TIMER && !settings.once()) needMs = forgetting.timerMs(needMs); // nobody waits for it
    if (needMs != NO_TIMER && (timerMs == NO_TIMER || needMs < timerMs)) {
      handle.registerTimer(needMs);
      timerMs = needMs;
    }
    state.update(Stored.write(FORM, out -> {
      VarLong.write(timerMs, out);
      out.writeBoolean(toldUs != Long.MIN_VALUE);
      if (toldUs != Long.MIN_VALUE) VarLong.write(toldUs, out);
      if (settings.captured()) {
        VarLong.write(place.getPartition(), out);
        VarLong.write(place.getOffset(), out);
      }
      versions.write(out);
      events.write(out);
    }));
  }

  /** When time alone changes something next: an event is told or let go, versions are not needed any more. */
  private long neededMs() {
    long needMs = Long.MAX_VALUE;
    Long untoldUs = settings.once() ? events.firstUs(toldUs) : null;
    if (untoldUs != null) needMs = passedMs(untoldUs);
    Long firstUs = events.firstUs(Long.MIN_VALUE);
    if (firstUs != null) needMs = Math.min(needMs, passedMs(firstUs + settings.graceUs()));
    Long cutUs = versions.cutUs();
    if (cutUs != null) needMs = Math.min(needMs, Math.floorDiv(cutUs + settings.graceUs() + 999, 1_000L));
    return needMs == Long.MAX_VALUE ? NO_TIMER : needMs;
  }

  /** The first watermark that is past a time. */
  private static long passedMs(long timeUs) {
    return Math.floorDiv(timeUs, 1_000L) + 1;
  }
}
