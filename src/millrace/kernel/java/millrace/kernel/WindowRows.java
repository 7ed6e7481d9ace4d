package millrace.kernel;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import scala.jdk.javaapi.CollectionConverters;

/** The rows that windows tell: the key's columns, the edges, the results, `replaces`, `kind`, `lateUs` and perhaps `row`. */
record WindowRows(int keys, int results, boolean keepsRefused) implements Serializable {
  Row result(Row key, long startUs, long endUs, Aggregate[] aggregates, Object[] held, List<long[]> replaced) {
    Object[] values = new Object[results];
    for (int place = 0; place < results; place++) values[place] = aggregates[place].result(held[place]);
    return row(key, startUs, endUs, values, replaced, Told.RESULT, null, null);
  }

  /** `whole` is the row itself, if refused rows are wanted. */
  Row refused(Row key, long startUs, long endUs, boolean first, long watermarkUs, Object whole) {
    int kind = first ? Told.REFUSED : Told.REFUSED_TOO;
    return row(key, startUs, endUs, null, List.of(), kind, watermarkUs - endUs, whole);
  }

  Row allowed(Row key, long startUs, long endUs) {
    return row(key, startUs, endUs, null, List.of(), Told.ALLOWED, 0L, null);
  }

  private Row row(
      Row key, long startUs, long endUs, Object[] values, List<long[]> replaced, int kind, Long lateUs, Object whole) {
    Object[] out = new Object[keys + 5 + results + (keepsRefused ? 1 : 0)];
    for (int place = 0; place < keys; place++) out[place] = key.get(place);
    out[keys] = startUs;
    out[keys + 1] = endUs;
    if (values != null) System.arraycopy(values, 0, out, keys + 2, results);
    int rest = keys + 2 + results;
    if (!replaced.isEmpty()) {
      List<Row> replaces = new ArrayList<>();
      for (long[] window : replaced) replaces.add(RowFactory.create(window[0], window[1]));
      out[rest] = CollectionConverters.asScala(replaces).toSeq();
    }
    out[rest + 1] = kind;
    out[rest + 2] = lateUs;
    if (keepsRefused) out[rest + 3] = whole;
    return RowFactory.create(out);
  }
}
