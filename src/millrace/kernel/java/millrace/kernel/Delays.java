package millrace.kernel;

import java.util.Map;
import java.util.TreeMap;

/**
 * How long events took lately from happening to arriving, counted in buckets that each reach a tenth further than the
 * one before. "Lately" is some hundred thousand events: beyond that, all counts are halved.
 */
final class Delays {
  private static final double STEP = 1.1;
  private static final long LATELY = 100_000;

  private final Map<Integer, Long> counts = new TreeMap<>();

  /** Bucket 0 holds what arrived within a millisecond, or before it happened; bucket n what took up to 1.1^n ms. */
  static int bucket(long delayUs) {
    return delayUs <= 1_000 ? 0 : (int) Math.ceil(Math.log(delayUs / 1_000.0) / Math.log(STEP));
  }

  static long reachMs(int bucket) {
    return bucket == 0 ? 0 : (long) Math.ceil(Math.pow(STEP, bucket));
  }

  void add(Map<Integer, Long> more) {
    more.forEach((bucket, count) -> counts.merge(bucket, count, Long::sum));
    while (total() > LATELY) {
      counts.replaceAll((bucket, count) -> count / 2);
      counts.values().removeIf(count -> count == 0);
    }
  }

  private long total() {
    return counts.values().stream().mapToLong(Long::longValue).sum();
  }

  /** The delay within which this part of the events arrived; null if none is known. */
  Long quantileMs(double part) {
    long wanted = (long) Math.ceil(part * total());
    long below = 0;
    for (Map.Entry<Integer, Long> each : counts.entrySet()) {
      below += each.getValue();
      if (below >= wanted) return reachMs(each.getKey());
    }
    return null;
  }

  Map<Integer, Long> counts() {
    return counts;
  }
}
