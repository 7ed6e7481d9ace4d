package millrace.capture;

import io.debezium.connector.postgresql.connection.Lsn;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Gives every record an offset from which a restart goes on exactly, and drops what was handed over before.
 *
 * <p>What must hold:
 * <ul>
 * <li>`lsn` and `lsn_commit` of an offset are the end of the last transaction that was handed over as a whole.
 *     PostgreSQL, asked to begin there, sends every transaction that commits later, in the order of their commits, and
 *     each of them from its first change on, however early that was.
 * <li>`millrace_tx`, `millrace_lsn` and `millrace_nth` say how far into the transaction after that the records go: to
 *     the nth record of the change at that LSN. Changes of a transaction come in the order of their LSNs; those of one
 *     COPY share one.
 * <li>Before the first row of the initial snapshot there is no `lsn`: what only announces it can be forgotten.
 * <li>There is no `lsn_proc`: with it Debezium would search the stream for its last event by LSN, and lose rows.
 * </ul>
 */
final class Places {
    /** A header: after which commit a change came. Those of a transaction have the same, later ones a higher one. */
    static final String AFTER = "millrace.after";

    private static final String TX = "millrace_tx";
    private static final String LSN = "millrace_lsn";
    private static final String NTH = "millrace_nth";

    /** Where the stream must begin, if Debezium is not to choose; only while there is no streamed offset yet. */
    final Lsn beginning;

    /** The end of the last transaction that was handed over as a whole. */
    private long whole;

    /** How far the transaction after it was handed over; null if not at all. */
    private Place handed;

    /** Where the stream is, in that same transaction, which is another place as long as it is repeated to us. */
    private Place seen;

    private volatile long began;

    /** The last commit whose records are all in the queue. */
    private volatile long committed;

    /** Of the last record that was handed over. */
    private Map<String, ?> partition;
    private Map<String, ?> offset;

    /** Whether a row of the initial snapshot was handed over, by this task or an earlier one. */
    private boolean hasRead;

    Places(Map<String, Object> stored, Lsn beginning) {
        this.beginning = beginning;
        hasRead = stored != null;
        if (stored == null || isInitialSnapshot(stored)) {
            return;
        }
        whole = number(resumable(stored), "lsn");
        if (stored.containsKey(TX)) {
            handed = new Place(number(stored, TX), number(stored, LSN), number(stored, NTH));
        }
    }

    /** Also for an offset that Debezium's own connector stored: its last transaction then comes again as a whole. */
    static Map<String, Object> resumable(Map<String, ?> stored) {
        var offset = new HashMap<String, Object>(stored);
        if (offset.remove("lsn_proc") != null && offset.get("lsn_commit") != null) {
            offset.put("lsn", offset.get("lsn_commit"));
        }
        return offset;
    }

    /** Called by the thread that reads the stream, before it puts the first record into the queue. */
    void begins(Lsn lsn) {
        began = lsn.asLong();
    }

    /** Called by that thread, after it put the last record of a transaction into the queue. */
    void commits(Lsn lsn) {
        committed = Math.max(committed, lsn.asLong());
    }

    /** Up to which commit all records are in the queue, or were. */
    long queued() {
        return Math.max(began, committed);
    }

    /** The end of the last transaction of which everything was handed over, as far as the records tell. */
    long whole() {
        return whole;
    }

    /** What a record that is added to those of the stream takes for its own; null before there was one. */
    Map<String, ?> partition() {
        return partition;
    }

    Map<String, ?> offset() {
        return offset;
    }

    /** The record with its offset; null if it was handed over before. */
    SourceRecord placed(SourceRecord record) {
        var offset = new HashMap<String, Object>(record.sourceOffset());
        ends(Math.max(began, number(offset, "lsn_commit")));
        if (whole == 0 || isInitialSnapshot(offset)) { // the stream has not begun
            hasRead |= isRow(record);
            if (!hasRead) {
                offset.remove("lsn"); // so that it counts as none (see BegunOffsets), and all begins afresh
            } else if (beginning != null) {
                offset.put("lsn", beginning.asLong());
            }
            return with(record, offset);
        }
        if (isChange(record) && !comesNext(number(offset, "txId"), number(offset, "lsn"))) {
            return null;
        }
        offset.remove("lsn_proc");
        offset.put("lsn", whole);
        offset.put("lsn_commit", whole);
        if (handed != null) {
            offset.put(TX, handed.tx);
            offset.put(LSN, handed.lsn);
            offset.put(NTH, handed.nth);
        }
        return with(record, offset);
    }

    private void ends(long commit) {
        if (commit > whole) {
            whole = commit;
            handed = null;
            seen = null;
        }
    }

    private boolean comesNext(long tx, long lsn) {
        boolean again = seen != null && seen.tx == tx && seen.lsn == lsn;
        seen = new Place(tx, lsn, again ? seen.nth + 1 : 1);
        if (handed != null && handed.tx == tx && !seen.isAfter(handed)) {
            return false;
        }
        handed = seen;
        return true;
    }

    /** A row, a tombstone or a message of the replication log, and nothing that Debezium adds by itself. */
    private static boolean isChange(SourceRecord record) {
        if (record.value() == null) {
            return true;
        }
        return isRow(record) && !"r".equals(((Struct) record.value()).getString("op"));
    }

    private static boolean isRow(SourceRecord record) {
        return record.value() instanceof Struct value && value.schema().field("op") != null;
    }

    static boolean isInitialSnapshot(Map<String, Object> offset) {
        return "INITIAL".equalsIgnoreCase(String.valueOf(offset.get("snapshot")));
    }

    private static long number(Map<String, Object> offset, String name) {
        return offset.get(name) instanceof Number number ? number.longValue() : 0;
    }

    private SourceRecord with(SourceRecord record, Map<String, Object> given) {
        partition = record.sourcePartition();
        offset = given;
        SourceRecord placed = new SourceRecord(
                record.sourcePartition(), given, record.topic(), record.kafkaPartition(), record.keySchema(),
                record.key(), record.valueSchema(), record.value(), record.timestamp(), record.headers());
        if (whole > 0 && !isInitialSnapshot(given) && (isRow(record) || record.value() == null)) {
            placed.headers().addLong(AFTER, whole);
        }
        return placed;
    }

    private record Place(long tx, long lsn, long nth) {
        boolean isAfter(Place other) {
            return lsn > other.lsn || lsn == other.lsn && nth > other.nth;
        }
    }
}
