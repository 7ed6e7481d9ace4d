package millrace.kernel;

import java.io.Serializable;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.expressions.Aggregator;
import org.apache.spark.sql.functions;

/**
 * What an epoch saw of event time, by partition: the greatest time (µs), and how many events had which arrival delay.
 * As JSON: {"0": [1700000000000000, {"12": 3}]}; a partition that showed no time has null for it. A record that does not
 * count at all has no partition.
 */
public final class Seen extends Aggregator<SeenRow, Seen.Partitions, String> {
  /** The buffer: an object of Java's, serialized only between a task and the driver. */
  public static final class Partitions implements Serializable {
    final Map<Integer, One> byNumber = new TreeMap<>();
  }

  static final class One implements Serializable {
    long greatestUs = Long.MIN_VALUE;
    final Map<Integer, Long> delays = new TreeMap<>();
  }

  private final boolean delays;

  Seen(boolean delays) {
    this.delays = delays;
  }

  /** Makes it known to a session under two names: with the delays, and without. */
  public static void register(SparkSession spark) {
    Encoder<SeenRow> rows = Encoders.bean(SeenRow.class);
    spark.udf().register("millrace_seen", functions.udaf(new Seen(false), rows));
    spark.udf().register("millrace_seen_delays", functions.udaf(new Seen(true), rows));
  }

  @Override
  public Partitions zero() {
    return new Partitions();
  }

  @Override
  public Partitions reduce(Partitions seen, SeenRow row) {
    if (row.getPartition() == null) return seen;
    One one = seen.byNumber.computeIfAbsent(row.getPartition(), unused -> new One());
    if (row.getTimeUs() == null) return seen;
    one.greatestUs = Math.max(one.greatestUs, row.getTimeUs());
    if (delays) one.delays.merge(Delays.bucket(row.getArrivalUs() - row.getTimeUs()), 1L, Long::sum);
    return seen;
  }

  @Override
  public Partitions merge(Partitions seen, Partitions other) {
    other.byNumber.forEach((number, more) -> {
      One one = seen.byNumber.computeIfAbsent(number, unused -> new One());
      one.greatestUs = Math.max(one.greatestUs, more.greatestUs);
      more.delays.forEach((bucket, count) -> one.delays.merge(bucket, count, Long::sum));
    });
    return seen;
  }

  @Override
  public String finish(Partitions seen) {
    StringBuilder json = new StringBuilder("{");
    seen.byNumber.forEach((number, one) -> {
      if (json.length() > 1) json.append(',');
      json.append('"').append(number).append("\":[");
      json.append(one.greatestUs == Long.MIN_VALUE ? "null" : one.greatestUs).append(",{");
      one.delays.forEach((bucket, count) -> {
        if (json.charAt(json.length() - 1) != '{') json.append(',');
        json.append('"').append(bucket).append("\":").append(count);
      });
      json.append("}]");
    });
    return json.append('}').toString();
  }

  @Override
  public Encoder<Partitions> bufferEncoder() {
    return Encoders.javaSerialization(Partitions.class);
  }

  @Override
  public Encoder<String> outputEncoder() {
    return Encoders.STRING();
  }
}
