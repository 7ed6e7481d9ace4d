package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Rows of several streams within an interval of those of the first. In come the columns of the key, the number of the
 * `stream`, the row's `time` (µs) and the `row` (packed). Out come `kind`, `lateUs` and a row of each stream, `r0` and so
 * on; a late row alone.
 */
public final class Join {
  public static Dataset<Row> stream(Dataset<Row> rows, String told) {
    JsonNode json = Json.read(told);
    JoinSettings settings = new JoinSettings(json);
    StructType schema = rows.schema();
    StructType key = new StructType(Arrays.copyOf(schema.fields(), settings.keys()));
    StructType out = new StructType().add("kind", DataTypes.IntegerType).add("lateUs", DataTypes.LongType);
    for (int stream = 0; stream < settings.streams(); stream++) out = out.add("r" + stream, DataTypes.BinaryType);
    Column[] by = Arrays.stream(key.fieldNames()).map(functions::col).toArray(Column[]::new);
    return rows.groupBy(by).as(Lookup.exact(key), Lookup.exact(schema)).transformWithState(
        new JoinProcessor(told, settings, key), TimeMode.EventTime(), OutputMode.Update(), Encoders.row(out));
  }

  /**
   * Whether the two can be one stream: Spark refuses a union of what has kept state before, and of what comes from the
   * same source.
   */
  public static boolean canUnite(Dataset<Row> left, Dataset<Row> right) {
    Set<Object> sources = new HashSet<>();
    return isPlain(plan(left), sources) && isPlain(plan(right), sources);
  }

  private static LogicalPlan plan(Dataset<Row> rows) {
    return ((org.apache.spark.sql.classic.Dataset<Row>) rows).queryExecution().analyzed();
  }

  private static boolean isPlain(LogicalPlan plan, Set<Object> sources) {
    if (!plan.isStreaming()) return true;
    String name = plan.nodeName();
    boolean keeps = name.contains("WithState") || name.equals("Aggregate") || name.startsWith("Deduplicate");
    if (keeps || name.equals("GlobalLimit") || name.equals("Join") && bothStream(plan)) return false;
    if (plan.children().isEmpty() && !sources.add(source(plan))) return false;
    for (LogicalPlan child : CollectionConverters.asJava(plan.children())) {
      if (!isPlain(child, sources)) return false;
    }
    return true;
  }

  private static boolean bothStream(LogicalPlan join) {
    return join.children().forall(child -> ((LogicalPlan) child).isStreaming());
  }

  /** What Spark makes one source of, however often it is read. */
  private static Object source(LogicalPlan leaf) {
    return leaf instanceof StreamingRelationV2 relation ? relation.table() : leaf.canonicalized();
  }

  private Join() {}
}
