package millrace.sink;

import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.TransactionDescription;

/**
 * How the transactions of a prepared epoch stand. One that is lost expired or was fenced, and nothing of it will be
 * seen; of one that is unknown the broker has forgotten how it ended, as it does after a week.
 */
record Verdict(int committed, int open, int lost, int unknown) {
  static Verdict of(List<Transaction> transactions, Map<String, TransactionDescription> described) {
    int committed = 0;
    int open = 0;
    int unknown = 0;
    for (Transaction each : transactions) {
      TransactionDescription found = described.get(each.id());
      if (found == null) {
        unknown++;
        continue;
      }
      if (found.producerId() != each.producer() || found.producerEpoch() != each.epoch()) continue;
      switch (found.state()) {
        case ONGOING -> open++;
        case PREPARE_COMMIT, COMPLETE_COMMIT -> committed++;
        default -> { }
      }
    }
    return new Verdict(committed, open, transactions.size() - committed - open - unknown, unknown);
  }

  boolean canBeCommitted() {
    return lost + unknown == 0;
  }

  /** Whether nothing of the epoch was seen by anybody, so that it can be done again. */
  boolean canBeRepeated() {
    return committed + unknown == 0;
  }
}
