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

/** Spark's Kafka source, with another stream around its own. */
abstract class OverKafka implements TableProvider {
  private static final String KAFKA = "org.apache.spark.sql.kafka010.KafkaSourceProvider";

  private final TableProvider kafka;

  OverKafka() throws ReflectiveOperationException {
    ClassLoader loader = Thread.currentThread().getContextClassLoader();
    kafka = (TableProvider) Class.forName(KAFKA, true, loader).getDeclaredConstructor().newInstance();
  }

  abstract MicroBatchStream around(MicroBatchStream kafka, CaseInsensitiveStringMap options);

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return kafka.inferSchema(options);
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new Topics((SupportsRead) kafka.getTable(schema, partitioning, properties));
  }

  private final class Topics implements SupportsRead {
    private final SupportsRead table;

    Topics(SupportsRead table) {
      this.table = table;
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      ScanBuilder builder = table.newScanBuilder(options);
      return () -> new Reading(builder.build(), options);
    }

    @Override public String name() { return table.name(); }
    @Override public Column[] columns() { return table.columns(); }
    @Override public Set<TableCapability> capabilities() { return table.capabilities(); }
  }

  private final class Reading implements Scan {
    private final Scan scan;
    private final CaseInsensitiveStringMap options;

    Reading(Scan scan, CaseInsensitiveStringMap options) {
      this.scan = scan;
      this.options = options;
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      return around(scan.toMicroBatchStream(checkpoint), options);
    }

    @Override public StructType readSchema() { return scan.readSchema(); }
    @Override public String description() { return scan.description(); }
    @Override public Batch toBatch() { return scan.toBatch(); }
    @Override public CustomMetric[] supportedCustomMetrics() { return scan.supportedCustomMetrics(); }
    @Override public CustomTaskMetric[] reportDriverMetrics() { return scan.reportDriverMetrics(); }
  }
}
