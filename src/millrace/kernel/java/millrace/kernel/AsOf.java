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
 * Events with the row that a table had at their times. In come the columns of the key, `spread`, `changed` (whether it is
 * of the table), `time` (µs), the bytes of the `row` (an event; of the table a row, null where it is gone, or the value of
 * a record), `partition`, and `tie` (of a record its offset). Out come `kind` (see Told), `lateUs`, `event`, its `row`,
 * whether it is `corrected` and which row it `replaces`; and of a record that could not be understood its place and
 * `error`.
 */
public final class AsOf {
  public static Dataset<Row> stream(Dataset<Row> rows, String json, String placeholder) {
    AsOfSettings settings = AsOfSettings.of(Json.read(json));
    StructType in = rows.schema();
    List<String> keys = List.of(in.fieldNames()).subList(0, settings.keys() + 1);
    StructType group = new StructType(keys.stream().map(in::apply).toArray(StructField[]::new));
    StructType out = new StructType()
        .add("kind", DataTypes.IntegerType)
        .add("lateUs", DataTypes.LongType)
        .add("event", DataTypes.BinaryType)
        .add("row", DataTypes.BinaryType)
        .add("corrected", DataTypes.BooleanType)
        .add("replaces", DataTypes.BinaryType)
        .add("error", DataTypes.StringType)
        .add("partition", DataTypes.IntegerType)
        .add("offset", DataTypes.LongType);
    Column[] columns = keys.stream().map(functions::col).toArray(Column[]::new);
    AsOfProcessor processor = new AsOfProcessor(json, settings, new Unavailable(placeholder));
    return rows.groupBy(columns).as(Lookup.exact(group), Lookup.exact(in)).transformWithState(
        processor, TimeMode.EventTime(), OutputMode.Update(), Lookup.exact(out));
  }

  private AsOf() {}
}
