package millrace.capture;

import io.debezium.data.Enum;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Enumerations with a comma in one of their values: Debezium writes what the binlog has of them with a backslash before
 * the comma, and what a snapshot has without. Here both come without.
 */
final class Options {
    private static final String ESCAPED = "\\,";

    private final Map<Schema, List<Field>> concerned = new IdentityHashMap<>();

    void mend(SourceRecord record) {
        if (!(record.value() instanceof Struct change) || change.schema().field("after") == null) {
            return;
        }
        if ("r".equals(change.getString("op"))) {
            return;
        }
        mend(change.getStruct("before"));
        mend(change.getStruct("after"));
        if (record.key() instanceof Struct key) {
            mend(key); // which a tombstone shares with the delete before it
        }
    }

    private static List<Field> fields(Schema row) {
        return row.fields().stream()
                .filter(field -> Enum.LOGICAL_NAME.equals(field.schema().name()))
                .filter(field -> field.schema().parameters().get(Enum.VALUES_FIELD).contains(ESCAPED))
                .toList();
    }

    private void mend(Struct row) {
        if (row == null) {
            return;
        }
        for (Field field : concerned.computeIfAbsent(row.schema(), Options::fields)) {
            if (row.getWithoutDefault(field.name()) instanceof String value && value.contains(ESCAPED)) {
                row.put(field, value.replace(ESCAPED, ","));
            }
        }
    }
}
