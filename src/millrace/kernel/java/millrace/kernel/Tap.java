package millrace.kernel;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ConcurrentModificationException;
import java.util.Deque;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InterruptException;

/** One partition as it is read in real time, by one task at a time; what an epoch leaves is there for the next one. */
final class Tap {
  final TopicPartition place;
  private final KafkaConsumer<byte[], byte[]> consumer;
  private final Deque<ConsumerRecord<byte[], byte[]>> left = new ArrayDeque<>();

  Tap(TopicPartition place, KafkaConsumer<byte[], byte[]> consumer) {
    this.place = place;
    this.consumer = consumer;
    consumer.assign(List.of(place));
  }

  /** Goes on from an offset; from the beginning if there is none. */
  void from(Long offset) {
    if (offset != null && !left.isEmpty() && left.peek().offset() == offset) return;
    left.clear();
    if (offset == null) consumer.seekToBeginning(List.of(place));
    else consumer.seek(place, offset);
  }

  /** The next record, which stays the next one; null if there is none after so long. */
  ConsumerRecord<byte[], byte[]> next(long mostMs) {
    if (left.isEmpty()) consumer.poll(Duration.ofMillis(mostMs)).records(place).forEach(left::add);
    return left.peek();
  }

  void taken() {
    left.remove();
  }

  /** Behind everything that was given, marks of Kafka's transactions included. */
  long offset() {
    return left.isEmpty() ? consumer.position(place) : left.peek().offset();
  }

  void close() {
    try {
      consumer.close(Duration.ZERO);
    } catch (InterruptException stopped) {
      // It is closed, and whoever stops the query has interrupted this thread.
    } catch (ConcurrentModificationException used) {
      // By a task that was cancelled and has not noticed: it closes it then.
    }
  }
}
