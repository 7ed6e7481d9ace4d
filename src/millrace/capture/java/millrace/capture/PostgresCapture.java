package millrace.capture;

import io.debezium.connector.postgresql.PostgresConnector;
import org.apache.kafka.connect.connector.Task;

/** Debezium's PostgreSQL connector with a task that resumes exactly; docs/design/0006 says why it is needed. */
public final class PostgresCapture extends PostgresConnector {
    @Override
    public Class<? extends Task> taskClass() {
        return PostgresCaptureTask.class;
    }
}
