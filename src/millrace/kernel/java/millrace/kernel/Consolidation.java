package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TimeMode;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/** Opposite rows of one call cancel, and equal ones become one; the key is the row. Nothing is kept. */
final class Consolidation extends SignedStep {
  private final int tag;

  Consolidation(String settings, JsonNode told) {
    super(settings);
    tag = told.get("tag").asInt();
  }

  @Override
  public void init(OutputMode mode, TimeMode time) {}

  @Override
  Iterator<Row> own(byte[] key, Iterator<Row> rows) {
    long sum = 0;
    while (rows.hasNext()) sum = Math.addExact(sum, diff(rows.next()));
    List<Row> out = new ArrayList<>(1);
    if (sum != 0) out.add(told(tag, key, sum));
    return CollectionConverters.asScala(out.iterator());
  }
}
