package millrace.capture;

import io.debezium.config.Configuration;
import io.debezium.connector.postgresql.PostgresConnectorConfig;
import io.debezium.connector.postgresql.PostgresConnectorTask;
import io.debezium.connector.postgresql.PostgresOffsetContext;
import io.debezium.connector.postgresql.PostgresPartition;
import io.debezium.connector.postgresql.PostgresSchema;
import io.debezium.connector.postgresql.connection.PostgresConnection;
import io.debezium.connector.postgresql.connection.ReplicationConnection;
import io.debezium.pipeline.ChangeEventSourceCoordinator;
import io.debezium.pipeline.spi.OffsetContext;
import io.debezium.pipeline.spi.Offsets;
import io.debezium.pipeline.spi.Partition;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTaskContext;

/**
 * Hands over what Debezium reads, with offsets from which a restart goes on exactly (see {@link Places}), from a slot
 * that was looked at before (see {@link Slot}).
 */
public final class PostgresCaptureTask extends PostgresConnectorTask {
    /**
     * Connect reports a commit after every poll, and Debezium would then read the stored offset back from Kafka and
     * tell it to PostgreSQL, a hundred times a second: WAL need not be given back that often.
     */
    private static final long FLUSH_INTERVAL_NS = 1_000_000_000L;

    private Truncates truncates;
    private volatile Places places;
    private Marks marks;
    private Together together;
    private int most;
    private volatile boolean stored;
    private long flushedNs = System.nanoTime() - FLUSH_INTERVAL_NS;

    @Override
    public void initialize(SourceTaskContext given) {
        super.initialize(new BegunOffsets(given));
    }

    /** Also called when Debezium starts itself again after a failure that may pass. */
    @Override
    public ChangeEventSourceCoordinator<PostgresPartition, PostgresOffsetContext> start(Configuration config) {
        var connector = new PostgresConnectorConfig(config);
        var partition = Map.of("server", connector.getLogicalName());
        Map<String, Object> offset = context.offsetStorageReader().offset(partition);
        truncates = new Truncates(connector.getLogicalName());
        marks = new Marks(config.getString("millrace.marks"), connector.getLogicalName());
        together = new Together(config.getString("millrace.together"), config.getInteger("millrace.partitions", 1));
        most = connector.getMaxBatchSize();
        try {
            places = new Places(offset, new Slot(connector, config).checked(offset));
            return super.start(config);
        } catch (RuntimeException error) {
            // Then Connect asks again, and Debezium starts itself anew; otherwise the task would stay failed.
            throw Slot.mayPass(error) ? new RetriableException(error.getMessage(), error) : error;
        }
    }

    @Override
    protected Offsets<PostgresPartition, PostgresOffsetContext> getPreviousOffsets(
            Partition.Provider<PostgresPartition> partitions, OffsetContext.Loader<PostgresOffsetContext> loader) {
        return super.getPreviousOffsets(partitions, offset -> loader.load(Places.resumable(offset)));
    }

    @Override
    protected ReplicationConnection buildReplicationConnection(
            PostgresConnection connection, PostgresSchema schema, PostgresConnectorConfig config) throws SQLException {
        Printed.in(connection.getTypeRegistry());
        return new PlacedReplication(super.buildReplicationConnection(connection, schema, config), places);
    }

    @Override
    public List<SourceRecord> doPoll() throws InterruptedException {
        flushNowAndThen();
        long queued = places.queued(); // before the queue is emptied
        List<SourceRecord> polled = super.doPoll();
        var handed = new ArrayList<SourceRecord>(polled.size() + 1);
        for (SourceRecord record : polled) {
            SourceRecord placed = places.placed(record);
            if (placed != null) {
                handed.add(truncates.keyed(together.placed(placed)));
            }
        }
        SourceRecord mark = marks.due(places.partition(), places.offset());
        if (mark != null) {
            handed.add(mark);
        }
        marks.reached(polled.size() < most ? Math.max(queued, places.whole()) : places.whole());
        // An empty list would be an empty transaction to Connect, nothing is none.
        return handed.isEmpty() ? null : handed;
    }

    @Override
    public void commit() {
        stored = true;
    }

    private void flushNowAndThen() {
        if (stored && System.nanoTime() - flushedNs >= FLUSH_INTERVAL_NS) {
            stored = false;
            flushedNs = System.nanoTime();
            performCommit();
        }
    }
}
