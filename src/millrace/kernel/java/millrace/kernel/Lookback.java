package millrace.kernel;

import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Each event with aggregates over its key's events in the time before it. In come the columns of the key, `time` (µs),
 * the event as `row`, and the slots: what aggregates look at. Out come `row`, the results, `corrected` (it was told
 * before, with other results), `kind` (see Told; ALLOWED is a result too) and `lateUs`.
 */
public final class Lookback {
  public static Dataset<Row> stream(Dataset<Row> rows, String json) {
    StructType in = rows.schema();
    LookbackSettings settings = LookbackSettings.of(Json.read(json), in);
    List<String> keys = List.of(in.fieldNames()).subList(0, settings.keys());
    StructType group = new StructType(keys.stream().map(in::apply).toArray(StructField[]::new));
    StructType out = new StructType().add("row", settings.event());
    for (int place = 0; place < settings.questions().length; place++) {
      out = out.add("r" + place, settings.aggregate(settings.questions()[place]).resultType());
    }
    out = out.add("corrected", DataTypes.BooleanType).add("kind", DataTypes.IntegerType).add("lateUs", DataTypes.LongType);
    Column[] columns = keys.stream().map(functions::col).toArray(Column[]::new);
    return rows.groupBy(columns).as(Lookup.exact(group), Lookup.exact(in)).transformWithState(
        new LookbackProcessor(json, settings), TimeMode.EventTime(), OutputMode.Update(), Lookup.exact(out));
  }

  private Lookback() {}
}
