package millrace.kernel;

import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Spark's Kafka source, with one difference: an epoch ends where a transaction of the captured database does, in all of
 * its topics (see WholeStream). The option `marks` names, for each database, the topics of its marks and of its tables;
 * `view` is for whom it is read; with `epochMs` it is read in real time (see WholePrompt).
 */
public final class WholeKafka extends OverKafka {
  /** An option: how long an epoch in real time is. */
  static final String EPOCH = "epochMs";

  public WholeKafka() throws ReflectiveOperationException {}

  @Override
  MicroBatchStream around(MicroBatchStream kafka, CaseInsensitiveStringMap options) {
    Frontier frontier = new Frontier(options);
    String view = options.get("view");
    long epochMs = options.getLong(EPOCH, 0);
    if (epochMs <= 0) return new WholeStream(kafka, frontier, view);
    FirstEpochs first = new FirstEpochs(options.getLong(PromptKafka.FIRST, 0));
    return new WholePrompt(kafka, new Together(frontier, view), first, epochMs);
  }
}
