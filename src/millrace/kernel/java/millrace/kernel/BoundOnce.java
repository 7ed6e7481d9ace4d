package millrace.kernel;

import java.io.Serializable;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.catalyst.analysis.Analyzer;
import org.apache.spark.sql.catalyst.encoders.AgnosticEncoder;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import scala.collection.immutable.Seq;

/**
 * An encoder that is analyzed once in a JVM. Spark analyzes those of a keyed operator's key and of each of its states in
 * every task of every epoch, and in real time rows wait for it.
 */
final class BoundOnce<T> extends ExpressionEncoder<T> {
  private static final ConcurrentHashMap<AgnosticEncoder<?>, BoundOnce<?>> ALL = new ConcurrentHashMap<>();

  static final Encoder<byte[]> BYTES = of(Encoders.BINARY());
  static final Encoder<Long> LONG = of(Encoders.LONG());

  private transient volatile ExpressionEncoder<T> bound;

  private BoundOnce(ExpressionEncoder<T> plain) {
    super(plain.encoder(), plain.objSerializer(), plain.objDeserializer());
  }

  static <T> Encoder<T> of(Encoder<T> encoder) {
    return of((AgnosticEncoder<T>) encoder);
  }

  @SuppressWarnings("unchecked") // what is kept for an encoder is of its type
  private static <T> BoundOnce<T> of(AgnosticEncoder<T> encoder) {
    return (BoundOnce<T>) ALL.computeIfAbsent(encoder, each -> new BoundOnce<>(ExpressionEncoder.apply(each)));
  }

  @Override
  public ExpressionEncoder<T> resolveAndBind(Seq<Attribute> attributes, Analyzer analyzer) {
    if (!DataTypeUtils.fromAttributes(attributes).equals(schema())) return super.resolveAndBind(attributes, analyzer);
    if (bound == null) bound = super.resolveAndBind(attributes, analyzer);
    return bound;
  }

  /** To a task goes its type alone, and there it is the one of that JVM. */
  private Object writeReplace() {
    return new Sent(encoder());
  }

  private record Sent(AgnosticEncoder<?> encoder) implements Serializable {
    private Object readResolve() {
      return of(encoder);
    }
  }
}
