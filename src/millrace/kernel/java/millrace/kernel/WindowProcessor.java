package millrace.kernel;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
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
 * The windows of one key; `model/windows.py` is the same in plain Python.
 *
 * What holds: within an epoch rows are taken latest first, so that the result does not depend on their order. A window
 * has closed when the watermark reaches its end; a row that reaches only windows whose grace is over is refused. Rows
 * that were added up before they came are all refused or all taken: the watermark stands still within an epoch. What
 * closed windows have to tell is told by timers, also in the epoch whose rows changed them: Spark fires timers after the
 * rows. A timer that is no longer needed may fire, and does nothing.
 */
final class WindowProcessor extends Keeper<Row, Row, Row> {
  private static final long NO_TIMER = Long.MAX_VALUE;

  private final WindowSettings settings;
  private final Aggregate[] aggregates;
  private final WindowRows rows;
  private final int[] positions;
  private transient ValueState<byte[]> state;

  WindowProcessor(
      String told, WindowSettings settings, Aggregate[] aggregates, WindowRows rows, int[] positions) {
    super(told);
    this.settings = settings;
    this.aggregates = aggregates;
    this.rows = rows;
    this.positions = positions;
  }

  @Override
  public void init(OutputMode mode, TimeMode time) {
    state = getHandle().getValueState("panes", BoundOnce.BYTES, TTLConfig.NONE());
  }

  @Override
  public Iterator<Row> handleInputRows(Row key, Iterator<Row> input, TimerValues timers) {
    long watermarkUs = timers.getCurrentWatermarkInMs() * 1_000;
    List<Pane> panes = new ArrayList<>();
    long timerMs = load(panes);
    List<Row> out = new ArrayList<>();
    boolean touched = false;
    Iterator<Row> ordered = settings.sessions() ? latestFirst(input) : input;
    while (ordered.hasNext()) touched |= apply(key, ordered.next(), panes, watermarkUs, out);
    if (touched) {
      if (!settings.once()) for (Pane pane : panes) if (pane.changed) out.add(result(key, pane));
      save(panes, timerMs);
    }
    return CollectionConverters.asScala(out.iterator());
  }

  @Override
  public Iterator<Row> handleExpiredTimer(Row key, TimerValues timers, ExpiredTimerInfo expired) {
    long watermarkUs = timers.getCurrentWatermarkInMs() * 1_000;
    List<Pane> panes = new ArrayList<>();
    load(panes);
    List<Row> out = new ArrayList<>();
    for (Pane pane : panes) if (pane.changed && pane.endUs <= watermarkUs) out.add(result(key, pane));
    panes.removeIf(pane -> pane.endUs + settings.graceUs() <= watermarkUs);
    save(panes, NO_TIMER);
    return CollectionConverters.asScala(out.iterator());
  }

  /** What a session is depends on the order of its rows; of other windows it does not, and none has to be held. */
  private Iterator<Row> latestFirst(Iterator<Row> rows) {
    List<Row> all = new ArrayList<>();
    while (rows.hasNext()) all.add(rows.next());
    if (all.size() > 1) all.sort(Comparator.comparingLong((Row row) -> row.getLong(positions[0])).reversed());
    return CollectionConverters.asScala(all.iterator());
  }

  /** Whether the row was taken. */
  private boolean apply(Row key, Row row, List<Pane> panes, long watermarkUs, List<Row> out) {
    long timeUs = positions[0] < 0 ? 0 : row.getLong(positions[0]);
    long startUs = settings.sessions() ? timeUs : key.getLong(rows.keys());
    long endUs = settings.sessions() ? timeUs + settings.gapUs() : key.getLong(rows.keys() + 1);
    long reachUs = endUs;
    for (Pane pane : panes) if (pane.startUs < endUs && startUs < pane.endUs) reachUs = Math.max(reachUs, pane.endUs);
    long firsts = row.getLong(positions[1]);
    if (reachUs + settings.graceUs() <= watermarkUs) {
      Object whole = settings.keepsRefused() ? row.get(positions[positions.length - 1]) : null;
      for (long n = 0; n < firsts; n++) out.add(rows.refused(key, startUs, endUs, true, watermarkUs, whole));
      if (firsts == 0 && settings.keepsRefused()) out.add(rows.refused(key, startUs, endUs, false, watermarkUs, whole));
      return false;
    }
    if (reachUs <= watermarkUs) {
      for (long n = 0; n < firsts; n++) out.add(rows.allowed(key, startUs, endUs));
    }
    add(pane(panes, startUs, endUs), row, timeUs);
    return true;
  }

  /** The pane of these edges: with all that it touches become one. */
  private Pane pane(List<Pane> panes, long startUs, long endUs) {
    Pane found = null;
    for (int place = panes.size() - 1; place >= 0; place--) {
      Pane pane = panes.get(place);
      if (pane.startUs >= endUs || startUs >= pane.endUs) continue;
      if (found == null) {
        found = pane;
      } else {
        found.take(pane, aggregates);
        panes.remove(place);
      }
    }
    if (found == null) panes.add(found = new Pane(startUs, endUs, aggregates));
    found.startUs = Math.min(found.startUs, startUs);
    found.endUs = Math.max(found.endUs, endUs);
    return found;
  }

  private void add(Pane pane, Row row, long timeUs) {
    pane.changed = true;
    for (int place = 0; place < aggregates.length; place++) {
      pane.held[place] = aggregates[place].take(pane.held[place], row, positions[2 + place], timeUs);
    }
  }

  private long load(List<Pane> panes) {
    byte[] held = state.get();
    return held == null ? NO_TIMER : Pane.read(held, panes, aggregates);
  }

  private void save(List<Pane> panes, long timerMs) {
    if (panes.isEmpty()) {
      state.clear();
      return;
    }
    long needMs = NO_TIMER;
    for (Pane pane : panes) {
      long atUs = settings.once() && pane.changed ? pane.endUs : pane.endUs + settings.graceUs();
      needMs = Math.min(needMs, Math.floorDiv(atUs + 999, 1_000L));
    }
    if (needMs < timerMs) getHandle().registerTimer(needMs);
    state.update(Pane.write(panes, Math.min(needMs, timerMs), aggregates));
  }

  private Row result(Row key, Pane pane) {
    Row told = rows.result(key, pane.startUs, pane.endUs, aggregates, pane.held, pane.told);
    pane.markTold();
    return told;
  }
}
