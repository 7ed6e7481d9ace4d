package millrace.kernel;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * The matches of one key; `model/match.py` is the same in plain Python.
 *
 * What holds: rows are taken in order, each once. A match is told when it is decided and, unless every match is told,
 * all that begin before it are. Rows are kept from the first on that an undecided or untold match begins with.
 */
final class Matching {
  /** A match: its times, and the results of the measures. */
  record Found(long startUs, long endUs, Object[] results) {}

  private final MatchSettings settings;
  final MatchRows rows;
  final Partials partials;

  Matching(MatchSettings settings, MatchRows.Shelf shelf) {
    this.settings = settings;
    rows = new MatchRows(settings.carriers(), shelf);
    partials = new Partials(settings.pattern(), settings.withinUs(), settings.most());
  }

  /** Takes the rows whose time has come: no row before `untilUs` is to come. */
  void advance(long untilUs, List<Found> out) {
    MatchRow row = rows.waiting();
    while (row != null && (settings.arrival() || row.timeUs() < untilUs)) {
      partials.expire(row.timeUs());
      partials.step(rows.taken(), row);
      rows.take();
      tell(out);
      row = rows.waiting();
    }
    partials.expire(untilUs);
    tell(out);
    rows.forget(Math.min(partials.first(), rows.taken()));
  }

  private void tell(List<Found> out) {
    boolean all = settings.after().equals(MatchSettings.NEXT);
    Map.Entry<Long, Long> next;
    while ((next = all ? partials.firstDecided() : partials.firstTellable()) != null) {
      partials.forget(next);
      long start = next.getKey();
      int[] variables = Replay.variables(settings, rows, start, next.getValue());
      List<MatchRow> matched = new ArrayList<>(variables.length);
      for (int place = 0; place < variables.length; place++) matched.add(rows.get(start + place));
      Object[] results = new Object[settings.measures().length];
      for (int place = 0; place < results.length; place++) {
        results[place] = settings.measures()[place].of(matched, variables);
      }
      out.add(new Found(matched.get(0).timeUs(), matched.get(variables.length - 1).timeUs(), results));
      if (!all) partials.forgetBefore(start + skipped(variables));
    }
  }

  /** From the first row of a match to where the next may begin. */
  private int skipped(int[] variables) {
    switch (settings.after()) {
      case MatchSettings.FIRST:
        for (int place = 0; place < variables.length; place++) {
          if (variables[place] == settings.afterVariable()) return Math.max(place, 1);
        }
        return 1;
      case MatchSettings.LAST:
        for (int place = variables.length - 1; place > 0; place--) {
          if (variables[place] == settings.afterVariable()) return place;
        }
        return 1;
      default:
        return variables.length;
    }
  }

  /** When the next thing happens if no row comes: a row's time is over, or the time of a partial match is up. */
  long nextUs() {
    MatchRow row = rows.waiting();
    return Math.min(row == null ? Long.MAX_VALUE : row.timeUs() + 1, partials.firstDeadlineUs());
  }

  /** For people: see Kept. */
  void show(ObjectNode out) {
    partials.show(out);
    rows.show(out.putArray("rows"));
  }

  void write(DataOutputStream out) throws IOException {
    partials.write(out);
    rows.write(out);
  }

  void read(DataInputStream in) throws IOException {
    partials.read(in);
    rows.read(in);
  }
}
