package millrace.kernel;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The windows of one key where each is made of whole slices, as long as from one window's begin to the next, and none
 * takes rows after its end: a row is added to one slice, however many windows it counts in, and a window is put together
 * when it is told. The same in plain Python is `model/windows.py`.
 *
 * What holds: windows that end by `doneUs` are over, and no slice will be looked at for them again. Those that a new
 * watermark ends are told before rows are added under it, because slices are shared: a row may be late for one window and
 * in time for the next.
 */
final class SliceProcessor extends Keeper<Row, Row, Row> {
  private static final int FORM = 1;
  private static final long NO_TIMER = Long.MAX_VALUE;

  private final WindowSettings settings;
  private final Aggregate[] aggregates;
  private final WindowRows rows;
  private final int[] positions;
  private final int step;
  private transient ValueState<byte[]> state;

  /** `positions` are those of Windows; `step` is that of the column which says in which slice a row is. */
  SliceProcessor(
      String told, WindowSettings settings, Aggregate[] aggregates, WindowRows rows, int[] positions, int step) {
    super(told);
    this.settings = settings;
    this.aggregates = aggregates;
    this.rows = rows;
    this.positions = positions;
    this.step = step;
  }

  /** By their begins, what each slice holds. */
  private static final class Slices {
    final TreeMap<Long, Object[]> held = new TreeMap<>();
    long doneUs = Long.MIN_VALUE;
    long timerMs = NO_TIMER;
  }

  @Override
  public void init(OutputMode mode, TimeMode time) {
    state = getHandle().getValueState("slices", BoundOnce.BYTES, TTLConfig.NONE());
  }

  @Override
  public Iterator<Row> handleInputRows(Row key, Iterator<Row> input, TimerValues timers) {
    long watermarkUs = timers.getCurrentWatermarkInMs() * 1_000;
    Slices slices = load();
    List<Row> out = new ArrayList<>();
    close(key, slices, watermarkUs, out);
    TreeSet<Long> changed = new TreeSet<>();
    while (input.hasNext()) apply(key, input.next(), slices, watermarkUs, changed, out);
    if (!settings.once()) tellOpen(key, slices, changed, watermarkUs, out);
    save(slices);
    return CollectionConverters.asScala(out.iterator());
  }

  @Override
  public Iterator<Row> handleExpiredTimer(Row key, TimerValues timers, ExpiredTimerInfo expired) {
    Slices slices = load();
    List<Row> out = new ArrayList<>();
    close(key, slices, timers.getCurrentWatermarkInMs() * 1_000, out);
    slices.timerMs = NO_TIMER;
    save(slices);
    return CollectionConverters.asScala(out.iterator());
  }

  /** Tells the windows that have ended since, and forgets what no other will need. */
  private void close(Row key, Slices slices, long watermarkUs, List<Row> out) {
    if (watermarkUs <= slices.doneUs) return;
    if (settings.once() && !slices.held.isEmpty()) {
      long startUs = firstEndAfter(slices.held.firstKey(), slices.doneUs) - settings.sizeUs();
      while (startUs + settings.sizeUs() <= watermarkUs) {
        Long next = slices.held.ceilingKey(startUs);
        if (next == null) break;
        if (next >= startUs + settings.sizeUs()) {
          startUs = next + settings.everyUs() - settings.sizeUs();
          continue;
        }
        out.add(told(key, slices, startUs));
        startUs += settings.everyUs();
      }
    }
    slices.doneUs = watermarkUs;
    slices.held.headMap(watermarkUs - settings.sizeUs(), true).clear();
  }

  private void apply(
      Row key, Row row, Slices slices, long watermarkUs, TreeSet<Long> changed, List<Row> out) {
    long sliceUs = row.getLong(step);
    refuse(key, row, sliceUs, watermarkUs, out);
    if (sliceUs + settings.sizeUs() <= watermarkUs) return;
    Object[] held = slices.held.computeIfAbsent(sliceUs, unused -> empty());
    long timeUs = positions[0] < 0 ? 0 : row.getLong(positions[0]);
    for (int place = 0; place < aggregates.length; place++) {
      held[place] = aggregates[place].take(held[place], row, positions[2 + place], timeUs);
    }
    changed.add(sliceUs);
  }

  /** Tells of the windows of a row that are over; the earliest one counts for the rows that this one stands for. */
  private void refuse(Row key, Row row, long sliceUs, long watermarkUs, List<Row> out) {
    long endUs = sliceUs + settings.everyUs();
    if (endUs > watermarkUs) return;
    Object whole = settings.keepsRefused() ? row.get(positions[positions.length - 1]) : null;
    long firsts = row.getLong(positions[1]);
    for (long n = 0; n < firsts; n++) {
      out.add(rows.refused(key, endUs - settings.sizeUs(), endUs, true, watermarkUs, whole));
    }
    if (!settings.keepsRefused()) return;
    for (endUs += settings.everyUs(); endUs <= Math.min(watermarkUs, sliceUs + settings.sizeUs()); endUs += settings.everyUs()) {
      out.add(rows.refused(key, endUs - settings.sizeUs(), endUs, false, watermarkUs, whole));
    }
  }

  private void tellOpen(Row key, Slices slices, TreeSet<Long> changed, long watermarkUs, List<Row> out) {
    TreeSet<Long> starts = new TreeSet<>();
    for (long sliceUs : changed) {
      for (long startUs = sliceUs; startUs > sliceUs - settings.sizeUs(); startUs -= settings.everyUs()) {
        if (startUs + settings.sizeUs() > watermarkUs) starts.add(startUs);
      }
    }
    for (long startUs : starts) out.add(told(key, slices, startUs));
  }

  private Row told(Row key, Slices slices, long startUs) {
    Object[] all = empty();
    for (Object[] held : slices.held.subMap(startUs, startUs + settings.sizeUs()).values()) {
      for (int place = 0; place < all.length; place++) all[place] = aggregates[place].merge(all[place], held[place]);
    }
    return rows.result(key, startUs, startUs + settings.sizeUs(), aggregates, all, List.of());
  }

  private Object[] empty() {
    Object[] held = new Object[aggregates.length];
    for (int place = 0; place < held.length; place++) held[place] = aggregates[place].empty();
    return held;
  }

  /** Where the first window ends that holds this slice and is not over. */
  private long firstEndAfter(long sliceUs, long doneUs) {
    long endUs = sliceUs + settings.everyUs();
    return endUs > doneUs ? endUs : endUs + (Math.floorDiv(doneUs - endUs, settings.everyUs()) + 1) * settings.everyUs();
  }

  /** For people: see Kept. */
  static void show(byte[] stored, Aggregate[] aggregates, ObjectNode out) {
    ArrayNode shown = out.putArray("slices");
    read(stored, aggregates).held.forEach((startUs, held) ->
        Aggregate.show(aggregates, held, shown.addObject().put("start", startUs).putArray("values")));
  }

  private Slices load() {
    byte[] stored = state.get();
    return stored == null ? new Slices() : read(stored, aggregates);
  }

  private static Slices read(byte[] stored, Aggregate[] aggregates) {
    Slices slices = new Slices();
    return Stored.read(stored, FORM, (in, form) -> {
      slices.doneUs = in.readLong();
      slices.timerMs = in.readLong();
      int count = in.readInt();
      for (int number = 0; number < count; number++) {
        long sliceUs = in.readLong();
        Object[] held = new Object[aggregates.length];
        for (int place = 0; place < held.length; place++) held[place] = aggregates[place].read(in);
        slices.held.put(sliceUs, held);
      }
      return slices;
    });
  }

  private void save(Slices slices) {
    if (slices.held.isEmpty()) {
      state.clear();
      return;
    }
    long firstUs = slices.held.firstKey();
    long needUs = settings.once() ? firstEndAfter(firstUs, slices.doneUs) : firstUs + settings.sizeUs();
    long needMs = Math.floorDiv(needUs + 999, 1_000L);
    if (needMs < slices.timerMs) {
      getHandle().registerTimer(needMs);
      slices.timerMs = needMs;
    }
    state.update(Stored.write(FORM, out -> {
      out.writeLong(slices.doneUs);
      out.writeLong(slices.timerMs);
      out.writeInt(slices.held.size());
      for (Map.Entry<Long, Object[]> slice : slices.held.entrySet()) {
        out.writeLong(slice.getKey());
        for (int place = 0; place < aggregates.length; place++) aggregates[place].write(slice.getValue()[place], out);
      }
    }));
  }
}
