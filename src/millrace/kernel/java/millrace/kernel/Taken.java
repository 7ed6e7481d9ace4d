package millrace.kernel;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;

/**
 * How many records the readers of each real-time query have taken since it was started, those of the epoch at hand too:
 * Spark tells of an epoch when it has ended. Known of tasks that run in this JVM; of a cluster's executors nobody knows.
 */
public final class Taken {
  private static final Map<String, LongAdder> BY_RUN = new ConcurrentHashMap<>();

  /** -1 where nobody knows. */
  public static long by(String run) {
    LongAdder found = BY_RUN.get(run);
    return found == null ? -1 : found.sum();
  }

  /** What the readers of the task at hand add to. */
  static LongAdder ofTask() {
    String run = Ending.run();
    return run == null ? new LongAdder() : BY_RUN.computeIfAbsent(run, unused -> new LongAdder());
  }

  static void forget(String run) {
    BY_RUN.remove(run);
  }
}
