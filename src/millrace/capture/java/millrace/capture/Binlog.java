package millrace.capture;

import com.github.shyiko.mysql.binlog.BinaryLogClient;
import com.github.shyiko.mysql.binlog.network.ServerException;
import io.debezium.config.Configuration;
import io.debezium.connector.binlog.BinlogStreamingChangeEventSource;
import io.debezium.pipeline.ChangeEventSourceCoordinator;
import io.debezium.schema.SchemaFactory;
import java.io.IOException;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * What a task hands to Connect of a binlog, so that whatever is cut off goes on exactly where it was.
 *
 * <p>What holds: a batch ends between two rows, never inside one; no offset lies before the record that it stands at;
 * and nothing is handed over that was read after the connection to the server had ended.
 */
final class Binlog {
    /** How many empty polls the second record of a row may take; it is put into the queue right after the first. */
    private static final int PATIENCE = 1_000;
    /** What a server says that shuts down, or that lost the connection itself: ER_SERVER_SHUTDOWN and the like. */
    private static final Set<Integer> AWAY = Set.of(1053, 1077, 1158, 1159, 1160, 1161, 1927);
    private static final String NEW_KEY = "__debezium.newkey";

    private final Truncates truncates;
    private final Options options = new Options();
    private BinaryLogClient client;
    private volatile boolean ended;

    interface Poll {
        List<SourceRecord> next() throws InterruptedException;
    }

    Binlog(Configuration config) {
        truncates = new Truncates(config.getString("topic.prefix"));
    }

    /**
     * Notices that the connection ended. The client would connect anew by itself, silently, and read the transaction
     * that it was in once more from its beginning.
     */
    void watch(ChangeEventSourceCoordinator<?, ?> coordinator) {
        if (client != null || coordinator == null) {
            return;
        }
        coordinator.getStreamingSource().ifPresent(source -> {
            client = ((BinlogStreamingChangeEventSource<?, ?>) source).getBinaryLogClient();
            client.registerLifecycleListener(new BinaryLogClient.AbstractLifecycleListener() {
                @Override
                public void onDisconnect(BinaryLogClient gone) {
                    ended = true;
                }
            });
        });
    }

    /** The next batch, whole; null for none. */
    List<SourceRecord> whole(Poll queue) throws InterruptedException {
        var batch = new ArrayList<SourceRecord>(queue.next());
        int empty = 0;
        while (!ended && unfinished(batch)) {
            List<SourceRecord> more = queue.next();
            empty = more.isEmpty() ? empty + 1 : 0;
            if (empty > PATIENCE) {
                throw new RetriableException("the records of a row did not come together");
            }
            batch.addAll(more);
        }
        if (ended) {
            queue.next(); // throws the reason, if there is one
            throw new RetriableException("the connection to the server's binlog ended");
        }
        var handed = new ArrayList<SourceRecord>(batch.size());
        for (SourceRecord record : batch) {
            if (!isEarly(record)) {
                options.mend(record);
                handed.add(truncates.keyed(record));
            }
        }
        // An empty list would be an empty transaction to Connect, nothing is none.
        return handed.isEmpty() ? null : handed;
    }

    /**
     * Whether the last row of a batch has records yet to come: a delete is followed by its tombstone, and where the key
     * was changed by the new row. They all have the offset of a row that is done, so none may wait for the next batch.
     */
    private static boolean unfinished(List<SourceRecord> batch) {
        int last = batch.size() - 1;
        while (last >= 0 && isHeartbeat(batch.get(last))) {
            last--;
        }
        if (last < 0) {
            return false;
        }
        SourceRecord record = batch.get(last);
        boolean tombstone = record.value() == null && record.key() != null;
        return tombstone ? record.headers().lastWithName(NEW_KEY) != null : isDelete(record);
    }

    private static boolean isDelete(SourceRecord record) {
        return record.value() instanceof Struct value
                && value.schema().field("op") != null
                && "d".equals(value.getString("op"));
    }

    /** A heartbeat inside a transaction has the offset of the event before its own, which a restart would repeat. */
    private static boolean isEarly(SourceRecord record) {
        return isHeartbeat(record) && record.sourceOffset().containsKey("event");
    }

    private static boolean isHeartbeat(SourceRecord record) {
        return SchemaFactory.get().isHeartBeatSchema(record.valueSchema());
    }

    /** The same error, as one after which Debezium starts again by itself if it may pass: the server is away. */
    static RuntimeException passing(RuntimeException error) {
        if (error instanceof RetriableException) {
            return error;
        }
        boolean away = false;
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof ServerException said && !AWAY.contains(said.getErrorCode())) {
                return error; // 1236 above all: the server no longer has what comes next
            }
            away |= cause instanceof IOException || cause instanceof SQLException said && isLost(said);
        }
        return away ? new RetriableException(error.getMessage(), error) : error;
    }

    /** Class 08 of SQL's states is about connections. */
    private static boolean isLost(SQLException error) {
        String state = error.getSQLState();
        return state != null && state.startsWith("08") || AWAY.contains(error.getErrorCode());
    }
}
