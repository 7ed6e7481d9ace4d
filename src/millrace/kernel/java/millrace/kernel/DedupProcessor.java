package millrace.kernel;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.NavigableSet;
import java.util.TreeSet;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Which rows of one key are first, by event time; `model/dedup.py` is the same in plain Python.
 *
 * What holds: of two rows that were given, neither is within the time of the other. What was given is remembered for as
 * long as a row may come that is within the time of it and not refused; for the earliest of it there is a timer, which a key
 * shares with others.
 */
final class DedupProcessor extends Keeper<Row, Row, Row> {
  private static final int FORM = 1;

  private final long ttlUs;
  private final long graceUs;
  private final StructType keyType;
  private final int keys;
  private transient ValueState<byte[]> state;
  private transient Forgetting forgetting;
  private transient SharedTimers shared;

  DedupProcessor(String told, long ttlUs, long graceUs, StructType key) {
    super(told);
    this.ttlUs = ttlUs;
    this.graceUs = graceUs;
    keyType = key;
    keys = key.length();
  }

  @Override
  public void init(OutputMode mode, TimeMode time) {
    state = getHandle().getValueState("given", BoundOnce.BYTES, TTLConfig.NONE());
    forgetting = new Forgetting(this, getHandle());
    shared = new SharedTimers(getHandle(), forgetting, keyType, (ttlUs + graceUs) / 1_000);
  }

  @Override
  public Iterator<Row> handleInputRows(Row key, Iterator<Row> rows, TimerValues timers) {
    forgetting.tend(key, timers);
    long watermarkUs = timers.getCurrentWatermarkInMs() * 1_000;
    NavigableSet<Long> given = load();
    Long earliest = given.isEmpty() ? null : given.first();
    List<Row> out = new ArrayList<>();
    boolean changed = false;
    for (Row row : inOrder(rows)) {
      long timeUs = row.getLong(keys);
      if (timeUs + graceUs < watermarkUs) {
        out.add(RowFactory.create(Told.REFUSED, watermarkUs - timeUs, row.get(keys + 2)));
        continue;
      }
      if (timeUs < watermarkUs) out.add(RowFactory.create(Told.ALLOWED, watermarkUs - timeUs, null));
      Long before = given.floor(timeUs);
      Long after = given.ceiling(timeUs);
      if (before != null && timeUs - before < ttlUs || after != null && after - timeUs < ttlUs) continue;
      given.add(timeUs);
      changed = true;
      out.add(RowFactory.create(Told.RESULT, null, row.get(keys + 2)));
    }
    if (changed) {
      if (!given.first().equals(earliest)) shared.join(key, forgottenMs(given.first()));
      save(given);
    }
    return CollectionConverters.asScala(out.iterator());
  }

  @Override
  public Iterator<Row> handleExpiredTimer(Row key, TimerValues timers, ExpiredTimerInfo expired) {
    long watermarkMs = timers.getCurrentWatermarkInMs();
    long timerMs = expired.getExpiryTimeInMs();
    forget(key, timerMs, watermarkMs);
    shared.fired(key, timerMs, follower -> forget(follower, timerMs, watermarkMs));
    return CollectionConverters.asScala(new ArrayList<Row>().iterator());
  }

  /** Of the key at hand, what is over. */
  private void forget(Row key, long timerMs, long watermarkMs) {
    NavigableSet<Long> given = load();
    boolean forgets = false;
    while (!given.isEmpty() && forgottenMs(given.first()) <= watermarkMs) {
      given.pollFirst();
      forgets = true;
    }
    if (forgets) save(given);
    if (given.isEmpty()) return;
    // One that was set epoch by epoch may fire too early in real time (see Forgetting).
    long neededMs = forgottenMs(given.first());
    if (forgets || shared.isFor(timerMs, neededMs)) shared.join(key, neededMs);
  }

  private List<Row> inOrder(Iterator<Row> rows) {
    List<Row> all = new ArrayList<>();
    while (rows.hasNext()) all.add(rows.next());
    if (all.size() > 1) {
      all.sort(Comparator.comparingLong((Row row) -> row.getLong(keys)).thenComparingLong(row -> row.getLong(keys + 1)));
    }
    return all;
  }

  /** From this watermark on no row comes that is within the time of this one and is not refused. */
  private long forgottenMs(long timeUs) {
    return Math.floorDiv(timeUs + ttlUs + graceUs, 1_000L) + 1;
  }

  /** For people: see Kept. */
  static void show(byte[] held, ObjectNode out) {
    ArrayNode shown = out.putArray("given");
    read(held).forEach(shown::add);
  }

  private NavigableSet<Long> load() {
    byte[] held = state.get();
    return held == null ? new TreeSet<>() : read(held);
  }

  private static NavigableSet<Long> read(byte[] held) {
    return Stored.read(held, FORM, (in, form) -> {
      int count = in.readInt();
      NavigableSet<Long> given = new TreeSet<>();
      for (int place = 0; place < count; place++) given.add(in.readLong());
      return given;
    });
  }

  private void save(NavigableSet<Long> given) {
    if (given.isEmpty()) {
      state.clear();
      return;
    }
    state.update(Stored.write(FORM, out -> {
      out.writeInt(given.size());
      for (long timeUs : given) out.writeLong(timeUs);
    }));
  }
}
