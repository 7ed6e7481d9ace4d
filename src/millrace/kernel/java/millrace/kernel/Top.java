package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Arrays;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * The best rows of each key. In come the columns of the key, then `end` (of the window, µs), `time` (µs), `order` and
 * `of` (see Order; what a row is known by) and `row` (packed). Out come `kind`, `lateUs`, `row`, `rank` and `diff`.
 */
public final class Top {
  private static final StructType OUT = new StructType()
      .add("kind", DataTypes.IntegerType).add("lateUs", DataTypes.LongType).add("row", DataTypes.BinaryType)
      .add("rank", DataTypes.IntegerType).add("diff", DataTypes.IntegerType);

  public static Dataset<Row> stream(Dataset<Row> rows, String told) {
    JsonNode json = Json.read(told);
    TopSettings settings = new TopSettings(json);
    StructType schema = rows.schema();
    StructType key = new StructType(Arrays.copyOf(schema.fields(), settings.keys()));
    Column[] by = Arrays.stream(key.fieldNames()).map(name -> functions.col("`" + name + "`")).toArray(Column[]::new);
    TimeMode time = settings.ends() ? TimeMode.EventTime() : TimeMode.None();
    return rows.groupBy(by).as(Lookup.exact(key), Lookup.exact(schema))
        .transformWithState(new TopProcessor(told, settings), time, OutputMode.Update(), Encoders.row(OUT));
  }

  private Top() {}
}
