package millrace.kernel;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.aggregate.ImperativeAggregate;
import org.apache.spark.sql.catalyst.expressions.aggregate.TypedImperativeAggregate;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What an epoch saw of event time, by partition: the greatest time (µs), and how many events had which arrival delay.
 * As JSON: {"0": [1700000000000000, {"12": 3}]}; a partition that showed no time has null for it. A record that does not
 * count at all has no partition. Every record is asked, so it is an aggregate as Spark's own are: one of its public
 * interface would have each row made into an object first.
 */
public final class Seen extends TypedImperativeAggregate<Seen.Partitions> implements Serializable {
  /** What is held; serialized only between a task and the driver. */
  public static final class Partitions implements Serializable {
    final Map<Integer, One> byNumber = new TreeMap<>();
    private transient One last;
    private transient int lastNumber;

    /** Most often the same as before. */
    One of(int number) {
      if (last == null || lastNumber != number) {
        last = byNumber.computeIfAbsent(number, unused -> new One());
        lastNumber = number;
      }
      return last;
    }
  }

  static final class One implements Serializable {
    long greatestUs = Long.MIN_VALUE;
    final Map<Integer, Long> delays = new TreeMap<>();
  }

  private final Expression arrivalUs;
  private final Expression partition;
  private final Expression timeUs;
  private final boolean delays;
  private final int mutableOffset;
  private final int inputOffset;

  /** Spark makes copies of it by this. */
  public Seen(
      Expression arrivalUs, Expression partition, Expression timeUs, boolean delays, int mutableOffset, int inputOffset) {
    this.arrivalUs = arrivalUs;
    this.partition = partition;
    this.timeUs = timeUs;
    this.delays = delays;
    this.mutableOffset = mutableOffset;
    this.inputOffset = inputOffset;
  }

  /** Of times in µs (long) and a partition (int); with the delays, or without. */
  public static Column of(Column arrivalUs, Column partition, Column timeUs, boolean delays) {
    Seen seen = new Seen(
        ExpressionUtils.expression(arrivalUs), ExpressionUtils.expression(partition), ExpressionUtils.expression(timeUs),
        delays, 0, 0);
    return ExpressionUtils.column(seen.toAggregateExpression());
  }

  @Override
  public Partitions createAggregationBuffer() {
    return new Partitions();
  }

  @Override
  public Partitions update(Partitions seen, InternalRow row) {
    Object number = partition.eval(row);
    if (number == null) return seen;
    One one = seen.of((Integer) number);
    Object time = timeUs.eval(row);
    if (time == null) return seen;
    one.greatestUs = Math.max(one.greatestUs, (Long) time);
    if (delays) one.delays.merge(Delays.bucket((Long) arrivalUs.eval(row) - (Long) time), 1L, Long::sum);
    return seen;
  }

  @Override
  public Partitions merge(Partitions seen, Partitions other) {
    other.byNumber.forEach((number, more) -> {
      One one = seen.of(number);
      one.greatestUs = Math.max(one.greatestUs, more.greatestUs);
      more.delays.forEach((bucket, count) -> one.delays.merge(bucket, count, Long::sum));
    });
    return seen;
  }

  @Override
  public Object eval(Partitions seen) {
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
    return UTF8String.fromString(json.append('}').toString());
  }

  @Override
  public byte[] serialize(Partitions seen) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
      out.writeObject(seen);
    } catch (IOException impossible) {
      throw new UncheckedIOException(impossible);
    }
    return bytes.toByteArray();
  }

  @Override
  public Partitions deserialize(byte[] bytes) {
    try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(bytes))) {
      return (Partitions) in.readObject();
    } catch (IOException | ClassNotFoundException impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  // What Spark wants to know of an expression.

  @Override public boolean nullable() { return false; }
  @Override public DataType dataType() { return DataTypes.StringType; }
  @Override public String prettyName() { return "millrace_seen"; }
  @Override public int mutableAggBufferOffset() { return mutableOffset; }
  @Override public int inputAggBufferOffset() { return inputOffset; }

  @Override
  public Seq<Expression> children() {
    return CollectionConverters.asScala(List.of(arrivalUs, partition, timeUs)).toList();
  }

  @Override
  public Expression withNewChildrenInternal(IndexedSeq<Expression> made) {
    return new Seen(made.apply(0), made.apply(1), made.apply(2), delays, mutableOffset, inputOffset);
  }

  @Override
  public ImperativeAggregate withNewMutableAggBufferOffset(int offset) {
    return new Seen(arrivalUs, partition, timeUs, delays, offset, inputOffset);
  }

  @Override
  public ImperativeAggregate withNewInputAggBufferOffset(int offset) {
    return new Seen(arrivalUs, partition, timeUs, delays, mutableOffset, offset);
  }

  private List<Object> parts() {
    return List.of(arrivalUs, partition, timeUs, delays, mutableOffset, inputOffset);
  }

  @Override public int productArity() { return parts().size(); }
  @Override public Object productElement(int place) { return parts().get(place); }
  @Override public boolean canEqual(Object other) { return other instanceof Seen; }
  @Override public boolean equals(Object other) { return other instanceof Seen seen && parts().equals(seen.parts()); }
  @Override public int hashCode() { return Objects.hash(parts()); }
}
