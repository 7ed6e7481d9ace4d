package millrace.sink;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Consumer;
import org.apache.kafka.clients.producer.KafkaProducer;

/** The driver's producers, which never write: each ends the transactions that tasks began under its id. */
final class Committers implements AutoCloseable {
  private static final int AT_ONCE = 16;

  private record Committer(KafkaProducer<byte[], byte[]> producer, Transaction last) {}

  private final SinkOptions options;
  private final long timeoutMs;
  private final Map<String, Committer> byId = new ConcurrentHashMap<>();
  private final ExecutorService threads = Executors.newFixedThreadPool(AT_ONCE, work -> {
    Thread thread = new Thread(work, "commits of transactions");
    thread.setDaemon(true);
    return thread;
  });

  Committers(SinkOptions options, long timeoutMs) {
    this.options = options;
    this.timeoutMs = timeoutMs;
  }

  /** Commits all of them, some perhaps for the second time, which changes nothing. Throws when one cannot be. */
  void commit(List<Transaction> transactions) {
    all(transactions, this::commit);
  }

  /** Ends transactions that will not be committed, and no others: one that somebody else has begun since stays. */
  void abort(List<Transaction> transactions) {
    all(transactions, each -> end(each, KafkaProducer::abortTransaction));
  }

  void commit(Transaction transaction) {
    end(transaction, KafkaProducer::commitTransaction);
  }

  /**
   * Ends what is open under these ids, and whoever has them: the producers that hold them can write no more. By
   * producers of our own side by side: Kafka's Admin takes one id after the other, a second and a half for each.
   */
  void fence(Collection<String> ids) {
    all(ids, id -> {
      try (KafkaProducer<?, ?> fencing = new KafkaProducer<>(options.producer(id, ".fence", timeoutMs))) {
        fencing.initTransactions();
      }
    });
  }

  private <T> void all(Collection<T> those, Consumer<T> action) {
    List<CompletableFuture<Void>> all = new ArrayList<>();
    for (T each : those) all.add(CompletableFuture.runAsync(() -> action.accept(each), threads));
    try {
      CompletableFuture.allOf(all.toArray(new CompletableFuture<?>[0])).join();
    } catch (CompletionException failure) {
      throw failure.getCause() instanceof RuntimeException told ? told : failure;
    }
  }

  private void end(Transaction transaction, Consumer<KafkaProducer<?, ?>> ending) {
    Committer known = byId.remove(transaction.id());
    boolean same = known != null && known.last().equals(transaction);
    if (known != null && !same) known.producer().close(Duration.ZERO);
    KafkaProducer<byte[], byte[]> producer =
        same ? known.producer() : new KafkaProducer<>(options.producer(transaction.id(), ".commits", timeoutMs));
    boolean done = false;
    try {
      Inside inside = new Inside(producer);
      if (same) inside.enterAgain();
      else inside.enter(transaction);
      ending.accept(producer);
      done = true;
    } finally {
      if (!done) producer.close(Duration.ZERO);
    }
    byId.put(transaction.id(), new Committer(producer, transaction));
  }

  @Override
  public void close() {
    threads.shutdown();
    for (Committer each : byId.values()) each.producer().close(Duration.ZERO);
    byId.clear();
  }
}
