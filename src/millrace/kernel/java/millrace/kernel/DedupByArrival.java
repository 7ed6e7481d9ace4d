package millrace.kernel;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/** Which rows of one key are first, by the time of day at which the flow meets them. Spark forgets them by itself. */
final class DedupByArrival extends Keeper<Row, Row, Row> {
  private final long ttlUs;
  private transient ValueState<Boolean> given;

  DedupByArrival(String told, long ttlUs) {
    super(told);
    this.ttlUs = ttlUs;
  }

  @Override
  public void init(OutputMode mode, TimeMode time) {
    given = getHandle().getValueState("given", Encoders.BOOLEAN(), new TTLConfig(Duration.ofMillis(ttlUs / 1_000)));
  }

  @Override
  public Iterator<Row> handleInputRows(Row key, Iterator<Row> rows, TimerValues timers) {
    List<Row> out = new ArrayList<>(1);
    Row first = null;
    int last = -1;
    while (rows.hasNext()) {
      Row row = rows.next();
      last = row.length() - 1;
      if (first == null || row.getLong(last - 1) < first.getLong(last - 1)) first = row;
    }
    if (first != null && !given.exists()) {
      given.update(true);
      out.add(RowFactory.create(Told.RESULT, null, first.get(last)));
    }
    return CollectionConverters.asScala(out.iterator());
  }
}
