package millrace.kernel;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.TaskContext;

/**
 * Whether the epoch of a real-time query is to end before its time. The tasks of a query that runs in this JVM see it at
 * once; on the executors of a cluster nobody asks, and an epoch takes as long as it was to.
 */
public final class Ending {
  private static final Map<String, Ending> BY_RUN = new ConcurrentHashMap<>();
  /** How Spark's streaming queries name their jobs: by the run's id, another one after each start. */
  private static final String RUN = "spark.jobGroup.id";

  private volatile boolean asked;

  public static void ask(String run) {
    of(run).asked = true;
  }

  /** After the run has ended. */
  public static void forget(String run) {
    BY_RUN.remove(run);
    Taken.forget(run);
  }

  static Ending ofTask() {
    String run = run();
    return run == null ? new Ending() : of(run);
  }

  /** Of the query whose task this is. */
  static String run() {
    return TaskContext.get().getLocalProperty(RUN);
  }

  private static Ending of(String run) {
    return BY_RUN.computeIfAbsent(run, unused -> new Ending());
  }

  boolean asked() {
    return asked;
  }
}
