package millrace.kernel;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** The time of day; for tests, clocks that stand still until they are set. */
public final class Times {
  private static final Map<String, Long> SET = new ConcurrentHashMap<>();

  public static void set(String name, long nowMs) {
    SET.put(name, nowMs);
  }

  /** What the named clock says; without a name, the time of day. */
  public static long now(String name) {
    return name == null ? System.currentTimeMillis() : SET.get(name);
  }

  private Times() {}
}
