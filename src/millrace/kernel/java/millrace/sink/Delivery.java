package millrace.sink;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import millrace.kernel.FailPoint;
import org.apache.hadoop.fs.Path;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.InvalidPidMappingException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.InvalidTxnStateException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/**
 * The driver's side of two-phase commit into Kafka, one for each flow of this JVM.
 *
 *     tasks        write in open transactions, hand over who they are
 *     driver       prepared-N (created only if absent) ── commits all ── delivered-N, prepared-N goes
 *     a new start  commits what is prepared ── fences every other id ── only then are there tasks
 *
 * What holds: no transaction is committed that is not written down as prepared; while one is, no producer is made under
 * its id, which would abort it; an epoch that was delivered, or is prepared, is not written again.
 */
public final class Delivery {
  private static final Map<String, Delivery> BY_CHECKPOINT = new ConcurrentHashMap<>();
  private static final int OTHERS_LOOKS = 20;
  private static final long OTHERS_NS = 100_000_000;

  private final SinkOptions options;
  private final String self = UUID.randomUUID().toString();
  private final Inputs inputs;
  private final Ledger ledger;
  private final Map<String, Producers.Settled> settled = new HashMap<>();
  private Broker broker;
  private Committers committers;
  private long timeoutMs;
  private int partitions;
  private boolean begun;

  private Delivery(SparkSession spark, SinkOptions options) {
    this.options = options;
    Path checkpoint = new Path(options.checkpoint());
    CheckpointFileManager files = CheckpointFileManager.create(checkpoint, spark.sessionState().newHadoopConf());
    inputs = new Inputs(checkpoint, files);
    ledger = new Ledger(checkpoint, files);
  }

  static Delivery of(SparkSession spark, SinkOptions options) {
    return BY_CHECKPOINT.computeIfAbsent(options.checkpoint(), unused -> new Delivery(spark, options));
  }

  /** Before a flow's query starts: ends what an earlier run left, and refuses what cannot go on. */
  public static void begin(SparkSession spark, Map<String, String> options) throws IOException {
    end(options.get("checkpoint"));
    of(spark, SinkOptions.of(options)).begin(spark);
  }

  /** After its query has ended. */
  public static void end(String checkpoint) {
    Delivery ended = BY_CHECKPOINT.remove(checkpoint);
    if (ended != null) ended.close();
  }

  private synchronized void begin(SparkSession spark) throws IOException {
    if (spark.sparkContext().conf().getBoolean("spark.speculation", false)) throw Refused.speculation();
    if (committers == null) {
      if (broker == null) broker = new Broker(options);
      timeoutMs = broker.timeoutMs(); // of one that is away, nothing is known, and the next start asks again
      committers = new Committers(options, timeoutMs);
    }
    settled.clear();
    try {
      settle();
    } catch (ApiException ended) {
      if (!isSomebodyElses(ended)) throw ended;
      refuseReplaced(); // a newer driver was at the same transactions
      throw ended;
    }
    begun = true;
  }

  /** Commits what is prepared, and ends everything else that is open. */
  private void settle() throws IOException {
    ledger.own(self); // before it looks what is prepared, as others look whether they own it after they prepared
    for (Ledger.Prepared each : ledger.prepared()) complete(each);
    refuseOlder();
    partitions = ledger.partitions();
    Set<String> ids = new LinkedHashSet<>(Pool.ids(options.flow(), partitions));
    ids.addAll(broker.open(options.flow()));
    Set<String> known = broker.described(ids).keySet();
    FailPoint.BEFORE_FENCE.reached(options.flow());
    refuseReplaced();
    committers.fence(known);
  }

  /** Whether a transaction could not be ended because another producer has its id, or has ended it. */
  private static boolean isSomebodyElses(ApiException ended) {
    return ended instanceof ProducerFencedException
        || ended instanceof InvalidProducerEpochException
        || ended instanceof InvalidTxnStateException
        || ended instanceof InvalidPidMappingException;
  }

  private void refuseReplaced() throws IOException {
    if (!ledger.owner().equals(self)) throw Refused.takenOver();
  }

  /** Commits an epoch that was prepared, if that is still possible; if nothing of it was seen yet, forgets it. */
  private void complete(Ledger.Prepared epoch) throws IOException {
    if (isDelivered(epoch)) {
      ledger.forget(epoch.epoch());
      return;
    }
    List<String> ids = epoch.transactions().stream().map(Transaction::id).toList();
    Verdict verdict = Verdict.of(epoch.transactions(), broker.described(ids));
    if (verdict.canBeCommitted()) {
      committers.commit(epoch.transactions());
      ledger.delivered(epoch.epoch(), epoch.inputs());
    } else if (verdict.canBeRepeated()) {
      ledger.forget(epoch.epoch());
    } else if (!othersDelivered(epoch)) {
      throw Refused.torn(epoch.epoch(), verdict.committed(), verdict.lost() + verdict.unknown());
    }
  }

  /** Another driver may be at the same: its transactions go on, so that this one's are gone, before it says so. */
  private boolean othersDelivered(Ledger.Prepared epoch) throws IOException {
    for (int look = 0; look < OTHERS_LOOKS; look++) {
      refuseReplaced();
      if (isDelivered(epoch)) return true;
      LockSupport.parkNanos(OTHERS_NS);
    }
    return false;
  }

  /** Kafka may hold epochs that this checkpoint, an older copy, has not begun yet, or has begun with other input. */
  private void refuseOlder() throws IOException {
    String query = inputs.query();
    Mark mark = query == null ? null : Mark.newest(broker, options.flow(), query);
    if (mark == null) return;
    long begun = inputs.last();
    if (mark.epoch() > begun) throw Refused.older(mark.epoch(), begun);
    Ledger.Epoch last = ledger.last();
    if (last != null && last.epoch() >= mark.epoch()) return;
    if (mark.epoch() <= inputs.lastCommitted()) return; // copied, or delivered, without its ledger
    if (!inputs.of(mark.epoch()).equals(mark.inputs())) throw Refused.older(mark.epoch(), begun);
    ledger.delivered(mark.epoch(), mark.inputs());
  }

  /** How the tasks of an epoch are to write. */
  synchronized TaskWriters.Plan plan(SparkSession spark, long epoch, int tasks) throws IOException {
    if (begun) refuseReplaced(); // an epoch that the next driver prepared is not to be taken from it
    if (!begun || ledger.isPrepared(epoch)) begin(spark);
    refuseReplaced();
    Ledger.Epoch last = ledger.last();
    boolean delivered = last != null && last.epoch() >= epoch;
    if (delivered && !(last.epoch() == epoch && last.inputs().equals(inputs.of(epoch)))) {
      throw Refused.older(last.epoch(), epoch);
    }
    if (partitions < tasks) {
      ledger.partitions(tasks);
      partitions = tasks;
    }
    return new TaskWriters.Plan(options, self, timeoutMs, delivered, new HashMap<>(settled));
  }

  synchronized void commit(long epoch, List<TaskWriter.Written> written) throws IOException {
    List<Transaction> transactions = new ArrayList<>();
    Map<TopicPartition, Long> ends = new HashMap<>();
    for (TaskWriter.Written each : written) {
      if (each.transaction() != null) transactions.add(each.transaction());
      each.ends().forEach((partition, end) -> ends.merge(partition, end, Math::max));
    }
    if (transactions.isEmpty()) return;
    String input = inputs.of(epoch);
    FailPoint.BEFORE_PREPARE.reached(options.flow());
    Ledger.Prepared prepared = new Ledger.Prepared(epoch, input, transactions);
    prepare(prepared);
    FailPoint.AFTER_PREPARE.reached(options.flow());
    commitAll(prepared);
    FailPoint.AFTER_ALL_COMMITS.reached(options.flow());
    ledger.delivered(epoch, input);
    FailPoint.AFTER_DELIVERED.reached(options.flow());
    for (Transaction each : transactions) settled.put(each.id(), new Producers.Settled(each, epoch));
    endLosers(written);
    new Mark(inputs.query(), epoch, input).note(broker, options.flow(), ends);
  }

  private void prepare(Ledger.Prepared epoch) throws IOException {
    if (!ledger.prepare(epoch)) throw Refused.takenOver();
    if (isDelivered(epoch)) { // by one that was quicker, and whose own record is gone again
      ledger.forget(epoch.epoch());
      throw Refused.takenOver();
    }
    refuseReplaced(); // whether the other has seen this record nobody knows here: it is his to commit or to fence
  }

  private void commitAll(Ledger.Prepared epoch) throws IOException {
    if (FailPoint.AFTER_SOME_COMMITS.awaited(options.flow())) committers.commit(epoch.transactions().get(0));
    FailPoint.AFTER_SOME_COMMITS.reached(options.flow());
    try {
      committers.commit(epoch.transactions());
    } catch (ApiException ended) {
      if (!isSomebodyElses(ended)) throw ended;
      refuseReplaced(); // the other one has committed it
      complete(epoch); // or says that it is torn
      if (isDelivered(epoch)) return;
      throw (Refused) Refused.takenOver().initCause(ended);
    }
  }

  private boolean isDelivered(Ledger.Prepared epoch) throws IOException {
    Ledger.Epoch last = ledger.last();
    return last != null && last.epoch() >= epoch.epoch();
  }

  /** Attempts that were lost with their executor left transactions open, which hold back every reader. */
  private void endLosers(List<TaskWriter.Written> written) throws IOException {
    List<String> losers = new ArrayList<>();
    for (TaskWriter.Written each : written) {
      if (each.transaction() == null || each.transaction().id().equals(Pool.id(options.flow(), each.partition(), 0))) {
        continue;
      }
      losers.addAll(Pool.slots(options.flow(), each.partition()));
      losers.remove(each.transaction().id());
    }
    if (losers.isEmpty()) return;
    List<Transaction> open = new ArrayList<>();
    broker.described(losers).forEach((id, found) -> {
      if (found.state() != TransactionState.ONGOING) return;
      open.add(new Transaction(id, found.producerId(), (short) found.producerEpoch()));
    });
    refuseReplaced(); // so that what was found is not another driver's
    losers.forEach(settled::remove);
    committers.abort(open);
  }

  /** The epoch failed. Spark says so too when its commit did: what is prepared by then is the next start's. */
  synchronized void abort(long epoch, List<TaskWriter.Written> written) {
    begun = false;
    settled.clear();
    if (committers == null || ledger.isPrepared(epoch)) return;
    List<Transaction> open = new ArrayList<>();
    for (TaskWriter.Written each : written) if (each.transaction() != null) open.add(each.transaction());
    try {
      committers.abort(open);
    } catch (RuntimeException away) {
      // The next start ends them.
    }
  }

  private synchronized void close() {
    if (broker != null) broker.close();
    if (committers != null) committers.close();
    Producers.forget(options.flow());
  }
}
