package millrace.kernel;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** Which row of a match is which variable: found by going through its rows once more, and then back by preference. */
final class Replay {
  /** From the match's first row to its last; -1 for rows that an absence lies over. */
  static int[] variables(MatchSettings settings, MatchRows rows, long start, long last) {
    Pattern pattern = settings.pattern();
    boolean guarded = last == Partials.GUARDED;
    long untilUs = rows.get(start).timeUs() + settings.withinUs();
    List<int[]> waited = new ArrayList<>();
    List<Step> steps = new ArrayList<>();
    int[] places = pattern.first();
    for (long number = start; guarded ? isTimely(rows, number, untilUs) : number <= last; number++) {
      waited.add(places);
      steps.add(Step.of(pattern, places, rows.get(number).flags()));
      places = steps.get(steps.size() - 1).places;
    }
    int row = steps.size() - 1;
    int from = guarded ? steps.get(row).parents[guard(pattern, places)] : steps.get(row).met;
    // A guard that was there before the row did not take it.
    while (pattern.isGuard(waited.get(row)[from])) from = steps.get(--row).parents[from];
    int[] variables = new int[row + 1];
    while (true) {
      variables[row] = pattern.variables()[waited.get(row)[from]];
      if (row == 0) return variables;
      from = steps.get(--row).parents[from];
    }
  }

  private static boolean isTimely(MatchRows rows, long number, long untilUs) {
    return number < rows.taken() && rows.get(number).timeUs() < untilUs;
  }

  private static int guard(Pattern pattern, int[] places) {
    for (int place = 0; place < places.length; place++) if (pattern.isGuard(places[place])) return place;
    throw new IllegalStateException("no guard among " + Arrays.toString(places));
  }

  private Replay() {}
}
