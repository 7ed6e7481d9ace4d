package millrace.sink;

import java.io.IOException;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Predicate;
import org.apache.kafka.clients.producer.KafkaProducer;

/**
 * The producers of this JVM's tasks, kept from epoch to epoch: to make one, and to have the broker make it known, takes
 * longer than a small epoch.
 *
 * What holds: one is used again only if the driver says that it committed the very transaction that it was left in.
 * Otherwise that may be open, and what is written next would go into it; a new one ends it first.
 */
final class Producers {
  private static final long IDLE_NS = 600_000_000_000L;
  private static final Map<String, Kept> KEPT = new ConcurrentHashMap<>();

  /** As the driver committed it: a transaction is that of an epoch, its producer may have had many. */
  record Settled(Transaction transaction, long epoch) implements java.io.Serializable {}

  private record Kept(KafkaProducer<byte[], byte[]> producer, Settled last, boolean open, long sinceNs) {}

  private Producers() {}

  /** A producer that can begin a transaction under this id. */
  static KafkaProducer<byte[], byte[]> take(String id, TaskWriters.Plan plan) throws IOException {
    close(kept -> System.nanoTime() - kept.sinceNs > IDLE_NS);
    Kept kept = KEPT.remove(id);
    if (kept != null && kept.last.equals(plan.settled().get(id))) {
      if (kept.open) new Inside(kept.producer).leave();
      return kept.producer;
    }
    if (kept != null) kept.producer.close(Duration.ZERO);
    KafkaProducer<byte[], byte[]> made = new KafkaProducer<>(plan.options().producer(id, "", plan.timeoutMs()));
    try {
      // It ends what is open under its id: of a driver that has been replaced it must not.
      Ledger.refuseReplaced(plan.options().checkpoint(), plan.owner());
      made.initTransactions();
      return made;
    } catch (RuntimeException | IOException failure) {
      made.close(Duration.ZERO);
      throw failure;
    }
  }

  /** Keeps one whose transaction is open, and is for the driver to commit. */
  static void keepOpen(KafkaProducer<byte[], byte[]> producer, Settled last) {
    keep(producer, last, true);
  }

  /** Keeps one that aborted what it had begun since that. */
  static void keepReady(KafkaProducer<byte[], byte[]> producer, Settled last) {
    keep(producer, last, false);
  }

  private static void keep(KafkaProducer<byte[], byte[]> producer, Settled last, boolean open) {
    Kept other = KEPT.put(last.transaction().id(), new Kept(producer, last, open, System.nanoTime()));
    if (other != null) other.producer.close(Duration.ZERO);
  }

  /** The flow has ended. */
  static void forget(String flow) {
    close(kept -> Pool.has(flow, kept.last.transaction().id()));
  }

  private static void close(Predicate<Kept> which) {
    for (Map.Entry<String, Kept> each : KEPT.entrySet()) {
      if (which.test(each.getValue()) && KEPT.remove(each.getKey(), each.getValue())) {
        each.getValue().producer.close(Duration.ZERO);
      }
    }
  }
}
