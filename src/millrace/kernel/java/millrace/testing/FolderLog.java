package millrace.testing;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The data source of a log in a folder, for tests without a broker. It has the columns, offsets and options of Spark's
 * Kafka source (`subscribe`, `startingOffsets`, `endingOffsets`, `maxOffsetsPerTrigger`, `includeHeaders`, `topic`) and
 * two of its own: `folder`, and `time`, the clock of which records get their time.
 */
public final class FolderLog implements TableProvider {
  private static final StructType HEADER =
      new StructType().add("key", DataTypes.StringType).add("value", DataTypes.BinaryType);
  static final StructType COLUMNS = new StructType()
      .add("key", DataTypes.BinaryType)
      .add("value", DataTypes.BinaryType)
      .add("topic", DataTypes.StringType)
      .add("partition", DataTypes.IntegerType)
      .add("offset", DataTypes.LongType)
      .add("timestamp", DataTypes.TimestampType)
      .add("timestampType", DataTypes.IntegerType);

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return options.getBoolean("includeHeaders", false)
        ? COLUMNS.add("headers", DataTypes.createArrayType(HEADER))
        : COLUMNS;
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new LogTable(inferSchema(new CaseInsensitiveStringMap(properties)));
  }

  private record LogTable(StructType schema) implements SupportsRead, SupportsWrite {
    @Override
    public String name() {
      return "a log in a folder";
    }

    @Override
    public Set<TableCapability> capabilities() {
      return Set.of(
          TableCapability.BATCH_READ,
          TableCapability.MICRO_BATCH_READ,
          TableCapability.BATCH_WRITE,
          TableCapability.STREAMING_WRITE,
          TableCapability.ACCEPT_ANY_SCHEMA);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return () -> new LogScan(schema, options);
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return new FolderWrite.Builder(info);
    }
  }

  private record LogScan(StructType readSchema, CaseInsensitiveStringMap options) implements Scan {
    @Override
    public Batch toBatch() {
      return new FolderStream(options);
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      return new FolderStream(options);
    }
  }
}
