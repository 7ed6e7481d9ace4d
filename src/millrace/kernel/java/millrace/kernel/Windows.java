package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Windows of event time, by key, with late rows told apart. In come the columns of the key and, for windows that are
 * the same for all keys, `start` and `end` (µs), or `step` (the slice that the row is in); then `firsts` (of how many rows this is the earliest window: a row may
 * stand for several that were added up before), the aggregates' values, `time` (µs) where it matters and, if refused
 * rows are wanted, `row`. Out come the key, `start`, `end`, the results and `replaces`, `kind` (see Told), and of a
 * refused row `lateUs` and `row`.
 */
public final class Windows {
  private static final StructType WINDOW =
      new StructType().add("start", DataTypes.LongType).add("end", DataTypes.LongType);

  public static Dataset<Row> stream(Dataset<Row> rows, String settings) {
    JsonNode json = Json.read(settings);
    WindowSettings told = new WindowSettings(json);
    List<String> keys = texts(json.get("keys"));
    List<String> values = texts(json.get("values"));
    Aggregate[] aggregates = aggregates(json);
    List<String> group = new ArrayList<>(keys);
    if (!told.sessions() && !told.sliced()) group.addAll(List.of("start", "end"));
    Encoder<Row> key = Lookup.exact(of(rows.schema(), group));
    Encoder<Row> row = Lookup.exact(rows.schema());
    Encoder<Row> out = Lookup.exact(output(rows.schema(), keys, aggregates, told));
    WindowRows tells = new WindowRows(keys.size(), aggregates.length, told.keepsRefused());
    int[] positions = positions(rows.schema(), values);
    StatefulProcessor<Row, Row, Row> processor = told.sliced()
        ? new SliceProcessor(settings, told, aggregates, tells, positions, rows.schema().fieldIndex("step"))
        : new WindowProcessor(settings, told, aggregates, tells, positions);
    Column[] columns = group.stream().map(name -> functions.col("`" + name + "`")).toArray(Column[]::new);
    return rows.groupBy(columns).as(key, row)
        .transformWithState(processor, TimeMode.EventTime(), OutputMode.Update(), out);
  }

  /** For people: see Kept. */
  static void show(JsonNode json, Map<String, Object> held, ObjectNode out) {
    Aggregate[] aggregates = aggregates(json);
    if (new WindowSettings(json).sliced()) SliceProcessor.show((byte[]) held.get("slices"), aggregates, out);
    else Pane.show((byte[]) held.get("panes"), aggregates, out);
  }

  private static Aggregate[] aggregates(JsonNode json) {
    List<String> kinds = texts(json.get("kinds"));
    List<String> types = texts(json.get("types"));
    Aggregate[] aggregates = new Aggregate[kinds.size()];
    for (int place = 0; place < aggregates.length; place++) {
      DataType type = DataType.fromJson(types.get(place));
      aggregates[place] = Sketches.of(kinds.get(place), type, json.get("sketches").get(place));
    }
    return aggregates;
  }

  private static StructType output(StructType in, List<String> keys, Aggregate[] aggregates, WindowSettings told) {
    StructType out = of(in, keys).add("start", DataTypes.LongType).add("end", DataTypes.LongType);
    for (int place = 0; place < aggregates.length; place++) out = out.add("r" + place, aggregates[place].resultType());
    out = out.add("replaces", DataTypes.createArrayType(WINDOW)).add("kind", DataTypes.IntegerType);
    out = out.add("lateUs", DataTypes.LongType);
    return told.keepsRefused() ? out.add("row", in.apply("row").dataType()) : out;
  }

  private static int[] positions(StructType schema, List<String> values) {
    List<String> names = new ArrayList<>(List.of("time", "firsts"));
    names.addAll(values);
    names.add("row");
    List<String> present = List.of(schema.fieldNames());
    return names.stream().mapToInt(present::indexOf).toArray();
  }

  private static StructType of(StructType schema, List<String> names) {
    return new StructType(names.stream().map(schema::apply).toArray(StructField[]::new));
  }

  private static List<String> texts(JsonNode array) {
    List<String> found = new ArrayList<>();
    array.forEach(each -> found.add(each.asText()));
    return found;
  }

  private Windows() {}
}
