package millrace.capture;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Rows that are never changed, as an event store's are, by other columns than their key: those of one aggregate go into
 * one partition, in which they stay in order. Their key, by which compaction leaves all of them alone, would scatter
 * them.
 */
final class Together {
    private final Map<String, List<String>> columns = new HashMap<>();
    private final int partitions;

    /** {@code given} is {@code topic:column,column;topic:column}, or null. */
    Together(String given, int partitions) {
        this.partitions = partitions;
        for (String each : given == null ? new String[0] : given.split(";")) {
            int colon = each.indexOf(':');
            columns.put(each.substring(0, colon), List.of(each.substring(colon + 1).split(",")));
        }
    }

    SourceRecord placed(SourceRecord record) {
        List<String> by = columns.get(record.topic());
        if (by == null || !(record.value() instanceof Struct change) || change.schema().field("after") == null) {
            return record;
        }
        Struct row = change.getStruct("after");
        if (row == null) {
            return record;
        }
        var text = new StringBuilder();
        for (String column : by) {
            text.append(row.get(column)).append('\0'); // which no text of PostgreSQL holds
        }
        byte[] bytes = text.toString().getBytes(StandardCharsets.UTF_8);
        return record.newRecord(
                record.topic(), Utils.toPositive(Utils.murmur2(bytes)) % partitions, record.keySchema(), record.key(),
                record.valueSchema(), record.value(), record.timestamp(), record.headers());
    }
}
