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
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Rows as PostgreSQL's COPY reads them in its binary format, in pieces of some size: straight from Spark's own rows, and
 * the server has nothing to parse.
 *
 * The first two columns are the row as a text if no COPY can hold it, and its key; then come the values, and last the
 * sign. `signed` says whether sign and number of this attempt are copied too, after the values; without, a row that went
 * cannot be.
 *
 * What comes out are bytes for a Python worker (`postgres_copy.py`), not rows: Spark would plan and convert those twice
 * more. The first byte says what the others are: a piece; a row that no COPY can hold, after the length of its key (-1:
 * none) and the key; nothing, for a row that went; or, last of all, the attempt. To Python, rows that are cut off by an
 * error look like all.
 */
public final class CopyRows {
  private static final int UNFIT = 0;
  private static final int KEY = 1;
  private static final int FIRST = 2;
  private static final byte[] BEGIN = "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0\0".getBytes(StandardCharsets.ISO_8859_1);
  private static final char PIECE = 'P';
  private static final char UNHELD = 'U';
  private static final char GONE = 'G';
  private static final char END = 'E';

  /** `kinds` are PostgreSQL's words for the types of the values. */
  public static JavaRDD<byte[]> of(Dataset<Row> rows, List<String> kinds, boolean signed, int sizeBytes) {
    StructField[] fields = rows.schema().fields();
    DataType[] types = new DataType[kinds.size()];
    for (int place = 0; place < types.length; place++) types[place] = fields[FIRST + place].dataType();
    String[] words = kinds.toArray(new String[0]);
    JavaRDD<InternalRow> given = rows.queryExecution().toRdd().toJavaRDD();
    return given.mapPartitions(each -> new Copied(each, types, words, signed, sizeBytes));
  }

  private static final class Copied implements Iterator<byte[]> {
    private final Iterator<InternalRow> rows;
    private final CopyValue[] values;
    private final boolean signed;
    private final int sizeBytes;
    /** No other attempt has it, also none of a process that was killed and whose tasks still run. */
    private final long attempt = new SecureRandom().nextLong() >>> 1;
    private final Growing piece = new Growing();
    private boolean begun;
    private boolean ended;
    private byte[] aside;

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
    public byte[] next() {
      if (!hasNext()) throw new NoSuchElementException();
      while (aside == null && rows.hasNext() && piece.size() < sizeBytes) take(rows.next());
      if (piece.size() > 0) return piece.taken();
      if (aside != null) return takeAside();
      ended = true;
      return piece.int1(END).int8(attempt).taken();
    }

    private void take(InternalRow row) {
      int last = FIRST + values.length;
      if (!row.isNullAt(UNFIT)) {
        aside = unheld(row.getUTF8String(UNFIT), row.isNullAt(KEY) ? null : row.getUTF8String(KEY));
      } else if (!signed && row.getInt(last) < 0) {
        aside = new byte[] {GONE};
      } else {
        if (piece.size() == 0) piece.int1(PIECE);
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

    private static byte[] unheld(UTF8String row, UTF8String key) {
      Growing told = new Growing().int1(UNHELD).int4(key == null ? -1 : key.numBytes());
      if (key != null) told.bytes(key.getBytes());
      return told.bytes(row.getBytes()).taken();
    }

    private byte[] takeAside() {
      byte[] row = aside;
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
