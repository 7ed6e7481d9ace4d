package millrace.kernel;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Events with the row of a table that has their key; `model/lookup.py` is the same in plain Python. In come the columns
 * of the key, `spread`, and either an `event` or a `record` of the table's topic. Out come each event with its `row`,
 * and a record that could not be understood as its place and `error`.
 */
public final class Lookup {
  private static final Encoder<HeldRow> HELD = BoundOnce.of(Encoders.bean(HeldRow.class));

  /**
   * What holds: within an epoch the table's records are applied first, so that what an event finds does not depend on
   * the order of the rows. Only the table leaves state. An event with a null in its key finds nothing; such events are
   * spread over groups of their own.
   */
  static final class Processor extends Keeper<Row, Row, Row> {
    private final int keys;
    private final boolean inner;
    private final Unavailable unavailable;
    private transient Envelope envelope;
    private transient ValueState<HeldRow> state;

    Processor(String told, int keys, boolean inner, Unavailable unavailable) {
      super(told);
      this.keys = keys;
      this.inner = inner;
      this.unavailable = unavailable;
    }

    @Override
    public void init(OutputMode mode, TimeMode time) {
      envelope = new Envelope(unavailable);
      state = getHandle().getValueState("row", HELD, TTLConfig.NONE());
    }

    @Override
    public Iterator<Row> handleInputRows(Row key, Iterator<Row> rows, TimerValues timers) {
      List<Row> events = new ArrayList<>();
      List<Row> records = new ArrayList<>();
      while (rows.hasNext()) {
        Row row = rows.next();
        if (row.isNullAt(keys + 2)) events.add(row.getStruct(keys + 1));
        else records.add(row.getStruct(keys + 2));
      }
      HeldRow held = isWhole(key) ? state.get() : null;
      Stream<Row> errors = Stream.empty();
      if (!records.isEmpty()) {
        Latest latest = applied(held, records);
        held = latest.held();
        errors = latest.changes().stream().filter(each -> each.getError() != null).map(Processor::refused);
      }
      if (held == null && inner) events = List.of();
      byte[] row = held == null ? null : held.getRow();
      Stream<Row> found = events.stream().map(event -> RowFactory.create(event, row, null, null, null));
      return CollectionConverters.asScala(Stream.concat(errors, found).iterator());
    }

    private Latest applied(HeldRow held, List<Row> records) {
      RecordKey key = new RecordKey();
      key.setKey(records.get(0).getAs(0));
      Latest latest = new Latest(key, held, true, envelope);
      records.stream().map(LogRecord::of).sorted(LogRecord.PLACE).forEach(latest::apply);
      latest.keep(state);
      return latest;
    }

    private boolean isWhole(Row key) {
      for (int place = 0; place < keys; place++) if (key.isNullAt(place)) return false;
      return true;
    }

    private static Row refused(SignedRow told) {
      return RowFactory.create(null, null, told.getError(), told.getPartition(), told.getOffset());
    }
  }

  public static Dataset<Row> stream(
      Dataset<Row> rows, int keys, boolean inner, String placeholder, String told) {
    StructType in = rows.schema();
    List<String> names = List.of(in.fieldNames()).subList(0, keys + 1);
    StructType group = new StructType(names.stream().map(in::apply).toArray(org.apache.spark.sql.types.StructField[]::new));
    StructType out = new StructType()
        .add("event", in.apply("event").dataType())
        .add("row", DataTypes.BinaryType)
        .add("error", DataTypes.StringType)
        .add("partition", DataTypes.IntegerType)
        .add("offset", DataTypes.LongType);
    Column[] columns = names.stream().map(functions::col).toArray(Column[]::new);
    Processor processor = new Processor(told, keys, inner, new Unavailable(placeholder));
    return rows.groupBy(columns).as(exact(group), exact(in))
        .transformWithState(processor, TimeMode.None(), OutputMode.Update(), exact(out));
  }

  /** Times as Java's newer classes: the older ones do not hold every date of every zone. */
  static Encoder<Row> exact(StructType schema) {
    SQLConf newer = new SQLConf();
    newer.setConfString("spark.sql.datetime.java8API.enabled", "true");
    return SQLConf.withExistingConf(newer, () -> BoundOnce.of(Encoders.row(schema)));
  }

  private Lookup() {}
}
