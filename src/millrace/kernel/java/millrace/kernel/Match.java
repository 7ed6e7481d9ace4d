package millrace.kernel;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.apache.spark.api.java.function.FlatMapGroupsFunction;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.KeyValueGroupedDataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Patterns over the rows of a key. In come the columns of the key, `time` (µs), `flags` (a bit for each variable that the
 * row is), the values that measures look at and, if refused rows are wanted, `row`. Out come the key, `start` and `end`
 * (µs), the measures, `kind` (see Told), and of a refused row `lateUs` and `row`.
 */
public final class Match {
  public static Dataset<Row> stream(Dataset<Row> rows, int keys, String told) {
    MatchSettings settings = settings(told);
    return grouped(rows, keys).transformWithState(
        new MatchProcessor(told, settings, keys),
        TimeMode.EventTime(),
        OutputMode.Update(),
        Lookup.exact(output(rows.schema(), keys, settings)));
  }

  /** Over all there is: nothing is late, and no row is to come. */
  public static Dataset<Row> batch(Dataset<Row> rows, int keys, String told) {
    MatchSettings settings = settings(told);
    FlatMapGroupsFunction<Row, Row, Row> matches = (key, all) -> {
      List<MatchRow> sorted = new ArrayList<>();
      while (all.hasNext()) sorted.add(MatchProcessor.taken(all.next(), keys, settings));
      sorted.sort(MatchRow.order(settings.carriers()));
      Matching matching = new Matching(settings, null);
      sorted.forEach(matching.rows::append);
      List<Matching.Found> found = new ArrayList<>();
      matching.advance(Long.MAX_VALUE, found);
      return found.stream().map(match -> MatchProcessor.told(key, match, keys, settings)).iterator();
    };
    return grouped(rows, keys).flatMapGroups(matches, Lookup.exact(output(rows.schema(), keys, settings)));
  }

  private static KeyValueGroupedDataset<Row, Row> grouped(Dataset<Row> rows, int keys) {
    StructType in = rows.schema();
    Column[] columns = Stream.of(in.fieldNames()).limit(keys).map(functions::col).toArray(Column[]::new);
    return rows.groupBy(columns).as(Lookup.exact(first(in, keys)), Lookup.exact(in));
  }

  private static StructType output(StructType in, int keys, MatchSettings settings) {
    StructType out = first(in, keys).add("start", DataTypes.LongType).add("end", DataTypes.LongType);
    for (int place = 0; place < settings.measures().length; place++) {
      out = out.add("r" + place, settings.measures()[place].aggregate().resultType());
    }
    out = out.add("kind", DataTypes.IntegerType).add("lateUs", DataTypes.LongType);
    return settings.keepsRefused() ? out.add("row", in.apply("row").dataType()) : out;
  }

  private static StructType first(StructType schema, int count) {
    return new StructType(Stream.of(schema.fields()).limit(count).toArray(StructField[]::new));
  }

  private static MatchSettings settings(String told) {
    return MatchSettings.of(Json.read(told));
  }

  private Match() {}
}
