package millrace.sink;

import java.util.Map;
import org.apache.kafka.common.TopicPartition;

/**
 * The last epoch that a flow delivered, noted in Kafka itself, with the offsets of the group `app.flow.delivered`. A
 * checkpoint that is an older copy has an older ledger in it and knows nothing of what came after; the log does.
 */
record Mark(String query, long epoch, String inputs) {
  private static final int WORDS = 3;

  static String group(String flow) {
    return flow + ".delivered";
  }

  /** The newest of one query. One that was begun anew is another query. */
  static Mark newest(Broker broker, String flow, String query) {
    Mark newest = null;
    for (String word : broker.noted(group(flow))) {
      String[] words = word.split(" ");
      if (words.length != WORDS || !words[0].equals(query)) continue;
      Mark mark = new Mark(words[0], Long.parseLong(words[1]), words[2]);
      if (newest == null || mark.epoch > newest.epoch) newest = mark;
    }
    return newest;
  }

  void note(Broker broker, String flow, Map<TopicPartition, Long> ends) {
    broker.note(group(flow), ends, query + " " + epoch + " " + inputs);
  }
}
