package millrace.kernel;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.api.java.function.FlatMapGroupsFunction;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.KeyValueGroupedDataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/** Envelopes to signed rows, by (topic, key); as a stream from the operator's own state, as a batch without any. */
public final class LatestByKey {
  private static final Encoder<RecordKey> KEY = BoundOnce.of(Encoders.bean(RecordKey.class));
  private static final Encoder<LogRecord> RECORD = Encoders.bean(LogRecord.class);
  private static final Encoder<HeldRow> HELD = BoundOnce.of(Encoders.bean(HeldRow.class));
  private static final Encoder<SignedRow> SIGNED = Encoders.bean(SignedRow.class);

  static final class Processor extends Keeper<RecordKey, LogRecord, SignedRow> {
    private final boolean net;
    private final Unavailable unavailable;
    private final LeftOut leftOut;
    private transient Envelope envelope;
    private transient ValueState<HeldRow> state;

    Processor(boolean net, Unavailable unavailable, LeftOut leftOut) {
      super("{\"operator\": \"table\"}");
      this.net = net;
      this.unavailable = unavailable;
      this.leftOut = leftOut;
    }

    @Override
    public void init(OutputMode mode, TimeMode time) {
      envelope = new Envelope(unavailable);
      state = getHandle().getValueState("row", HELD, TTLConfig.NONE());
    }

    @Override
    public Iterator<SignedRow> handleInputRows(RecordKey key, Iterator<LogRecord> records, TimerValues timers) {
      if (RecordKey.ofEvents(key)) return records.map(record -> SignedRow.event(key, record));
      envelope.leaveOut(leftOut.of(key));
      Latest latest = new Latest(key, state.get(), net, envelope);
      LogRecord only = records.next();
      if (records.hasNext()) {
        for (LogRecord record : sorted(only, records)) latest.apply(record);
      } else {
        latest.apply(only);
      }
      latest.keep(state);
      return CollectionConverters.asScala(latest.changes().iterator());
    }

    /** A shuffle promises no order. What is in order already, as mostly here, is sorted in one pass. */
    private static List<LogRecord> sorted(LogRecord first, Iterator<LogRecord> others) {
      List<LogRecord> all = new ArrayList<>();
      all.add(first);
      while (others.hasNext()) all.add(others.next());
      all.sort(LogRecord.PLACE);
      return all;
    }
  }

  /** Update is what real-time mode asks for; a query in append mode takes it as well. */
  public static Dataset<Row> stream(
      Dataset<Row> records, boolean net, String placeholder, Map<String, List<String>> leftOut,
      Map<String, List<List<String>>> shapes) {
    Processor processor = new Processor(net, new Unavailable(placeholder), new LeftOut(leftOut, shapes));
    return grouped(records).transformWithState(processor, TimeMode.None(), OutputMode.Update(), SIGNED).toDF();
  }

  public static Dataset<Row> batch(
      Dataset<Row> records, boolean net, String placeholder, Map<String, List<String>> given,
      Map<String, List<List<String>>> shapes) {
    Unavailable unavailable = new Unavailable(placeholder);
    LeftOut leftOut = new LeftOut(given, shapes);
    FlatMapGroupsFunction<RecordKey, LogRecord, SignedRow> changes = (key, sorted) -> {
      Envelope envelope = new Envelope(unavailable);
      envelope.leaveOut(leftOut.of(key));
      Latest latest = new Latest(key, null, net, envelope);
      while (sorted.hasNext()) latest.apply(sorted.next());
      return latest.changes().iterator();
    };
    Column[] place = {functions.col("partition"), functions.col("offset")};
    return grouped(records).flatMapSortedGroups(place, changes, SIGNED).toDF();
  }

  private static KeyValueGroupedDataset<RecordKey, LogRecord> grouped(Dataset<Row> records) {
    return records.groupBy("topic", "key").as(KEY, RECORD);
  }

  private LatestByKey() {}
}
