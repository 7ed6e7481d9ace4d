package millrace.kernel;

import java.util.TreeMap;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import org.apache.spark.sql.execution.streaming.runtime.PropagateWatermarkSimulator;
import scala.collection.mutable.Map;

/**
 * What Spark worked out at an earlier trigger about an epoch that it then did not run. It takes for granted that a
 * watermark moves only when an epoch has ended; where ours moves in between, that has to be worked out again.
 */
final class Simulated {
  private final TreeMap<Object, Object> watermarks;
  private final Map<Object, Object> inputs;

  @SuppressWarnings("unchecked")
  Simulated(MicroBatchExecution query) {
    try {
      if (Behind.underneath(query) instanceof PropagateWatermarkSimulator simulator) {
        watermarks = (TreeMap<Object, Object>) value(simulator, "batchIdToWatermark");
        inputs = (Map<Object, Object>) value(simulator, "inputWatermarks");
      } else { // Spark has another way for queries with one keyed step at most, and that remembers nothing
        watermarks = new TreeMap<>();
        inputs = null;
      }
    } catch (ReflectiveOperationException anotherSpark) {
      throw new IllegalStateException(anotherSpark);
    }
  }

  void forgetAfter(long epoch) {
    var later = watermarks.tailMap(epoch, false);
    for (Object each : later.keySet()) inputs.remove(each);
    later.clear();
  }

  private static Object value(PropagateWatermarkSimulator simulator, String name) throws ReflectiveOperationException {
    var field = PropagateWatermarkSimulator.class.getDeclaredField(name);
    field.setAccessible(true);
    return field.get(simulator);
  }
}
