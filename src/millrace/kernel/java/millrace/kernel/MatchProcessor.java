package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
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
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The patterns of one key on a stream. A row comes as its key, `time` (µs), `flags`, values and, if refused rows are
 * wanted, itself.
 *
 * What holds: a row before the watermark is refused; in order of arrival also one that is older than the newest of its
 * key, whose time is kept until the watermark has reached it. What time alone decides is told by a timer. One that is
 * no longer needed may fire, and does nothing.
 */
final class MatchProcessor extends Keeper<Row, Row, Row> {
  private static final int FORM = 1;
  private static final long NONE = Long.MAX_VALUE;

  private final MatchSettings settings;
  private final int keys;
  private transient ValueState<byte[]> state;
  private transient MapState<Long, byte[]> older;
  private transient Comparator<MatchRow> order;
  private transient Forgetting forgetting;

  MatchProcessor(String told, MatchSettings settings, int keys) {
    super(told);
    this.settings = settings;
    this.keys = keys;
  }

  /** What is held of a key. */
  private static final class Held {
    final Matching matching;
    long timerMs = NONE;
    long newestUs = Long.MIN_VALUE;

    Held(Matching matching) {
      this.matching = matching;
    }
  }

  @Override
  public void init(OutputMode mode, TimeMode time) {
    state = getHandle().getValueState("newest", BoundOnce.BYTES, TTLConfig.NONE());
    older = getHandle().getMapState("older", BoundOnce.LONG, BoundOnce.BYTES, TTLConfig.NONE());
    order = MatchRow.order(settings.carriers());
    forgetting = new Forgetting(this, getHandle());
  }

  @Override
  public Iterator<Row> handleInputRows(Row key, Iterator<Row> rows, TimerValues timers) {
    List<Row> out = settings.arrival() ? forgetting.tend(key, timers) : new ArrayList<>();
    long watermarkUs = timers.getCurrentWatermarkInMs() * 1_000;
    List<MatchRow> timely = new ArrayList<>();
    Held held = load();
    // Against what the key had shown before this call: within it, rows are in order.
    long knownUs = settings.arrival() ? Math.max(watermarkUs, held.newestUs) : watermarkUs;
    while (rows.hasNext()) {
      Row row = rows.next();
      if (row.getLong(keys) < knownUs) out.add(refused(key, row, knownUs));
      else timely.add(taken(row, keys, settings));
    }
    if (timely.isEmpty()) return CollectionConverters.asScala(out.iterator());
    if (timely.size() > 1) timely.sort(order);
    for (MatchRow row : timely) {
      if (settings.arrival()) held.matching.rows.append(row);
      else held.matching.rows.insert(row);
    }
    held.newestUs = Math.max(held.newestUs, timely.get(timely.size() - 1).timeUs());
    advance(key, held, watermarkUs, out);
    return CollectionConverters.asScala(out.iterator());
  }

  @Override
  public Iterator<Row> handleExpiredTimer(Row key, TimerValues timers, ExpiredTimerInfo expired) {
    List<Row> out = new ArrayList<>();
    if (!state.exists()) return CollectionConverters.asScala(out.iterator());
    Held held = load();
    if (expired.getExpiryTimeInMs() == held.timerMs) held.timerMs = NONE;
    advance(key, held, timers.getCurrentWatermarkInMs() * 1_000, out);
    return CollectionConverters.asScala(out.iterator());
  }

  private void advance(Row key, Held held, long watermarkUs, List<Row> out) {
    List<Matching.Found> found = new ArrayList<>();
    long before = held.matching.partials.count();
    held.matching.advance(watermarkUs, found);
    for (Matching.Found match : found) out.add(told(key, match, keys, settings));
    long more = held.matching.partials.count() - before;
    if (more != 0) out.add(partial(key, more));
    save(held, watermarkUs);
  }

  private Held load() {
    Held held = new Held(new Matching(settings, new MatchRows.Shelf() {
      @Override public byte[] get(long id) { return older.getValue(id); }
      @Override public void put(long id, byte[] piece) { older.updateValue(id, piece); }
      @Override public void remove(long id) { older.removeKey(id); }
    }));
    byte[] bytes = state.get();
    return bytes == null ? held : read(bytes, held);
  }

  private static Held read(byte[] bytes, Held held) {
    return Stored.read(bytes, FORM, (in, form) -> {
      held.timerMs = in.readLong();
      held.newestUs = in.readLong();
      held.matching.read(in);
      return held;
    });
  }

  /** For people: see Kept. */
  static void show(JsonNode json, byte[] bytes, Map<Long, byte[]> older, ObjectNode out) {
    Held held = new Held(new Matching(MatchSettings.of(json), new MatchRows.Shelf() {
      @Override public byte[] get(long id) { return older.get(id); }
      @Override public void put(long id, byte[] piece) { throw new UnsupportedOperationException(); }
      @Override public void remove(long id) { throw new UnsupportedOperationException(); }
    }));
    read(bytes, held).matching.show(out);
  }

  private void save(Held held, long watermarkUs) {
    long needUs = held.matching.nextUs();
    boolean awaited = needUs != NONE;
    if (!awaited && settings.arrival() && held.newestUs > watermarkUs) needUs = held.newestUs;
    if (needUs == NONE) {
      state.clear();
      return;
    }
    long needMs = Math.floorDiv(needUs + 999, 1_000L);
    if (!awaited) needMs = forgetting.timerMs(needMs);
    if (needMs < held.timerMs) forgetting.set(needMs);
    long timerMs = Math.min(needMs, held.timerMs);
    state.update(Stored.write(FORM, out -> {
      out.writeLong(timerMs);
      out.writeLong(held.newestUs);
      held.matching.write(out);
    }));
  }

  static MatchRow taken(Row row, int keys, MatchSettings settings) {
    Object[] values = new Object[settings.carriers().length];
    for (int slot = 0; slot < values.length; slot++) values[slot] = row.get(keys + 2 + slot);
    return new MatchRow(row.getLong(keys), row.getLong(keys + 1), values);
  }

  private Row refused(Row key, Row row, long knownUs) {
    Object[] out = blank(key, keys, settings);
    int rest = keys + 2 + settings.measures().length;
    out[rest] = Told.REFUSED;
    out[rest + 1] = knownUs - row.getLong(keys);
    if (settings.keepsRefused()) out[rest + 2] = row.get(keys + 2 + settings.carriers().length);
    return RowFactory.create(out);
  }

  private Row partial(Row key, long more) {
    Object[] out = blank(key, keys, settings);
    int rest = keys + 2 + settings.measures().length;
    out[rest] = Told.PARTIAL;
    out[rest + 1] = more;
    return RowFactory.create(out);
  }

  static Row told(Row key, Matching.Found match, int keys, MatchSettings settings) {
    Object[] out = blank(key, keys, settings);
    out[keys] = match.startUs();
    out[keys + 1] = match.endUs();
    System.arraycopy(match.results(), 0, out, keys + 2, match.results().length);
    out[keys + 2 + match.results().length] = Told.RESULT;
    return RowFactory.create(out);
  }

  private static Object[] blank(Row key, int keys, MatchSettings settings) {
    Object[] out = new Object[keys + 4 + settings.measures().length + (settings.keepsRefused() ? 1 : 0)];
    for (int place = 0; place < keys; place++) out[place] = key.get(place);
    return out;
  }
}
