package millrace.capture;

import io.debezium.config.Configuration;
import io.debezium.connector.postgresql.PostgresConnectorConfig;
import io.debezium.connector.postgresql.PostgresConnectorConfig.SnapshotMode;
import io.debezium.connector.postgresql.connection.Lsn;
import io.debezium.connector.postgresql.connection.PostgresConnection;
import java.sql.SQLException;
import java.util.Map;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.RetriableException;

/**
 * The replication slot, looked at before Debezium does: that would wait half an hour for one that was invalidated, and
 * may go on from one that was made anew.
 */
final class Slot {
    /** Whether the slot is the capture's own, to be made and dropped as needed, or a DBA's (the default). */
    private static final String OWN = "millrace.slot.own";

    private static final String STATE = "SELECT confirmed_flush_lsn, active, to_jsonb(s) ->> 'wal_status',"
            + " to_jsonb(s) ->> 'invalidation_reason' FROM pg_replication_slots s WHERE slot_name = ?";
    // The server notices within a moment that the process is gone that read from it.
    private static final int FREED_ATTEMPTS = 50;
    private static final long FREED_PAUSE_MS = 200;

    private final PostgresConnectorConfig connector;
    private final String name;
    private final boolean droppable;
    private final boolean own;

    Slot(PostgresConnectorConfig connector, Configuration config) {
        this.connector = connector;
        this.name = connector.slotName();
        this.own = config.getBoolean(OWN, false);
        // In other modes the slot's changes are all there is of the past.
        this.droppable = own && SnapshotMode.INITIAL.getValue().equalsIgnoreCase(
                config.getString(PostgresConnectorConfig.SNAPSHOT_MODE));
    }

    /** Where the stream must begin, if Debezium is not to choose. Fails if changes after the stored offset are gone. */
    Lsn checked(Map<String, Object> offset) {
        try (var connection = new PostgresConnection(connector.getJdbcConfig(), "Millrace slot")) {
            State state = state(connection);
            if (hasSnapshot(offset)) {
                mustHold(state, Lsn.valueOf(((Number) Places.resumable(offset).get("lsn")).longValue()));
                return null;
            }
            return forSnapshot(connection, state, offset == null);
        } catch (SQLException error) {
            throw passing(error) ? new RetriableException(error.getMessage(), error)
                    : new ConnectException(error.getMessage(), error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new ConnectException("interrupted while waiting for replication slot \"" + name + "\"", error);
        }
    }

    private void mustHold(State state, Lsn stored) {
        if (state == null) {
            throw new ConnectException("replication slot \"" + name + "\" does not exist any more; the changes after "
                    + stored.asString() + " were to be read from it");
        }
        mustBeValid(state);
        if (state.confirmed.compareTo(stored) > 0) {
            throw new ConnectException("replication slot \"" + name + "\" no longer holds the changes after "
                    + stored.asString() + ": it begins at " + state.confirmed.asString()
                    + ", so it was made anew or moved");
        }
    }

    private void mustBeValid(State state) {
        if (state.lost != null) {
            throw new ConnectException("replication slot \"" + name + "\" was invalidated (" + state.lost + ")");
        }
    }

    /**
     * Only a slot that Debezium makes itself comes with a snapshot of the very same moment. For one that exists it
     * would ask for the present position and then read the tables, and a transaction that is written but not visible
     * yet in between would be in neither; from the slot's own position on, it is in the stream. So are, after a
     * snapshot that was cut off, the deletes of rows that it had handed over: hence a slot is dropped only while
     * nothing was.
     */
    private Lsn forSnapshot(PostgresConnection connection, State state, boolean first)
            throws SQLException, InterruptedException {
        if (state == null) {
            if (own) {
                return null;
            }
            throw new ConnectException(
                    "replication slot \"" + name + "\" does not exist, and is not Millrace's to make");
        }
        if (!droppable || !first) {
            mustBeValid(state);
            return state.confirmed;
        }
        for (int attempt = 1; state != null && state.active; attempt++) {
            if (attempt > FREED_ATTEMPTS) {
                throw new RetriableException("replication slot \"" + name + "\" is active: somebody reads from it");
            }
            Thread.sleep(FREED_PAUSE_MS);
            state = state(connection);
        }
        if (state != null) {
            connection.prepareQuery("SELECT pg_drop_replication_slot(?)", drop -> drop.setString(1, name), rows -> {});
        }
        return null;
    }

    private State state(PostgresConnection connection) throws SQLException {
        return connection.prepareQueryAndMap(STATE, query -> query.setString(1, name), rows -> {
            if (!rows.next()) {
                return null;
            }
            String reason = rows.getString(4);
            String lost = reason == null && "lost".equals(rows.getString(3)) ? "its WAL is gone" : reason;
            String confirmed = rows.getString(1);
            return new State(confirmed == null ? Lsn.INVALID_LSN : Lsn.valueOf(confirmed), rows.getBoolean(2), lost);
        });
    }

    private static boolean hasSnapshot(Map<String, Object> offset) {
        if (offset == null || offset.get("lsn") == null) {
            return false;
        }
        return !Places.isInitialSnapshot(offset) || "true".equals(String.valueOf(offset.get("snapshot_completed")));
    }

    /** Whether the database did not answer, and may later. */
    static boolean mayPass(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof SQLException told) {
                return passing(told);
            }
        }
        return false;
    }

    /** A wrong password or database does not mend itself; whatever else the server says may pass. */
    private static boolean passing(SQLException error) {
        String state = String.valueOf(error.getSQLState());
        return !state.startsWith("28") && !state.startsWith("3D") && !state.startsWith("42");
    }

    private record State(Lsn confirmed, boolean active, String lost) {}
}
