package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;
import org.apache.spark.sql.types.DataType;

/**
 * What is looked for, and what is told of it. `carriers` are the types of the values that rows bring for the measures.
 * After a match the next may begin with: the row after its last (PAST_LAST), the row after its first (NEXT), or with the
 * first or last one that was `afterVariable` (FIRST, LAST). `arrival`: rows are taken as they come.
 */
record MatchSettings(
    Pattern pattern,
    long withinUs,
    String after,
    int afterVariable,
    boolean arrival,
    boolean keepsRefused,
    int most,
    Measure[] measures,
    Carrier[] carriers) implements Serializable {
  static final String PAST_LAST = "past last row";
  static final String NEXT = "next row";
  static final String FIRST = "first";
  static final String LAST = "last";

  static MatchSettings of(JsonNode json) {
    JsonNode told = json.get("measures");
    Measure[] measures = new Measure[told.size()];
    for (int place = 0; place < measures.length; place++) {
      JsonNode each = told.get(place);
      Aggregate aggregate = Aggregate.of(each.get("kind").asText(), DataType.fromJson(each.get("type").asText()));
      measures[place] = new Measure(aggregate, each.get("variable").asInt(), each.get("slot").asInt());
    }
    JsonNode types = json.get("slots");
    Carrier[] carriers = new Carrier[types.size()];
    for (int slot = 0; slot < carriers.length; slot++) {
      carriers[slot] = Carrier.of(DataType.fromJson(types.get(slot).asText()));
    }
    return new MatchSettings(
        Pattern.of(json.get("pattern")),
        json.get("withinUs").asLong(),
        json.get("after").asText(),
        json.get("afterVariable").asInt(),
        json.get("arrival").asBoolean(),
        json.get("keepsRefused").asBoolean(),
        json.get("most").asInt(),
        measures,
        carriers);
  }
}
