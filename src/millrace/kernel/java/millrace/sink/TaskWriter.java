package millrace.sink;

import java.io.IOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import millrace.kernel.FailPoint;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** One task's part of an epoch: written in a transaction that stays open, and is the driver's to end. */
final class TaskWriter implements DataWriter<InternalRow> {
  /** What a task hands over; no transaction if it had no rows. `ends` is how far each partition was written. */
  record Written(Transaction transaction, int partition, HashMap<TopicPartition, Long> ends)
      implements WriterCommitMessage {}

  private final TaskWriters.Plan plan;
  private final RowRecords records;
  private final int partition;
  private final long epoch;
  private final String id;
  private KafkaProducer<byte[], byte[]> producer;
  private final Acknowledged acknowledged = new Acknowledged();

  TaskWriter(TaskWriters.Plan plan, RowRecords records, int partition, long epoch) {
    this.plan = plan;
    this.records = records;
    this.partition = partition;
    this.epoch = epoch;
    this.id = Pool.id(plan.options().flow(), partition, Pool.slot());
  }

  /** Called by the producer's thread, one at a time. */
  private static final class Acknowledged implements Callback {
    private final HashMap<TopicPartition, Long> ends = new HashMap<>();
    private TopicPartition lastPartition;
    private long lastOffset;
    private volatile Exception failure;

    @Override
    public void onCompletion(RecordMetadata record, Exception refused) {
      if (refused != null) {
        if (failure == null) failure = refused;
        return;
      }
      boolean same = lastPartition != null
          && lastPartition.partition() == record.partition()
          && lastPartition.topic().equals(record.topic());
      if (!same) {
        noteEnd();
        lastPartition = new TopicPartition(record.topic(), record.partition());
      }
      lastOffset = record.offset();
    }

    private void noteEnd() {
      if (lastPartition != null) ends.merge(lastPartition, lastOffset + 1, Math::max);
    }

    HashMap<TopicPartition, Long> ends() {
      noteEnd();
      return ends;
    }
  }

  /** A task without rows begins nothing, so that empty ones cost nothing. */
  @Override
  public void write(InternalRow row) throws IOException {
    if (plan.discard()) return;
    if (producer == null) {
      producer = Producers.take(id, plan);
      producer.beginTransaction();
    }
    if (acknowledged.failure != null) throw failed();
    producer.send(records.of(row), acknowledged);
    if (FailPoint.ON) FailPoint.TASK_ROW.reached(id);
  }

  private IOException failed() {
    return new IOException("records of epoch " + epoch + " could not be written", acknowledged.failure);
  }

  @Override
  public WriterCommitMessage commit() throws IOException {
    if (producer == null) return new Written(null, partition, new HashMap<>());
    producer.flush();
    if (acknowledged.failure != null) throw failed();
    if (FailPoint.ON) FailPoint.TASK_WRITTEN.reached(id);
    Transaction transaction = new Inside(producer).transaction(id);
    Producers.keepOpen(producer, new Producers.Settled(transaction, epoch));
    producer = null;
    return new Written(transaction, partition, acknowledged.ends());
  }

  @Override
  public void abort() {
    if (producer == null) return;
    Producers.Settled last = plan.settled().get(id);
    boolean interrupted = Thread.interrupted(); // a task that is killed; what it leaves open would hold back readers
    try {
      producer.abortTransaction();
      if (last != null) Producers.keepReady(producer, last);
      else producer.close(Duration.ZERO);
    } catch (RuntimeException failure) {
      producer.close(Duration.ZERO); // the next start fences it
    }
    producer = null;
    if (interrupted) Thread.currentThread().interrupt();
  }

  @Override
  public void close() {
    abort();
  }
}
