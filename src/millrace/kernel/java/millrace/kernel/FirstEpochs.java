package millrace.kernel;

import org.apache.spark.SparkContext;

/**
 * How long each of the first epochs of a real-time query may take: the first ones as long as it is told, each of those
 * after them twice as long as the one before, until they are as long as the query's own. In a new JVM the first end of an
 * epoch takes seconds, because nothing of that path was ever compiled. It has to be walked some dozens of times until it
 * is: so that happens when the query starts, and not over the first hour of its work.
 */
public final class FirstEpochs {
  private static final String EPOCH = "streaming.sql.batchId";
  /** Until the compiler has the whole path. */
  private static final int SHORT = 40;
  /** By then any query's epochs are shorter. */
  private static final int MOST_DOUBLED = 30;

  private final long firstMs;
  private long begun = -1;

  /** With zero, every epoch is as long as the query's own. */
  FirstEpochs(long firstMs) {
    this.firstMs = firstMs;
  }

  /** Asked on the driver, by the query's thread, while an epoch is planned, and maybe more than once. */
  synchronized long mostMs() {
    String epoch = SparkContext.getOrCreate().getLocalProperty(EPOCH);
    if (firstMs <= 0 || epoch == null) return Long.MAX_VALUE;
    long number = Long.parseLong(epoch);
    if (begun < 0) begun = number;
    return mostMs(firstMs, number - begun);
  }

  /** How long the epoch after so many others of the same run may take. */
  public static long mostMs(long firstMs, long after) {
    if (after < SHORT) return firstMs;
    long doubled = after - SHORT + 1;
    return doubled > MOST_DOUBLED ? Long.MAX_VALUE : firstMs << doubled;
  }
}
