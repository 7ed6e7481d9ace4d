package millrace.kernel;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Rows as PostgreSQL's COPY reads them in its binary format, in pieces of some size: straight from Spark's own rows, and
 * the server has nothing to parse.
 *
 * The first two columns are the row as a text if no COPY can hold it, and its key; then come the values, and last the
 * sign. `signed` says whether sign and number of this attempt are copied too, after the values; without, a row that went
 * cannot be, and comes out without piece and text. The last row that comes out is the only one with a count, of all rows:
 * to Python, rows that are cut off by an error look like all.
 */
public final class CopyRows {
  private static final int UNFIT = 0;
  private static final int KEY = 1;
  private static final int FIRST = 2;
  private static final byte[] BEGIN = "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0\0".getBytes(StandardCharsets.ISO_8859_1);
  private static final StructType OUTPUT = new StructType()
      .add("piece", DataTypes.BinaryType)
      .add("unfit", DataTypes.StringType)
      .add("key", DataTypes.StringType)
      .add("attempt", DataTypes.LongType)
      .add("rows", DataTypes.LongType);

  /** `kinds` are PostgreSQL's words for the types of the values. */
  public static Dataset<Row> of(Dataset<Row> rows, List<String> kinds, boolean signed, int sizeBytes) {
    StructField[] fields = rows.schema().fields();
    DataType[] types = new DataType[kinds.size()];
    for (int place = 0; place < types.length; place++) types[place] = fields[FIRST + place].dataType();
    String[] words = kinds.toArray(new String[0]);
    JavaRDD<InternalRow> given = rows.queryExecution().toRdd().toJavaRDD();
    JavaRDD<Row> made = given.mapPartitions(each -> new Copied(each, types, words, signed, sizeBytes));
    return rows.sparkSession().createDataFrame(made, OUTPUT);
  }

  private static final class Copied implements Iterator<Row> {
    private final Iterator<InternalRow> rows;
    private final CopyValue[] values;
    private final boolean signed;
    private final int sizeBytes;
    /** No other attempt has it, also none of a process that was killed and whose tasks still run. */
    private final long attempt = new SecureRandom().nextLong() >>> 1;
    private final Growing piece = new Growing();
    private long count;
    private boolean begun;
    private boolean ended;
    private Row aside;

    Copied(Iterator<InternalRow> rows, DataType[] types, String[] kinds, boolean signed, int sizeBytes) {
      this.rows = rows;
      this.values = new CopyValue[types.length];
      for (int place = 0; place < types.length; place++) values[place] = CopyValue.of(kinds[place], types[place]);
      this.signed = signed;
      this.sizeBytes = sizeBytes;
    }

    @Override
    public boolean hasNext() { return !ended; }

    @Override
    public Row next() {
      if (!hasNext()) throw new NoSuchElementException();
      for (; aside == null && rows.hasNext() && piece.size() < sizeBytes; count++) take(rows.next());
      if (piece.size() > 0) return RowFactory.create(piece.taken(), null, null, attempt, null);
      if (aside != null) return takeAside();
      ended = true;
      return RowFactory.create(null, null, null, attempt, count);
    }

    private void take(InternalRow row) {
      int last = FIRST + values.length;
      if (!row.isNullAt(UNFIT)) {
        String key = row.isNullAt(KEY) ? null : row.getUTF8String(KEY).toString();
        aside = RowFactory.create(null, row.getUTF8String(UNFIT).toString(), key, attempt, null);
      } else if (!signed && row.getInt(last) < 0) {
        aside = RowFactory.create(null, null, null, attempt, null);
      } else {
        if (!begun) piece.bytes(BEGIN);
        begun = true;
        piece.int2(values.length + (signed ? 2 : 0));
        for (int place = 0; place < values.length; place++) values[place].field(row, FIRST + place, piece);
        if (signed) {
          piece.int4(Short.BYTES).int2(row.getInt(last));
          piece.int4(Long.BYTES).int8(attempt);
        }
      }
    }

    private Row takeAside() {
      Row row = aside;
      aside = null;
      return row;
    }
  }

  /** Bytes that are added to, numbers with their highest byte first. */
  static final class Growing {
    private static final int FIRST_BYTES = 64 * 1024;
    private ByteBuffer held = ByteBuffer.allocate(FIRST_BYTES);

    int size() { return held.position(); }

    Growing int1(int value) { room(Byte.BYTES).put((byte) value); return this; }

    Growing int2(int value) { room(Short.BYTES).putShort((short) value); return this; }

    Growing int4(int value) { room(Integer.BYTES).putInt(value); return this; }

    Growing int8(long value) { room(Long.BYTES).putLong(value); return this; }

    Growing bytes(byte[] value) { room(value.length).put(value); return this; }

    /** Says how many bytes follow the place where `int4` wrote a length for them. */
    void lengthAt(int place) { held.putInt(place, held.position() - place - Integer.BYTES); }

    byte[] taken() {
      byte[] all = new byte[held.position()];
      held.flip().get(all).clear();
      return all;
    }

    private ByteBuffer room(int more) {
      if (held.remaining() < more) {
        int wanted = Math.addExact(held.position(), more);
        held = ByteBuffer.allocate((int) Math.min(Integer.MAX_VALUE - Long.BYTES, Math.max(2L * held.capacity(), wanted)))
            .put(held.flip());
      }
      return held;
    }
  }

  private CopyRows() {}
}
