package millrace.kernel;

import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.expressions.Aggregator;
import org.apache.spark.sql.types.StructType;

/** An aggregate of the kernel as one of Spark's own, for batches. In comes `value`, out a struct whose `value` is the result. */
public final class Batched extends Aggregator<Row, Batched.Part, Row> {
  private final Aggregate aggregate;

  Batched(Aggregate aggregate) {
    this.aggregate = aggregate;
  }

  /** What is held of some rows. Written as state is; public because Spark asks for it. */
  public static final class Part implements Serializable {
    private static final long serialVersionUID = 1;

    private final Aggregate aggregate;
    private transient Object held;

    Part(Aggregate aggregate) {
      this.aggregate = aggregate;
      held = aggregate.empty();
    }

    private void writeObject(ObjectOutputStream out) throws IOException {
      out.defaultWriteObject();
      aggregate.write(held, out);
    }

    private void readObject(ObjectInputStream in) throws IOException, ClassNotFoundException {
      in.defaultReadObject();
      held = aggregate.read(in);
    }
  }

  @Override public Part zero() { return new Part(aggregate); }

  @Override
  public Part reduce(Part part, Row row) {
    part.held = aggregate.take(part.held, row, 0, 0);
    return part;
  }

  @Override
  public Part merge(Part part, Part other) {
    part.held = aggregate.merge(part.held, other.held);
    return part;
  }

  @Override public Row finish(Part part) { return RowFactory.create(aggregate.result(part.held)); }
  @Override public Encoder<Part> bufferEncoder() { return Encoders.javaSerialization(Part.class); }

  @Override
  public Encoder<Row> outputEncoder() {
    return Encoders.row(new StructType().add("value", aggregate.resultType()));
  }
}
