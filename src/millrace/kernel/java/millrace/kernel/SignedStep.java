package millrace.kernel;

import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.TimerValues;
import scala.collection.BufferedIterator;
import scala.collection.Iterator;

/**
 * A keyed step of a chain of signed rows; `model/signed.py` is the same in plain Python. In come `key`, `side` (which of
 * the step's tables), `tag` (which table of the chain), `row` (packed) and `diff`; out come `tag`, `row` and `diff`.
 *
 * What holds: rows of tables that the step does not take leave as they came. They come in groups of their own, whose
 * keys are a single byte; a key of the step is as long as a packed row, or empty. What a call tells depends on what its
 * rows add up to, never on their order.
 */
abstract class SignedStep extends Keeper<Row, Row, Row> {
  static final int FOREIGN = -1;

  SignedStep(String told) {
    super(told);
  }

  @Override
  public final Iterator<Row> handleInputRows(Row key, Iterator<Row> rows, TimerValues timers) {
    BufferedIterator<Row> all = rows.buffered();
    if (side(all.head()) == FOREIGN) return all.map(row -> told(row.getInt(2), row(row), diff(row)));
    return own((byte[]) key.get(0), all);
  }

  /** May be told lazily: Spark takes all of it before it comes to the next key. */
  abstract Iterator<Row> own(byte[] key, Iterator<Row> rows);

  static int side(Row row) {
    return row.getInt(1);
  }

  static byte[] row(Row row) {
    return (byte[]) row.get(3);
  }

  static long diff(Row row) {
    return row.getLong(4);
  }

  static Row told(int tag, byte[] row, long diff) {
    return RowFactory.create(tag, row, diff);
  }
}
