package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** The keyed steps of a chain of signed rows, by name: see `SignedStep` for what comes in and out. */
public final class Signed {
  private static final StructType KEY = new StructType().add("key", DataTypes.BinaryType);
  private static final StructType IN = KEY
      .add("side", DataTypes.IntegerType).add("tag", DataTypes.IntegerType).add("row", DataTypes.BinaryType)
      .add("diff", DataTypes.LongType);
  private static final StructType OUT = new StructType()
      .add("tag", DataTypes.IntegerType).add("row", DataTypes.BinaryType).add("diff", DataTypes.LongType);

  public static Dataset<Row> step(Dataset<Row> rows, String settings) {
    JsonNode told = Json.read(settings);
    SignedStep step = switch (told.get("operator").asText()) {
      case "join" -> new SignedJoin(settings, told);
      case "aggregate", "distinct" -> new SignedAggregate(settings, told);
      case "first" -> new SignedTop(settings, told);
      case "span" -> new SignedSpan(settings, told);
      case "only" -> new SignedOnly(settings, told);
      case "consolidate" -> new Consolidation(settings, told);
      default -> throw new IllegalArgumentException(settings);
    };
    return rows.groupBy(functions.col("key")).as(BoundOnce.of(Encoders.row(KEY)), BoundOnce.of(Encoders.row(IN)))
        .transformWithState(step, TimeMode.None(), OutputMode.Update(), Encoders.row(OUT));
  }

  private Signed() {}
}
