package millrace.capture;

import io.debezium.connector.postgresql.connection.Lsn;
import io.debezium.connector.postgresql.connection.ReplicationMessage;
import io.debezium.connector.postgresql.connection.ReplicationMessage.Operation;
import io.debezium.connector.postgresql.connection.ReplicationStream;
import java.sql.SQLException;
import java.util.concurrent.ExecutorService;

/** A replication stream that tells {@link Places} of every commit, after all records of its transaction are queued. */
final class CommitsSeen implements ReplicationStream {
    private final ReplicationStream stream;
    private final Places places;

    CommitsSeen(ReplicationStream stream, Places places) {
        this.stream = stream;
        this.places = places;
    }

    @Override
    public void read(ReplicationMessageProcessor processor) throws SQLException, InterruptedException {
        stream.read(message -> process(message, processor));
    }

    @Override
    public boolean readPending(ReplicationMessageProcessor processor) throws SQLException, InterruptedException {
        return stream.readPending(message -> process(message, processor));
    }

    private void process(ReplicationMessage message, ReplicationMessageProcessor processor)
            throws SQLException, InterruptedException {
        Lsn lsn = stream.lastReceivedLsn();
        processor.process(message);
        if (message.getOperation() == Operation.COMMIT && lsn != null) {
            places.commits(lsn);
        }
    }

    @Override
    public void flushLsn(Lsn lsn) throws SQLException {
        stream.flushLsn(lsn);
    }

    @Override
    public Lsn lastReceivedLsn() {
        return stream.lastReceivedLsn();
    }

    @Override
    public Lsn startLsn() {
        return stream.startLsn();
    }

    @Override
    public void startKeepAlive(ExecutorService service) {
        stream.startKeepAlive(service);
    }

    @Override
    public void stopKeepAlive() {
        stream.stopKeepAlive();
    }

    @Override
    public void close() throws Exception {
        stream.close();
    }
}
