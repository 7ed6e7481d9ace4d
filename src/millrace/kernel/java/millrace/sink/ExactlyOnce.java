package millrace.sink;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The data source that writes each epoch of a query into Kafka exactly once, for readers of committed records
 * (`isolation.level=read_committed`). The columns are those of Spark's Kafka sink; for the options see SinkOptions.
 */
public final class ExactlyOnce implements TableProvider {
  @Override
  public StructType inferSchema(CaseInsensitiveStringMap unused) {
    return new StructType();
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new Topics();
  }

  private static final class Topics implements SupportsWrite {
    @Override
    public String name() {
      return "topics, exactly once";
    }

    @Override
    @SuppressWarnings("deprecation")
    public StructType schema() {
      return new StructType();
    }

    @Override
    public Set<TableCapability> capabilities() {
      return Set.of(
          TableCapability.BATCH_WRITE, TableCapability.STREAMING_WRITE, TableCapability.ACCEPT_ANY_SCHEMA);
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return new EpochWrite.Builder(info);
    }
  }
}
