package millrace.kernel;

import java.util.ArrayList;
import java.util.List;
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
 * The best rows of one key; `model/top.py` is the same in plain Python.
 *
 * What holds: what is told of a call does not depend on the order of its rows. What a closed window has to tell is told
 * by a timer, also in the epoch in which its rows come: Spark fires timers after the rows, so that all have come then.
 */
final class TopProcessor extends Keeper<Row, Row, Row> {
  private final TopSettings settings;
  private transient ValueState<byte[]> best;
  private transient MapState<byte[], byte[]> all;

  TopProcessor(String told, TopSettings settings) {
    super(told);
    this.settings = settings;
  }

  @Override
  public void init(OutputMode mode, TimeMode time) {
    best = getHandle().getValueState("best", BoundOnce.BYTES, TTLConfig.NONE());
    if (settings.replacing()) {
      all = getHandle().getMapState("all", BoundOnce.BYTES, BoundOnce.BYTES, TTLConfig.NONE());
    }
  }

  @Override
  public Iterator<Row> handleInputRows(Row key, Iterator<Row> rows, TimerValues timers) {
    long watermarkUs = settings.ends() ? timers.getCurrentWatermarkInMs() * 1_000 : 0;
    List<Row> out = new ArrayList<>();
    Best found = null;
    while (rows.hasNext()) {
      Row row = rows.next();
      long overUs = overUs(row);
      if (settings.ends() && !settings.closed() && overUs <= watermarkUs) {
        boolean refused = overUs + settings.graceUs() <= watermarkUs;
        int kind = refused ? Told.REFUSED : Told.ALLOWED;
        Object whole = refused ? row.get(settings.keys() + 4) : null;
        out.add(RowFactory.create(kind, watermarkUs - overUs, whole, null, null));
        if (refused) continue;
      }
      if (found == null) found = new Best(settings, best, all);
      found.take(ranked(row));
      if (settings.ends()) remind(found, overUs);
    }
    if (found != null) {
      found.settle();
      if (settings.updates()) out.addAll(found.changes());
      found.save();
    }
    return CollectionConverters.asScala(out.iterator());
  }

  @Override
  public Iterator<Row> handleExpiredTimer(Row key, TimerValues timers, ExpiredTimerInfo expired) {
    long watermarkUs = timers.getCurrentWatermarkInMs() * 1_000;
    Best found = new Best(settings, best, all);
    found.fired(expired.getExpiryTimeInMs());
    List<Row> out = new ArrayList<>();
    if (!settings.windowed()) {
      found.expire(watermarkUs);
      found.settle();
      out = found.changes();
      found.save();
    } else {
      if (!settings.updates()) out = found.results();
      if (found.endUs() + settings.graceUs() <= watermarkUs) {
        found.clear();
      } else {
        timer(found, found.endUs() + settings.graceUs());
        found.save();
      }
    }
    return CollectionConverters.asScala(out.iterator());
  }

  private long overUs(Row row) {
    if (settings.windowed()) return row.getLong(settings.keys());
    return settings.ttlUs() > 0 ? settings.overUs(row.getLong(settings.keys() + 1)) : 0;
  }

  private Ranked ranked(Row row) {
    int first = settings.keys() + 1;
    byte[] of = settings.replacing() ? (byte[]) row.get(first + 2) : null;
    return Ranked.of((byte[]) row.get(first + 1), of, row.getLong(first), (byte[]) row.get(first + 3));
  }

  private void remind(Best found, long overUs) {
    found.ends(overUs);
    timer(found, settings.windowed() && settings.updates() ? overUs + settings.graceUs() : overUs);
  }

  private void timer(Best found, long atUs) {
    long atMs = Math.floorDiv(atUs + 999, 1_000L);
    if (found.timer(atMs)) getHandle().registerTimer(atMs);
  }
}
