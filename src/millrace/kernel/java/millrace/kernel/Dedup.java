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
 * The first row of each key, and again the first one after a time. In come the columns of the key, then `time` (µs),
 * `tie` (which of several at the same time is first) and `row` (packed). Out come `kind`, `lateUs` and `row`.
 */
public final class Dedup {
  private static final StructType OUT = new StructType()
      .add("kind", DataTypes.IntegerType).add("lateUs", DataTypes.LongType).add("row", DataTypes.BinaryType);

  public static Dataset<Row> stream(Dataset<Row> rows, String settings) {
    JsonNode told = Json.read(settings);
    int keys = told.get("keys").asInt();
    long ttlUs = told.get("ttlUs").asLong();
    boolean byArrival = told.get("byArrival").asBoolean();
    StructType schema = rows.schema();
    StructType key = new StructType(Arrays.copyOf(schema.fields(), keys));
    Column[] by = Arrays.stream(key.fieldNames()).map(name -> functions.col("`" + name + "`")).toArray(Column[]::new);
    var grouped = (byArrival ? DedupByArrival.marked(rows) : rows).groupBy(by).as(Lookup.exact(key), Lookup.exact(schema));
    long graceUs = told.get("graceUs").asLong();
    Keeper<Row, Row, Row> processor = byArrival
        ? new DedupByArrival(settings, ttlUs) : new DedupProcessor(settings, ttlUs, graceUs, key);
    return grouped.transformWithState(processor, TimeMode.EventTime(), OutputMode.Update(), Encoders.row(OUT));
  }

  private Dedup() {}
}
