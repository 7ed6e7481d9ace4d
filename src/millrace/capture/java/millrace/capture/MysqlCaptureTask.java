package millrace.capture;

import io.debezium.config.Configuration;
import io.debezium.connector.mysql.MySqlConnectorTask;
import io.debezium.connector.mysql.MySqlOffsetContext;
import io.debezium.connector.mysql.MySqlPartition;
import io.debezium.pipeline.ChangeEventSourceCoordinator;
import java.util.List;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTaskContext;

/** Hands over what Debezium reads in whole rows, and starts again when the server comes back (see {@link Binlog}). */
public final class MysqlCaptureTask extends MySqlConnectorTask {
    private Binlog binlog;

    @Override
    public void initialize(SourceTaskContext given) {
        super.initialize(new BegunOffsets(given));
    }

    @Override
    public ChangeEventSourceCoordinator<MySqlPartition, MySqlOffsetContext> start(Configuration config) {
        try {
            binlog = new Binlog(config);
            return super.start(config);
        } catch (RuntimeException error) {
            doStop();
            throw Binlog.passing(error);
        }
    }

    @Override
    public List<SourceRecord> doPoll() throws InterruptedException {
        try {
            binlog.watch(coordinator);
            return binlog.whole(super::doPoll);
        } catch (ConnectException error) {
            throw Binlog.passing(error);
        }
    }
}
