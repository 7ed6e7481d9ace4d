package millrace.kernel;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.streaming.ValueState;

/**
 * The row of one key, and what each record makes of it. What holds: records are applied in the order of their offsets,
 * and one that is not above the last applied is a repeat and changes nothing; a record that cannot be understood
 * changes nothing and comes out as an error; a row is only ever what its own records said.
 */
final class Latest {
  private final boolean net;
  private final Envelope envelope;
  private final RecordKey key;
  private final HeldRow before;
  private HeldRow held;
  private SignedRow lastChange;
  private final List<SignedRow> out = new ArrayList<>(2);

  Latest(RecordKey key, HeldRow held, boolean net, Envelope envelope) {
    this.key = key;
    this.before = this.held = held;
    this.net = net;
    this.envelope = envelope;
  }

  void apply(LogRecord record) {
    if (held != null && record.getPartition() == held.getPartition() && record.getOffset() <= held.getOffset()) return;
    if (record.getValue() == null) envelope.tombstone();
    else envelope.read(record.getValue());
    String error = envelope.error != null ? envelope.error : misplaced(record);
    if (error != null) {
      out.add(SignedRow.refused(key, record, envelope, error));
    } else if (envelope.afterEnd == 0 || envelope.op.equals("d")) {
      if (held != null) change(record, held.getRow(), null);
      held = null;
    } else {
      replace(record);
    }
  }

  private String misplaced(LogRecord record) {
    if (key.getKey() == null) return Refusals.NO_KEY;
    boolean moved = held != null && record.getPartition() != held.getPartition();
    return moved ? Refusals.moved(held.getPartition()) : null;
  }

  private void replace(LogRecord record) {
    byte[] row = Arrays.copyOfRange(envelope.image, envelope.afterStart, envelope.afterEnd);
    if (!envelope.gaps.isEmpty()) {
      row = filled(envelope.image);
      if (row == null) {
        List<String> columns = new ArrayList<>();
        for (Envelope.Gap gap : envelope.gaps) columns.add(gap.column);
        out.add(SignedRow.refused(key, record, envelope, Refusals.unavailable(columns)));
        return;
      }
    }
    byte[] old = held == null ? null : held.getRow();
    if (!Arrays.equals(old, row)) change(record, old, row);
    held = new HeldRow(row, record.getPartition(), record.getOffset());
  }

  /**
   * The row with what the database left out taken from the row held; null if that does not have it. Only an update
   * leaves out what was there: a created row with a gap got a new key, and what is held under that was another row.
   */
  private byte[] filled(byte[] image) {
    if (held == null || !envelope.op.equals("u")) return null;
    byte[][] columns = new byte[envelope.gaps.size()][];
    int length = envelope.afterEnd - envelope.afterStart;
    for (int place = 0; place < columns.length; place++) {
      Envelope.Gap gap = envelope.gaps.get(place);
      columns[place] = Envelope.columnOf(held.getRow(), gap.column);
      if (columns[place] == null) return null;
      length += columns[place].length - (gap.end - gap.start);
    }
    byte[] row = new byte[length];
    int from = envelope.afterStart;
    int to = 0;
    for (int place = 0; place < columns.length; place++) {
      Envelope.Gap gap = envelope.gaps.get(place);
      System.arraycopy(image, from, row, to, gap.start - from);
      to += gap.start - from;
      System.arraycopy(columns[place], 0, row, to, columns[place].length);
      to += columns[place].length;
      from = gap.end;
    }
    System.arraycopy(image, from, row, to, envelope.afterEnd - from);
    return row;
  }

  private void change(LogRecord record, byte[] old, byte[] row) {
    if (net) {
      lastChange = SignedRow.of(key, record, envelope, null, 0);
      return;
    }
    if (old != null) out.add(SignedRow.of(key, record, envelope, old, -1));
    if (row != null) out.add(SignedRow.of(key, record, envelope, row, 1));
  }

  /** What to emit: every change, or with `net` at most the first row going and the last one coming. */
  List<SignedRow> changes() {
    if (lastChange == null) return out;
    byte[] old = before == null ? null : before.getRow();
    byte[] row = held == null ? null : held.getRow();
    if (!Arrays.equals(old, row)) {
      if (old != null) out.add(lastChange.with(old, -1));
      if (row != null) out.add(lastChange.with(row, 1));
    }
    return out;
  }

  HeldRow held() {
    return held;
  }

  /** Leaves the row for the next epoch, if it is another one now. */
  void keep(ValueState<HeldRow> state) {
    if (held == before) return;
    if (held == null) state.clear();
    else state.update(held);
  }
}
