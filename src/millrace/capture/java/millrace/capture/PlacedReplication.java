package millrace.capture;

import io.debezium.connector.postgresql.connection.Lsn;
import io.debezium.connector.postgresql.connection.ReplicationConnection;
import io.debezium.connector.postgresql.connection.ReplicationStream;
import io.debezium.connector.postgresql.connection.WalPositionLocator;
import io.debezium.connector.postgresql.spi.SlotCreationResult;
import java.sql.SQLException;
import java.util.Optional;

/** A replication connection that tells {@link Places} where its stream begins, and begins where they want. */
final class PlacedReplication implements ReplicationConnection {
    private final ReplicationConnection connection;
    private final Places places;

    PlacedReplication(ReplicationConnection connection, Places places) {
        this.connection = connection;
        this.places = places;
    }

    @Override
    public ReplicationStream startStreaming(WalPositionLocator locator) throws SQLException, InterruptedException {
        return startStreaming(null, locator);
    }

    @Override
    public ReplicationStream startStreaming(Lsn offset, WalPositionLocator locator)
            throws SQLException, InterruptedException {
        Lsn from = places.beginning == null ? offset : places.beginning;
        ReplicationStream stream = connection.startStreaming(from, locator);
        places.begins(stream.startLsn());
        return new CommitsSeen(stream, places);
    }

    @Override
    public Optional<SlotCreationResult> createReplicationSlot() throws SQLException {
        return connection.createReplicationSlot();
    }

    @Override
    public void initConnection() throws SQLException, InterruptedException {
        connection.initConnection();
    }

    @Override
    public boolean isConnected() throws SQLException {
        return connection.isConnected();
    }

    @Override
    public void reconnect() throws SQLException {
        connection.reconnect();
    }

    @Override
    public void close() throws Exception {
        connection.close();
    }
}
