package millrace.kernel;

import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Spark's Kafka source, with one difference: an epoch in real time ends as soon as it is asked to (see Ending), and the
 * first ones early (see FirstEpochs). Spark's own would wait in a poll for as long as the epoch was to be, and a flow
 * that is stopped would have to be interrupted, and repeat the epoch.
 */
public final class PromptKafka extends OverKafka {
  /** An option: how long the first epoch may take. */
  static final String FIRST = "firstEpochMs";

  public PromptKafka() throws ReflectiveOperationException {}

  @Override
  MicroBatchStream around(MicroBatchStream kafka, CaseInsensitiveStringMap options) {
    long mostMs = options.getLong(WholeKafka.EPOCH, Long.MAX_VALUE);
    return new PromptStream(kafka, new FirstEpochs(options.getLong(FIRST, 0)), mostMs);
  }
}
