package millrace.kernel;

import java.util.Arrays;

/**
 * Where a partial match waits after one more row: its places in order of preference, and by which of the former ones
 * each was reached. Of two ways to the same place the preferred one stays: what comes is the same for both.
 */
final class Step {
  int[] places;
  int[] parents;
  /** The former place by which the pattern was met, before which all that remain are preferred; -1 if it was not. */
  int met = -1;

  private int count;

  private Step(int capacity) {
    places = new int[capacity];
    parents = new int[capacity];
  }

  static Step of(Pattern pattern, int[] waiting, long flags) {
    Step step = new Step(waiting.length + 4);
    for (int from = 0; from < waiting.length && step.met < 0; from++) {
      int place = waiting[from];
      if (!pattern.takes(place, flags)) continue;
      if (pattern.isGuard(place)) {
        step.add(place, from);
        continue;
      }
      for (int next : pattern.follow()[place]) {
        if (next == Pattern.MET) {
          step.met = from;
          break;
        }
        step.add(next, from);
      }
    }
    step.places = Arrays.copyOf(step.places, step.count);
    return step;
  }

  private void add(int place, int parent) {
    for (int known = 0; known < count; known++) if (places[known] == place) return;
    if (count == places.length) {
      places = Arrays.copyOf(places, count * 2);
      parents = Arrays.copyOf(parents, count * 2);
    }
    places[count] = place;
    parents[count++] = parent;
  }
}
