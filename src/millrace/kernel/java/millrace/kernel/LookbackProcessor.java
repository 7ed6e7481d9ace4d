package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The lookbacks of one key; `model/lookback.py` is the same in plain Python.
 *
 * What holds: all rows of a call are put in their places before any is answered, so that their order does not matter. An
 * event is taken as long as the watermark is not more than the grace after it, so no interval that is still asked for
 * begins before `keepUs` behind the watermark; what is older goes. A row is kept as long as an event can come that
 * changes what was told for it. One timer at a time is set for a key: it ends what a silent one left. Of closed windows
 * all come behind the watermark of the epoch before, which is not known here: they are forgotten by timers alone, which
 * Spark fires after the rows.
 */
final class LookbackProcessor extends Keeper<Row, Row, Row> {
  private static final int FORM = 1;
  private static final long NO_TIMER = 0;

  private final LookbackSettings settings;
  private transient ValueState<byte[]> state;
  private transient MapState<Long, byte[]> nodes;
  private transient MapState<Long, Row> rows;
  private transient Forgetting forgetting;

  // Of the key at hand.
  private transient History history;
  private transient long timerMs;
  private transient long nextRow;
  private transient long rowsFromUs;

  LookbackProcessor(String told, LookbackSettings settings) {
    super(told);
    this.settings = settings;
  }

  /** An event that is taken, and what came with it. */
  private record Taken(PastEvent event, Row row, boolean late) {}

  /** An event that was told before, and with what. */
  private record Before(PastEvent event, Object[] told) {}

  @Override
  public void init(OutputMode mode, TimeMode time) {
    state = getHandle().getValueState("history", BoundOnce.BYTES, TTLConfig.NONE());
    nodes = getHandle().getMapState("nodes", BoundOnce.LONG, BoundOnce.BYTES, TTLConfig.NONE());
    if (settings.corrects()) {
      rows = getHandle().getMapState("rows", BoundOnce.LONG, Lookup.exact(settings.event()), TTLConfig.NONE());
    }
    forgetting = new Forgetting(this, getHandle());
  }

  @Override
  public Iterator<Row> handleInputRows(Row key, Iterator<Row> given, TimerValues timers) {
    if (!settings.closed()) forgetting.tend(key, timers);
    long watermarkUs = timers.getCurrentWatermarkInMs() * 1_000;
    load();
    if (!settings.closed()) forget(watermarkUs);
    List<Row> out = new ArrayList<>();
    List<Taken> taken = taken(given, watermarkUs, out);
    List<Before> before = settings.corrects() ? reached(taken) : List.of();
    for (Taken each : taken) {
      history.add(each.event);
      if (settings.corrects()) rows.updateValue(each.event.row(), each.row);
    }
    for (Taken each : taken) {
      Object[] answers = settings.answers(history, each.event);
      out.add(told(each.row, answers, false, each.late ? Told.ALLOWED : Told.RESULT, null));
    }
    for (Before each : before) {
      Object[] answers = settings.answers(history, each.event);
      if (Arrays.deepEquals(answers, each.told)) continue;
      out.add(told(rows.getValue(each.event.row()), answers, true, Told.RESULT, null));
    }
    save();
    return CollectionConverters.asScala(out.iterator());
  }

  @Override
  public Iterator<Row> handleExpiredTimer(Row key, TimerValues timers, ExpiredTimerInfo expired) {
    load();
    if (expired.getExpiryTimeInMs() == timerMs) timerMs = NO_TIMER;
    forget(timers.getCurrentWatermarkInMs() * 1_000);
    save();
    return CollectionConverters.asScala(java.util.Collections.<Row>emptyIterator());
  }

  /** In the order of time; those that come too late are told as refused. */
  private List<Taken> taken(Iterator<Row> given, long watermarkUs, List<Row> out) {
    List<Taken> found = new ArrayList<>();
    Carrier[] slots = settings.shape().slots();
    while (given.hasNext()) {
      Row row = given.next();
      long timeUs = row.getLong(settings.keys());
      Row event = row.getStruct(settings.keys() + 1);
      boolean late = !settings.closed() && timeUs < watermarkUs;
      if (late && timeUs + settings.graceUs() < watermarkUs) {
        out.add(told(event, null, false, Told.REFUSED, watermarkUs - timeUs));
        continue;
      }
      Object[] values = new Object[slots.length];
      for (int slot = 0; slot < slots.length; slot++) {
        int place = settings.keys() + 2 + slot;
        if (!row.isNullAt(place)) values[slot] = slots[slot].taken(row.get(place));
      }
      found.add(new Taken(new PastEvent(timeUs, nextRow++, values), event, late));
    }
    found.sort(Comparator.comparingLong(each -> each.event.timeUs()));
    return found;
  }

  /** The events whose intervals the new ones are in, with what was told for them. */
  private List<Before> reached(List<Taken> taken) {
    List<Before> found = new ArrayList<>();
    long doneUs = Long.MIN_VALUE;
    for (Taken each : taken) {
      long fromUs = Math.max(doneUs, each.event.timeUs());
      doneUs = each.event.timeUs() + settings.longestUs();
      history.walk(fromUs, doneUs, event -> found.add(new Before(event, settings.answers(history, event))));
    }
    return found;
  }

  private void forget(long watermarkUs) {
    long fromUs = watermarkUs - settings.graceUs();
    if (settings.corrects() && fromUs > rowsFromUs) {
      history.walk(rowsFromUs, fromUs, event -> rows.removeKey(event.row()));
      rowsFromUs = fromUs;
    }
    history.forget(fromUs - settings.longestUs());
  }

  private void load() {
    history = new History(settings.shape(), History.Nodes.in(nodes));
    timerMs = NO_TIMER;
    nextRow = 0;
    rowsFromUs = Long.MIN_VALUE;
    byte[] held = state.get();
    if (held == null) return;
    Head head = read(held, settings, history);
    timerMs = head.timerMs;
    nextRow = head.nextRow;
    rowsFromUs = head.rowsFromUs;
  }

  /** What stands before a key's history. */
  private record Head(long timerMs, long nextRow, long rowsFromUs) {}

  private static Head read(byte[] held, LookbackSettings settings, History history) {
    return Stored.read(held, FORM, (in, form) -> {
      long timerMs = VarLong.read(in);
      long nextRow = settings.corrects() ? VarLong.read(in) : 0;
      long rowsFromUs = settings.corrects() ? in.readLong() : Long.MIN_VALUE;
      history.read(in);
      return new Head(timerMs, nextRow, rowsFromUs);
    });
  }

  /** For people: see Kept. */
  static void show(JsonNode json, byte[] held, Map<Long, byte[]> nodes, ObjectNode out) {
    LookbackSettings settings = LookbackSettings.of(json, new StructType().add("row", new StructType()));
    History history = new History(settings.shape(), History.Nodes.read(nodes));
    read(held, settings, history);
    ArrayNode shown = out.putArray("events");
    history.walk(Long.MIN_VALUE, Long.MAX_VALUE, event -> {
      ArrayNode values = shown.addObject().put("time", event.timeUs()).putArray("values");
      for (Object value : event.values()) values.add(Kept.node(value));
    });
  }

  private void save() {
    Long lastUs = history.lastUs();
    if (lastUs == null) {
      state.clear();
      return;
    }
    if (!history.hasChanged() && timerMs != NO_TIMER) return;
    if (timerMs == NO_TIMER) {
      long neededMs = Math.floorDiv(lastUs + settings.longestUs() + settings.graceUs() + 999, 1_000L);
      timerMs = settings.closed() ? neededMs : forgetting.timerMs(neededMs);
      getHandle().registerTimer(timerMs);
    }
    state.update(Stored.write(FORM, out -> {
      VarLong.write(timerMs, out);
      if (settings.corrects()) {
        VarLong.write(nextRow, out);
        out.writeLong(rowsFromUs);
      }
      history.write(out);
    }));
  }

  private Row told(Row event, Object[] answers, boolean corrected, int kind, Long lateUs) {
    int results = settings.questions().length;
    Object[] out = new Object[results + 4];
    out[0] = event;
    if (answers != null) System.arraycopy(answers, 0, out, 1, results);
    out[results + 1] = corrected;
    out[results + 2] = kind;
    out[results + 3] = lateUs;
    return RowFactory.create(out);
  }
}
