package millrace.capture;

import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Tells readers up to which commit all records are in their topics, in a topic of its own: a record with the LSN.
 *
 * <p>What must hold: when a reader of committed records sees a mark, it can see every record of every transaction that
 * committed up to there, in all topics. So a mark is handed over one poll after the last record that it speaks of. A poll
 * is a transaction of Kafka's, whose records become visible partition by partition; the next one can write nothing before
 * that is done.
 */
final class Marks {
    private final String topic;
    private final String capture;
    private long told;
    private long next;

    Marks(String topic, String capture) {
        this.topic = topic;
        this.capture = capture;
    }

    /** The mark to hand over now, behind these records or alone; null if there is no news. */
    SourceRecord due(Map<String, ?> partition, Map<String, ?> offset) {
        if (topic == null || next <= told || offset == null) {
            return null;
        }
        told = next;
        return new SourceRecord(
                partition, offset, topic, 0, Schema.STRING_SCHEMA, capture, null,
                Map.of("lsn", told, "at_ms", System.currentTimeMillis()));
    }

    /** Every record up to this commit is in what was handed over by now. */
    void reached(long commit) {
        next = Math.max(next, commit);
    }
}
