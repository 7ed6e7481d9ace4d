package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** Aggregates whose answers are about right and whose state is small: how large (`size`) follows from the error asked for. */
public final class Sketches {
  /** `sketch` is null of an aggregate that is exact. */
  static Aggregate of(String kind, DataType type, JsonNode sketch) {
    if (sketch == null || sketch.isNull()) return Aggregate.of(kind, type);
    Carrier carrier = Carrier.of(type);
    int size = sketch.get("size").asInt();
    switch (kind) {
      case "approx_distinct": return new ApproxDistinct(carrier, size);
      case "quantile": return new Quantiles(carrier, type, size, ranks(sketch), true);
      case "quantiles": return new Quantiles(carrier, type, size, ranks(sketch), false);
      case "frequent": return new Frequent(carrier, type, size, sketch.get("most").asInt());
      default: throw new IllegalArgumentException(kind);
    }
  }

  /** The same over the rows of a batch: a struct whose `value` is the result. */
  public static Column batch(String kind, String type, String sketch, Column value) {
    DataType of = DataType.fromJson(type);
    Batched batched = new Batched(Sketches.of(kind, of, Json.read(sketch)));
    return functions.udaf(batched, Encoders.row(new StructType().add("value", of))).apply(value);
  }

  private static double[] ranks(JsonNode sketch) {
    double[] found = new double[sketch.get("ranks").size()];
    for (int place = 0; place < found.length; place++) found[place] = sketch.get("ranks").get(place).asDouble();
    return found;
  }

  private Sketches() {}
}
