package millrace.kernel;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;

/**
 * One window of one key: its edges, what its aggregates hold, whether that has changed since it was last told, and which
 * results that were told it takes the place of (its own former one among them).
 */
final class Pane {
  private static final int FORM = 1;

  long startUs;
  long endUs;
  boolean changed;
  List<long[]> told = new ArrayList<>();
  final Object[] held;

  Pane(long startUs, long endUs, Aggregate[] aggregates) {
    this.startUs = startUs;
    this.endUs = endUs;
    held = new Object[aggregates.length];
    for (int place = 0; place < held.length; place++) held[place] = aggregates[place].empty();
  }

  private Pane(long startUs, long endUs, Object[] held) {
    this.startUs = startUs;
    this.endUs = endUs;
    this.held = held;
  }

  void take(Pane other, Aggregate[] aggregates) {
    startUs = Math.min(startUs, other.startUs);
    endUs = Math.max(endUs, other.endUs);
    told.addAll(other.told);
    for (int place = 0; place < held.length; place++) held[place] = aggregates[place].merge(held[place], other.held[place]);
  }

  void markTold() {
    changed = false;
    told = new ArrayList<>(List.of(new long[] {startUs, endUs}));
  }

  /** All panes of a key, and its earliest timer. */
  static byte[] write(List<Pane> panes, long timerMs, Aggregate[] aggregates) {
    return Stored.write(FORM, out -> {
      out.writeLong(timerMs);
      out.writeInt(panes.size());
      for (Pane pane : panes) {
        out.writeLong(pane.startUs);
        out.writeLong(pane.endUs);
        out.writeBoolean(pane.changed);
        out.writeInt(pane.told.size());
        for (long[] window : pane.told) {
          out.writeLong(window[0]);
          out.writeLong(window[1]);
        }
        for (int place = 0; place < aggregates.length; place++) aggregates[place].write(pane.held[place], out);
      }
    });
  }

  /** For people: see Kept. */
  static void show(byte[] state, Aggregate[] aggregates, ObjectNode out) {
    List<Pane> panes = new ArrayList<>();
    read(state, panes, aggregates);
    ArrayNode shown = out.putArray("windows");
    for (Pane pane : panes) {
      ObjectNode each = shown.addObject().put("start", pane.startUs).put("end", pane.endUs).put("changed", pane.changed);
      Aggregate.show(aggregates, pane.held, each.putArray("values"));
    }
  }

  /** Fills `panes`; gives the timer. */
  static long read(byte[] state, List<Pane> panes, Aggregate[] aggregates) {
    return Stored.read(state, FORM, (in, form) -> {
      long timerMs = in.readLong();
      int count = in.readInt();
      for (int number = 0; number < count; number++) {
        Pane pane = new Pane(in.readLong(), in.readLong(), new Object[aggregates.length]);
        pane.changed = in.readBoolean();
        int told = in.readInt();
        for (int place = 0; place < told; place++) pane.told.add(new long[] {in.readLong(), in.readLong()});
        for (int place = 0; place < aggregates.length; place++) pane.held[place] = aggregates[place].read(in);
        panes.add(pane);
      }
      return timerMs;
    });
  }
}
