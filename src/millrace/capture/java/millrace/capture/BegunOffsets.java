package millrace.capture;

import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.metrics.PluginMetrics;
import org.apache.kafka.connect.source.SourceTaskContext;
import org.apache.kafka.connect.source.TransactionContext;
import org.apache.kafka.connect.storage.OffsetStorageReader;

/**
 * Stored offsets, without those that name no place in the log. Debezium announces a snapshot (a notification, which is a
 * record with an offset) before it knows where the snapshot stands. Killed just then, it would find an offset, take the
 * snapshot for done, and never read the tables.
 */
final class BegunOffsets implements SourceTaskContext, OffsetStorageReader {
    private final SourceTaskContext context;

    BegunOffsets(SourceTaskContext context) {
        this.context = context;
    }

    @Override
    public <T> Map<String, Object> offset(Map<String, T> partition) {
        return begun(context.offsetStorageReader().offset(partition));
    }

    @Override
    public <T> Map<Map<String, T>, Map<String, Object>> offsets(Collection<Map<String, T>> partitions) {
        var found = new HashMap<>(context.offsetStorageReader().offsets(partitions));
        found.replaceAll((partition, offset) -> begun(offset));
        return found;
    }

    private static Map<String, Object> begun(Map<String, Object> offset) {
        return offset != null && (isPlace(offset.get("lsn")) || isPlace(offset.get("file"))) ? offset : null;
    }

    private static boolean isPlace(Object value) {
        return value != null && !value.toString().isEmpty();
    }

    @Override
    public OffsetStorageReader offsetStorageReader() {
        return this;
    }

    @Override
    public Map<String, String> configs() {
        return context.configs();
    }

    @Override
    public TransactionContext transactionContext() {
        return context.transactionContext();
    }

    @Override
    public PluginMetrics pluginMetrics() {
        return context.pluginMetrics();
    }
}
