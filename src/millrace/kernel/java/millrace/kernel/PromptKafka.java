package millrace.kernel;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Spark's Kafka source, with one difference: an epoch in real time ends as soon as it is asked to (see Ending), and the
 * first ones early (see FirstEpochs). Spark's own would wait in a poll for as long as the epoch was to be, and a flow
 * that is stopped would have to be interrupted, and repeat the epoch.
 */
public final class PromptKafka implements TableProvider {
  private static final String KAFKA = "org.apache.spark.sql.kafka010.KafkaSourceProvider";
  /** An option: how long the first epoch may take. */
  private static final String FIRST = "firstEpochMs";

  private final TableProvider kafka;

  public PromptKafka() throws ReflectiveOperationException {
    ClassLoader loader = Thread.currentThread().getContextClassLoader();
    kafka = (TableProvider) Class.forName(KAFKA, true, loader).getDeclaredConstructor().newInstance();
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return kafka.inferSchema(options);
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new Topic((SupportsRead) kafka.getTable(schema, partitioning, properties));
  }

  private record Topic(SupportsRead table) implements SupportsRead {
    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      ScanBuilder builder = table.newScanBuilder(options);
      return () -> new Reading(builder.build(), options.getLong(FIRST, 0));
    }

    @Override public String name() { return table.name(); }
    @Override public Column[] columns() { return table.columns(); }
    @Override public Set<TableCapability> capabilities() { return table.capabilities(); }
  }

  private record Reading(Scan scan, long firstMs) implements Scan {
    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      return new PromptStream(scan.toMicroBatchStream(checkpoint), new FirstEpochs(firstMs));
    }

    @Override public StructType readSchema() { return scan.readSchema(); }
    @Override public String description() { return scan.description(); }
    @Override public Batch toBatch() { return scan.toBatch(); }
    @Override public CustomMetric[] supportedCustomMetrics() { return scan.supportedCustomMetrics(); }
    @Override public CustomTaskMetric[] reportDriverMetrics() { return scan.reportDriverMetrics(); }
  }
}
