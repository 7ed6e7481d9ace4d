package millrace.kernel;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Events of one key with its row as of their times; `model/as_of.py` is the same in plain Python.
 *
 * What holds: in each call the changes of the table come first, then corrections of events that were told, then new
 * events; so the order of rows does not matter, and what was told last of an event does not depend on how rows are cut
 * into calls. An event is kept until the watermark is the grace past it: until then a change may come that it should
 * have seen, and all versions that it can ask for are kept too. One that is told once is told by a timer, which Spark
 * fires after an epoch's rows. What nobody knows is told as refused when the event is let go, and never as a null.
 */
final class AsOfProcessor extends Keeper<Row, Row, Row> {
  private final AsOfSettings settings;
  private final Unavailable unavailable;
  private transient AsOfChanges changes;
  private transient AsOfState state;
  private transient Forgetting forgetting;

  AsOfProcessor(String told, AsOfSettings settings, Unavailable unavailable) {
    super(told);
    this.settings = settings;
    this.unavailable = unavailable;
  }

  @Override
  public void init(OutputMode mode, TimeMode time) {
    changes = new AsOfChanges(settings, new Envelope(unavailable));
    forgetting = new Forgetting(this, getHandle());
    state = new AsOfState(settings, getHandle(), forgetting);
  }

  @Override
  public Iterator<Row> handleInputRows(Row key, Iterator<Row> rows, TimerValues timers) {
    List<Row> out = settings.once() ? new ArrayList<>() : forgetting.tend(key, timers);
    long watermarkUs = timers.getCurrentWatermarkInMs() * 1_000;
    List<Row> events = new ArrayList<>();
    List<Row> changed = new ArrayList<>();
    while (rows.hasNext()) {
      Row row = rows.next();
      (row.getBoolean(settings.keys() + 1) ? changed : events).add(row);
    }
    boolean keyed = isWhole(key);
    if (keyed) state.load();
    List<AsOfChanges.Change> read = changes.read(changed, keyed ? state : null, out);
    if (keyed) {
      apply(read, watermarkUs, out);
      boolean taken = !read.isEmpty();
      for (Row event : events) taken |= take(event, watermarkUs, out);
      if (taken) {
        state.cut(watermarkUs);
        state.save();
      }
    } else {
      for (Row event : events) if (!late(event, watermarkUs, out)) tell(event(event), Versions.Answer.NONE, out);
    }
    return CollectionConverters.asScala(out.iterator());
  }

  @Override
  public Iterator<Row> handleExpiredTimer(Row key, TimerValues timers, ExpiredTimerInfo expired) {
    long watermarkUs = timers.getCurrentWatermarkInMs() * 1_000;
    state.load();
    state.fired(expired.getExpiryTimeInMs());
    List<Row> out = new ArrayList<>();
    if (settings.once()) {
      state.events.walk(state.toldUs, watermarkUs, (timeUs, event) -> tell(event, state.versions.at(timeUs), out));
      state.toldUs = Math.max(state.toldUs, watermarkUs);
    }
    long overUs = watermarkUs - settings.graceUs();
    state.events.walk(Long.MIN_VALUE, overUs, (timeUs, event) -> {
      if (!state.versions.at(timeUs).known()) out.add(told(Told.REFUSED, null, event));
    });
    state.events.forget(overUs);
    state.cut(watermarkUs);
    state.save();
    return CollectionConverters.asScala(out.iterator());
  }

  private boolean isWhole(Row key) {
    for (int place = 0; place < settings.keys(); place++) if (key.isNullAt(place)) return false;
    return true;
  }

  /** Puts changes where they belong, and corrects events that were told without them. */
  private void apply(List<AsOfChanges.Change> read, long watermarkUs, List<Row> out) {
    if (read.isEmpty()) return;
    long firstUs = Long.MAX_VALUE;
    long lastUs = Long.MIN_VALUE;
    for (AsOfChanges.Change change : read) {
      firstUs = Math.min(firstUs, change.timeUs());
      lastUs = Math.max(lastUs, change.timeUs());
      if (change.timeUs() >= watermarkUs) continue;
      int kind = settings.isOver(change.timeUs(), watermarkUs) ? Told.REFUSED_CHANGE : Told.ALLOWED;
      out.add(told(kind, watermarkUs - change.timeUs(), null));
    }
    long beforeUs = Math.min(state.versions.nextAfterUs(lastUs), settings.once() ? state.toldUs : Long.MAX_VALUE);
    Long affectedUs = state.events.firstUs(firstUs);
    boolean corrects = affectedUs != null && affectedUs < beforeUs;
    Versions.Span before = corrects ? state.versions.span(affectedUs, beforeUs) : null;
    for (AsOfChanges.Change change : read) {
      state.versions.put(change.timeUs(), change.row(), change.begins(), change.tie());
    }
    if (!corrects) return;
    Versions.Span after = state.versions.span(affectedUs, beforeUs);
    state.events.walk(affectedUs, beforeUs, (timeUs, event) -> {
      Versions.Answer was = before.at(timeUs);
      Versions.Answer is = after.at(timeUs);
      if (was.known() && settings.isOver(timeUs, watermarkUs)) return;
      if (!is.known() || was.known() && Arrays.equals(was.row(), is.row())) return;
      out.add(RowFactory.create(Told.RESULT, null, event, is.row(), was.known(), was.row(), null, null, null));
    });
  }

  /** Whether the event is kept; it is told now unless it has to wait. */
  private boolean take(Row row, long watermarkUs, List<Row> out) {
    long timeUs = row.getLong(settings.keys() + 2);
    if (timeUs < settings.sinceUs()) {
      out.add(told(Told.REFUSED, null, event(row)));
      return false;
    }
    if (late(row, watermarkUs, out)) return false;
    state.events.add(timeUs, event(row));
    if (!settings.once() || timeUs < state.toldUs) tell(event(row), state.versions.at(timeUs), out);
    return true;
  }

  /** Whether it comes too late. */
  private boolean late(Row row, long watermarkUs, List<Row> out) {
    long timeUs = row.getLong(settings.keys() + 2);
    boolean over = settings.isOver(timeUs, watermarkUs);
    if (over) out.add(told(Told.REFUSED, watermarkUs - timeUs, event(row)));
    else if (timeUs < watermarkUs) out.add(told(Told.ALLOWED, watermarkUs - timeUs, null));
    return over;
  }

  private byte[] event(Row row) {
    return (byte[]) row.get(settings.keys() + 3);
  }

  private void tell(byte[] event, Versions.Answer answer, List<Row> out) {
    if (!answer.known() || settings.inner() && answer.row() == null) return;
    out.add(RowFactory.create(Told.RESULT, null, event, answer.row(), false, null, null, null, null));
  }

  private static Row told(int kind, Long lateUs, byte[] event) {
    return RowFactory.create(kind, lateUs, event, null, null, null, null, null, null);
  }
}
