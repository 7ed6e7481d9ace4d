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
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Spark's Kafka source, with one difference: an epoch ends where a transaction of the captured database does, in all of
 * its topics (see WholeStream). The option `marks` names, for each database, the topics of its marks and of its tables.
 */
public final class WholeKafka implements TableProvider {
  private static final String KAFKA = "org.apache.spark.sql.kafka010.KafkaSourceProvider";

  private final TableProvider kafka;

  public WholeKafka() throws ReflectiveOperationException {
    ClassLoader loader = Thread.currentThread().getContextClassLoader();
    kafka = (TableProvider) Class.forName(KAFKA, true, loader).getDeclaredConstructor().newInstance();
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return kafka.inferSchema(options);
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new Topics((SupportsRead) kafka.getTable(schema, partitioning, properties));
  }

  private record Topics(SupportsRead table) implements SupportsRead {
    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      ScanBuilder builder = table.newScanBuilder(options);
      return () -> new Reading(builder.build(), options);
    }

    @Override public String name() { return table.name(); }
    @Override public Column[] columns() { return table.columns(); }
    @Override public Set<TableCapability> capabilities() { return table.capabilities(); }
  }

  private record Reading(Scan scan, CaseInsensitiveStringMap options) implements Scan {
    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      return new WholeStream(scan.toMicroBatchStream(checkpoint), new Frontier(options));
    }

    @Override public StructType readSchema() { return scan.readSchema(); }
    @Override public String description() { return scan.description(); }
    @Override public CustomMetric[] supportedCustomMetrics() { return scan.supportedCustomMetrics(); }
  }
}
