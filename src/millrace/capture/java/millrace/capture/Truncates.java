package millrace.capture;

import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/** A truncate has no key, which a compacted topic refuses: all of them go to a topic of their own, by table. */
final class Truncates {
    private final String topic;

    Truncates(String prefix) {
        this.topic = prefix + ".truncates";
    }

    SourceRecord keyed(SourceRecord record) {
        if (!(record.value() instanceof Struct value) || value.schema().field("op") == null
                || !"t".equals(value.getString("op"))) {
            return record;
        }
        Struct source = value.getStruct("source");
        String schema = source.getString(source.schema().field("schema") != null ? "schema" : "db");
        String table = schema + "." + source.getString("table");
        return record.newRecord(
                topic, null, Schema.STRING_SCHEMA, table, record.valueSchema(), value, record.timestamp(),
                record.headers());
    }
}
