package millrace.kernel;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The time of day as a source: an epoch whose time is another one than that of the epoch before has one row, `ms`.
 *
 * What holds: the time is among the offsets that Spark writes before an epoch begins, so an epoch that is done again has
 * the same. It never goes back, also if the machine's does. With nothing else to do there is an epoch each second.
 */
public final class Ticks implements TableProvider {
  private static final StructType SCHEMA = new StructType().add("ms", DataTypes.LongType, false);
  private static final long EVERY_MS = 1_000;

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return SCHEMA;
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new Times();
  }

  /** What an epoch's time is after one of this time; the same if it is too early for another. */
  public static long next(long beforeMs, long clockMs) {
    return clockMs - beforeMs >= EVERY_MS ? clockMs : beforeMs;
  }

  private static final class Times implements SupportsRead, Scan {
    @Override public String name() { return "the time of day"; }
    @Override public StructType schema() { return SCHEMA; }
    @Override public StructType readSchema() { return SCHEMA; }
    @Override public Set<TableCapability> capabilities() { return Set.of(TableCapability.MICRO_BATCH_READ); }
    @Override public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) { return () -> this; }
    @Override public MicroBatchStream toMicroBatchStream(String checkpoint) { return new Stream(); }
  }

  /** As positions are written (see Cut), under a name that no database has. */
  private static final class Time extends Offset {
    final long ms;

    Time(long ms) {
      this.ms = ms;
    }

    @Override public String json() { return "{\"@@now\":{\"ms\":" + ms + "}}"; }
  }

  private static final class Stream implements MicroBatchStream, SupportsTriggerAvailableNow {
    /** With availableNow: the time at which the query began. */
    private long thenMs = Long.MAX_VALUE;

    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
      return new Time(next(((Time) start).ms, Math.min(System.currentTimeMillis(), thenMs)));
    }

    @Override public void prepareForTriggerAvailableNow() { thenMs = System.currentTimeMillis(); }
    @Override public Offset latestOffset() { throw new UnsupportedOperationException("an epoch has a start"); }
    @Override public ReadLimit getDefaultReadLimit() { return ReadLimit.allAvailable(); }
    @Override public Offset initialOffset() { return new Time(0); }
    @Override public Offset deserializeOffset(String json) { return new Time(Json.read(json).get("@@now").get("ms").asLong()); }
    @Override public PartitionReaderFactory createReaderFactory() { return part -> new Once(((Part) part).ms); }
    @Override public void commit(Offset end) {}
    @Override public void stop() {}

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
      return new InputPartition[] {new Part(((Time) end).ms)};
    }
  }

  private record Part(long ms) implements InputPartition {}

  private static final class Once implements PartitionReader<InternalRow> {
    private final long ms;
    private boolean given;

    Once(long ms) {
      this.ms = ms;
    }

    @Override
    public boolean next() {
      boolean first = !given;
      given = true;
      return first;
    }

    @Override public InternalRow get() { return new GenericInternalRow(new Object[] {ms}); }
    @Override public void close() {}
  }
}
