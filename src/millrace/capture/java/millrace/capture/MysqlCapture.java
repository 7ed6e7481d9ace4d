package millrace.capture;

import io.debezium.connector.mysql.MySqlConnector;
import org.apache.kafka.connect.connector.Task;

/** Debezium's MySQL connector with a task that resumes exactly; docs/design/0007 says why there is a need for it. */
public final class MysqlCapture extends MySqlConnector {
    @Override
    public Class<? extends Task> taskClass() {
        return MysqlCaptureTask.class;
    }
}
