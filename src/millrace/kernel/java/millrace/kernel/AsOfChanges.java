package millrace.kernel;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;

/**
 * The changes of one key's row, from what comes of the table: rows as they are, or records of a captured topic by the
 * rules of latest-by-key. A captured change is never before the one that it follows in the log: a clock of the database
 * that was set back does not turn their order around.
 */
final class AsOfChanges {
  /** From this time on the row is this one; with null it is gone. */
  record Change(long timeUs, byte[] row, boolean begins, long tie) {}

  private final AsOfSettings settings;
  private final Envelope envelope;

  AsOfChanges(AsOfSettings settings, Envelope envelope) {
    this.settings = settings;
    this.envelope = envelope;
  }

  /** `state` is null where the key is not whole: then a record is an error, and a row is nobody's. */
  List<Change> read(List<Row> rows, AsOfState state, List<Row> out) {
    List<Change> found = new ArrayList<>(rows.size());
    if (rows.isEmpty()) return found;
    if (settings.captured()) {
      records(rows, state, found, out);
    } else if (state != null) {
      int time = settings.keys() + 2;
      for (Row row : rows) {
        found.add(new Change(row.getLong(time), (byte[]) row.get(time + 1), settings.whole(), row.getLong(time + 3)));
      }
    }
    return found;
  }

  private void records(List<Row> rows, AsOfState state, List<Change> found, List<Row> out) {
    RecordKey key = new RecordKey();
    key.setKey(state == null ? null : new byte[0]);
    HeldRow held = state == null ? null : state.newest();
    Long newestUs = state == null ? null : state.versions.newestUs();
    List<LogRecord> records = new ArrayList<>(rows.size());
    for (Row row : rows) records.add(record(row));
    records.sort(LogRecord.PLACE);
    for (LogRecord record : records) {
      Latest latest = new Latest(key, held, false, envelope);
      latest.apply(record);
      held = latest.held();
      List<SignedRow> changes = latest.changes();
      if (changes.isEmpty()) continue;
      SignedRow last = changes.get(changes.size() - 1);
      if (last.getError() != null) {
        out.add(RowFactory.create(
            null, null, null, null, null, null, last.getError(), last.getPartition(), last.getOffset()));
        continue;
      }
      long timeUs = last.getChangedAtUs() == null ? record.getTimestampUs() : last.getChangedAtUs();
      if (newestUs != null) timeUs = Math.max(timeUs, newestUs);
      newestUs = timeUs;
      found.add(new Change(timeUs, held == null ? null : held.getRow(), "c".equals(last.getOp()), record.getOffset()));
    }
    if (state != null) state.placed(held);
  }

  private LogRecord record(Row row) {
    int time = settings.keys() + 2;
    LogRecord record = new LogRecord();
    record.setTimestampUs(row.getLong(time));
    record.setValue((byte[]) row.get(time + 1));
    record.setPartition(row.getInt(time + 2));
    record.setOffset(row.getLong(time + 3));
    return record;
  }
}
