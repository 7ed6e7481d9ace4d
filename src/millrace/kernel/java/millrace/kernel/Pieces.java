package millrace.kernel;

import java.io.ByteArrayOutputStream;
import java.util.Iterator;
import java.util.NoSuchElementException;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;

/**
 * Lines put together to pieces of some size, in their order. Python is given a few large things instead of many small
 * ones: each of them costs more on the way than a line itself.
 *
 * The first column is the line, in bytes, without its end; a row that has none is passed on as it is.
 */
public final class Pieces {
  public static Dataset<Row> of(Dataset<Row> lines, int sizeBytes) {
    int columns = lines.schema().size();
    MapPartitionsFunction<Row, Row> join = rows -> new Joined(rows, columns, sizeBytes);
    return lines.mapPartitions(join, Encoders.row(lines.schema()));
  }

  private static final class Joined implements Iterator<Row> {
    private final Iterator<Row> rows;
    private final int columns;
    private final int sizeBytes;
    private final ByteArrayOutputStream piece = new ByteArrayOutputStream();
    private Row aside;

    Joined(Iterator<Row> rows, int columns, int sizeBytes) {
      this.rows = rows;
      this.columns = columns;
      this.sizeBytes = sizeBytes;
    }

    @Override
    public boolean hasNext() { return aside != null || rows.hasNext(); }

    @Override
    public Row next() {
      if (!hasNext()) throw new NoSuchElementException();
      while (aside == null && rows.hasNext() && piece.size() < sizeBytes) {
        Row row = rows.next();
        if (row.isNullAt(0)) {
          aside = row;
        } else {
          byte[] line = row.getAs(0);
          piece.write(line, 0, line.length);
          piece.write('\n');
        }
      }
      return piece.size() > 0 ? joined() : takeAside();
    }

    private Row joined() {
      Object[] values = new Object[columns];
      values[0] = piece.toByteArray();
      piece.reset();
      return RowFactory.create(values);
    }

    private Row takeAside() {
      Row row = aside;
      aside = null;
      return row;
    }
  }

  private Pieces() {}
}
