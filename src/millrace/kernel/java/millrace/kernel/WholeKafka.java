package millrace.kernel;

import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Spark's Kafka source, with one difference: an epoch ends where a transaction of the captured database does, in all of
 * its topics (see WholeStream). The option `marks` names, for each database, the topics of its marks and of its tables;
 * `view` is for whom it is read.
 */
public final class WholeKafka extends OverKafka {
  public WholeKafka() throws ReflectiveOperationException {}

  @Override
  MicroBatchStream around(MicroBatchStream kafka, CaseInsensitiveStringMap options) {
    return new WholeStream(kafka, new Frontier(options), options.get("view"));
  }
}
