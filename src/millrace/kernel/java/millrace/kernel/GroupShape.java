package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** What a group holds and tells. `values` is how many columns its rows have, `out` the row that is told. */
record GroupShape(
    int tag, boolean global, int keys, int values, StructType out, List<Tally.Shape> tallies,
    List<Tally.Wanted> wanted) implements Serializable {
  GroupShape(JsonNode told) {
    this(
        told.get("tag").asInt(), told.get("keys").asInt() == 0, told.get("keys").asInt(), told.get("values").asInt(),
        (StructType) type(told.get("out")), new ArrayList<>(), new ArrayList<>());
    for (JsonNode each : told.get("tallies")) {
      tallies.add(new Tally.Shape(each.get("kind").asText(), each.get("place").asInt(), type(each.get("type"))));
    }
    boolean strict = told.get("strict").asBoolean();
    for (JsonNode each : told.get("wanted")) {
      wanted.add(new Tally.Wanted(each.get("kind").asText(), each.get("tally").asInt(), type(each.get("type")), strict));
    }
  }

  private static DataType type(JsonNode json) {
    return json.isNull() ? null : DataType.fromJson(json.toString());
  }

  boolean hasSets() {
    return tallies.stream().anyMatch(each -> each.kind().equals("set") || each.kind().equals("list"));
  }
}
