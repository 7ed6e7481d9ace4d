package millrace.kernel;

import java.util.concurrent.ExecutionException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.KafkaFuture;

/** What Kafka's Admin was asked, once it has answered. */
public final class Answer {
  private Answer() {}

  /** A failure is thrown as what it is, not as one of the future. */
  public static <T> T got(KafkaFuture<T> future) {
    try {
      return future.get();
    } catch (ExecutionException failure) {
      if (failure.getCause() instanceof RuntimeException told) throw told;
      throw new KafkaException(failure.getCause());
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      throw new KafkaException(stopped);
    }
  }
}
