package millrace.kernel;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Up to which position somebody wants a view to be true: that is told without a change too, as soon as it is so. */
public final class Wanted {
  private static final Map<String, Long> BY_VIEW = new ConcurrentHashMap<>();

  public static void set(String view, long position) {
    BY_VIEW.merge(view, position, Math::max);
  }

  /** Whether this is news for whoever waits for the view: it was not there before, and is now. */
  static boolean is(String view, long before, long now) {
    long wanted = view == null ? 0 : BY_VIEW.getOrDefault(view, 0L);
    return before < wanted && wanted <= now;
  }

  private Wanted() {}
}
