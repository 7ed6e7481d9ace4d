package millrace.sink;

import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import org.apache.spark.TaskContext;

/**
 * The transactional ids of a flow: `app.flow.partition.slot`. The slot is that of the attempt: an attempt must not end
 * the transaction of the one before it, which may have handed that over already. There are only so many, so that all
 * can be fenced; by the time that a slot comes again, its attempt is long gone.
 */
final class Pool {
  static final int SLOTS = 8;
  private static final int ATTEMPTS_A_STAGE = 4;

  private Pool() {}

  static String id(String flow, int partition, int slot) {
    return flow + "." + partition + "." + slot;
  }

  /** Of the attempt that runs in this thread. A stage that is done again counts its attempts from 0 again. */
  static int slot() {
    TaskContext task = TaskContext.get();
    return (task.stageAttemptNumber() * ATTEMPTS_A_STAGE + task.attemptNumber()) % SLOTS;
  }

  static List<String> ids(String flow, int partitions) {
    List<String> ids = new ArrayList<>();
    for (int partition = 0; partition < partitions; partition++) ids.addAll(slots(flow, partition));
    return ids;
  }

  static List<String> slots(String flow, int partition) {
    List<String> ids = new ArrayList<>();
    for (int slot = 0; slot < SLOTS; slot++) ids.add(id(flow, partition, slot));
    return ids;
  }

  static boolean has(String flow, String id) {
    return id.matches(Pattern.quote(flow) + "\\.\\d+\\.\\d+");
  }
}
