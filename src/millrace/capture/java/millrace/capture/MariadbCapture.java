package millrace.capture;

import io.debezium.connector.mariadb.MariaDbConnector;
import org.apache.kafka.connect.connector.Task;

/** Debezium's MariaDB connector with a task of ours; docs/design/0007 says why there is a need for it. */
public final class MariadbCapture extends MariaDbConnector {
    @Override
    public Class<? extends Task> taskClass() {
        return MariadbCaptureTask.class;
    }
}
