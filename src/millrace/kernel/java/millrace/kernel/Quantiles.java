package millrace.kernel;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.List;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import scala.jdk.javaapi.CollectionConverters;

/** Values at given ranks, about: see Kll. One rank (`single`) gives a value, others an array. */
final class Quantiles extends Aggregate {
  private final DataType type;
  private final int size;
  private final double[] ranks;
  private final boolean single;

  Quantiles(Carrier carrier, DataType type, int size, double[] ranks, boolean single) {
    super(carrier);
    this.type = type;
    this.size = size;
    this.ranks = ranks;
    this.single = single;
  }

  @Override Object empty() { return new Kll(carrier, size); }

  @Override
  Object add(Object held, Object value, long timeUs) {
    ((Kll) held).add(value);
    return held;
  }

  @Override
  Object merge(Object held, Object other) {
    ((Kll) held).add((Kll) other);
    return held;
  }

  @Override
  Object result(Object held) {
    Object[] found = ((Kll) held).quantiles(ranks);
    if (found == null) return null;
    return single ? found[0] : CollectionConverters.asScala(List.of(found)).toSeq();
  }

  @Override DataType resultType() { return single ? type : DataTypes.createArrayType(type, false); }
  @Override void write(Object held, DataOutput out) throws IOException { ((Kll) held).write(out); }
  @Override Object read(DataInput in) throws IOException { return Kll.read(carrier, size, in); }
}
