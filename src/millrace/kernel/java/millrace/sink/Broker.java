package millrace.sink;

import static millrace.kernel.Answer.got;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeTransactionsResult;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.TransactionalIdNotFoundException;

/** What the driver asks Kafka for besides commits: how transactions stand, to end some, and what a group has noted. */
final class Broker implements AutoCloseable {
  private static final String MOST = "transaction.max.timeout.ms";
  /** Where the broker does not say: its own default. */
  private static final long USUAL_MOST_MS = 15 * 60_000;
  /** An epoch of which a part is committed can be completed for so long; and a night, or a weekend, goes by. */
  private static final long LONG_MS = 7 * 24 * 3_600_000L;

  private final Admin admin;
  private final SinkOptions options;
  /** The last note, until somebody has looked at what came of it. */
  private KafkaFuture<Void> last;

  Broker(SinkOptions options) {
    this.options = options;
    this.admin = Admin.create(options.admin());
  }

  /** How long a transaction may stay open: as long as is useful, or as the broker lets it, unless somebody says. */
  long timeoutMs() {
    long mostMs = mostMs();
    String wanted = options.kafka().get(SinkOptions.TIMEOUT);
    if (wanted == null) return Math.min(LONG_MS, mostMs);
    if (Long.parseLong(wanted) > mostMs) throw Refused.timeout(Long.parseLong(wanted), mostMs);
    return Long.parseLong(wanted);
  }

  private long mostMs() {
    String node = got(admin.describeCluster().nodes()).iterator().next().idString();
    ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, node);
    try {
      return Long.parseLong(got(admin.describeConfigs(List.of(broker)).all()).get(broker).get(MOST).value());
    } catch (AuthorizationException secret) {
      return USUAL_MOST_MS;
    }
  }

  /** How transactions stand, by their ids; those that the broker does not know are left out. */
  Map<String, TransactionDescription> described(Collection<String> ids) {
    Map<String, TransactionDescription> found = new HashMap<>();
    if (ids.isEmpty()) return found;
    DescribeTransactionsResult asked = admin.describeTransactions(ids);
    for (String id : ids) {
      try {
        found.put(id, got(asked.description(id)));
      } catch (TransactionalIdNotFoundException unknown) {
        // Nobody has used it yet, or not for a week.
      }
    }
    return found;
  }

  /** The open transactions of a flow, also under ids that its ledger does not know of (it was begun anew). */
  List<String> open(String flow) {
    ListTransactionsOptions open = new ListTransactionsOptions().filterStates(List.of(TransactionState.ONGOING));
    List<String> ids = new ArrayList<>();
    for (TransactionListing each : got(admin.listTransactions(open).all())) {
      if (Pool.has(flow, each.transactionalId())) ids.add(each.transactionalId());
    }
    return ids;
  }

  /**
   * A word for each partition of a topic, kept with a consumer group that nobody reads with. Nobody waits for it: why it
   * was not taken is told when the next is to be noted. That makes up for one that will pass.
   */
  void note(String group, Map<TopicPartition, Long> ends, String word) {
    Map<TopicPartition, OffsetAndMetadata> noted = new HashMap<>();
    ends.forEach((partition, end) -> noted.put(partition, new OffsetAndMetadata(end, word)));
    KafkaFuture<Void> before = last;
    last = admin.alterConsumerGroupOffsets(group, noted).all();
    try {
      if (before != null && before.isDone()) got(before);
    } catch (RetriableException passes) {
      // The next says more.
    }
  }

  Set<String> noted(String group) {
    Set<String> words = new HashSet<>();
    for (OffsetAndMetadata each : got(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).values()) {
      if (each != null) words.add(each.metadata());
    }
    return words;
  }

  @Override
  public void close() {
    admin.close(java.time.Duration.ofSeconds(1));
  }
}
