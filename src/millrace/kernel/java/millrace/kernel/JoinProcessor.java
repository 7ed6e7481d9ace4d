package millrace.kernel;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What the rows of one key make together, one of each stream; `model/joins.py` is the same in plain Python, for two.
 *
 * What holds: a row before the watermark is late and joins nothing. A row is kept until the watermark is past the last
 * time at which another can make something new of it. What rows make is told when the last of them comes, so that it is
 * told once, however rows are cut into calls.
 */
final class JoinProcessor extends Keeper<Row, Row, Row> {
  private final JoinSettings settings;
  private final StructType keyType;
  private transient JoinState state;
  private transient Forgetting forgetting;
  private transient SharedTimers shared;

  JoinProcessor(String told, JoinSettings settings, StructType key) {
    super(told);
    this.settings = settings;
    keyType = key;
  }

  long behindUs() {
    return settings.behindUs();
  }

  @Override
  public void init(OutputMode mode, TimeMode time) {
    forgetting = new Forgetting(this, getHandle());
    shared = new SharedTimers(getHandle(), forgetting, keyType, settings.rememberedUs() / 1_000);
    state = new JoinState(settings, getHandle(), shared);
  }

  @Override
  public Iterator<Row> handleInputRows(Row key, Iterator<Row> rows, TimerValues timers) {
    forgetting.tend(key, timers);
    long watermarkUs = timers.getCurrentWatermarkInMs() * 1_000;
    List<Row> late = new ArrayList<>();
    JoinRows[] fresh = JoinRows.of(settings.streams());
    while (rows.hasNext()) {
      Row row = rows.next();
      int stream = row.getInt(settings.keys());
      long timeUs = row.getLong(settings.keys() + 1);
      byte[] whole = (byte[]) row.get(settings.keys() + 2);
      if (timeUs >= watermarkUs) fresh[stream].add(timeUs, whole);
      else late.add(told(Told.REFUSED, watermarkUs - timeUs, stream, whole));
    }
    for (JoinRows each : fresh) each.sort();
    state.load();
    Stream<Row> made = made(fresh);
    state.add(key, fresh, watermarkUs);
    return CollectionConverters.asScala(Stream.concat(late.stream(), made).iterator());
  }

  @Override
  public Iterator<Row> handleExpiredTimer(Row key, TimerValues timers, ExpiredTimerInfo expired) {
    long timerMs = expired.getExpiryTimeInMs();
    long watermarkUs = timers.getCurrentWatermarkInMs() * 1_000;
    forget(key, timerMs, watermarkUs);
    shared.fired(key, timerMs, follower -> forget(follower, timerMs, watermarkUs));
    return CollectionConverters.asScala(List.<Row>of().iterator());
  }

  /** Of the key at hand, what is over. */
  private void forget(Row key, long timerMs, long watermarkUs) {
    state.load();
    state.fired(timerMs);
    state.add(key, JoinRows.of(settings.streams()), watermarkUs);
  }

  /** What has at least one fresh row in it. It is worked out as it is told: it may be far more than what is held. */
  private Stream<Row> made(JoinRows[] fresh) {
    int streams = settings.streams();
    JoinRows[] kept = JoinRows.of(streams);
    kept[0] = state.keptInTheMiddle(fresh);
    JoinRows middle = fresh[0];
    if (streams > 2) middle = JoinRows.sorted(kept[0], fresh[0]); // others may be fresh for a kept one
    JoinRows[] all = new JoinRows[streams];
    for (int stream = 1; stream < streams; stream++) {
      kept[stream] = state.keptAround(stream, middle);
      all[stream] = JoinRows.sorted(kept[stream], fresh[stream]);
    }
    Stream<Row> made = fresh[0].each().flatMap(one -> around(one, all));
    for (int first = 1; first < streams && !kept[0].isEmpty(); first++) {
      if (fresh[first].isEmpty()) continue;
      JoinRows[] others = all.clone();
      for (int stream = 1; stream < first; stream++) others[stream] = kept[stream];
      others[first] = fresh[first];
      made = Stream.concat(made, kept[0].each().flatMap(one -> around(one, others)));
    }
    return made;
  }

  /** One row with each choice of one of each other stream. */
  private Stream<Row> around(JoinRows.Each one, JoinRows[] others) {
    Stream<Object[]> chosen = Stream.<Object[]>of(values(Told.RESULT, null, 0, one.row()));
    for (int number = 1; number < others.length; number++) {
      int stream = number;
      long fromUs = one.timeUs() + settings.firstUs()[stream];
      long toUs = one.timeUs() + settings.lastUs()[stream];
      if (!others[stream].any(fromUs, toUs)) return Stream.empty();
      chosen = chosen.flatMap(before -> others[stream].between(fromUs, toUs).map(each -> {
        Object[] with = before.clone();
        with[2 + stream] = each.row();
        return with;
      }));
    }
    return chosen.map(RowFactory::create);
  }

  private Row told(int kind, Long lateUs, int stream, byte[] row) {
    return RowFactory.create(values(kind, lateUs, stream, row));
  }

  private Object[] values(int kind, Long lateUs, int stream, byte[] row) {
    Object[] values = new Object[2 + settings.streams()];
    values[0] = kind;
    values[1] = lateUs;
    values[2 + stream] = row;
    return values;
  }
}
