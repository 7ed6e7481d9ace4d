package millrace.kernel;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.io.Serializable;

/**
 * What a history holds of each event, and which aggregates are kept for its parts: one for all that differ only in how
 * far back they look. An event rewrites a leaf of at most `mostEvents` and a node of each level above it.
 */
record HistoryShape(Carrier[] slots, Measure[] measures, boolean keepsRows, int mostEvents, int mostBranches)
    implements Serializable {
  record Measure(Aggregate aggregate, int slot) implements Serializable {}

  /** By time; at the same time by position, because a way leads from one to the next. Else the order does not matter. */
  int compare(PastEvent one, PastEvent two) {
    int order = Long.compare(one.timeUs(), two.timeUs());
    for (int slot = 0; slot < slots.length && order == 0; slot++) {
      if (slots[slot] != Carrier.POSITION) continue;
      Object from = one.values()[slot];
      Object to = two.values()[slot];
      if (from == null || to == null) order = Boolean.compare(from != null, to != null);
      else order = slots[slot].compare(from, to);
    }
    return order;
  }

  /** Times are written as what they are after another one. */
  void write(PastEvent event, long afterUs, DataOutput out) throws IOException {
    VarLong.write(event.timeUs() - afterUs, out);
    if (keepsRows) VarLong.write(event.row(), out);
    for (int slot = 0; slot < slots.length; slot++) slots[slot].writeNullable(event.values()[slot], out);
  }

  PastEvent read(long afterUs, DataInput in) throws IOException {
    long timeUs = afterUs + VarLong.read(in);
    long row = keepsRows ? VarLong.read(in) : 0;
    Object[] values = new Object[slots.length];
    for (int slot = 0; slot < slots.length; slot++) values[slot] = slots[slot].readNullable(in);
    return new PastEvent(timeUs, row, values);
  }

  /** Only what the order of events depends on. */
  void writePlace(PastEvent event, long afterUs, DataOutput out) throws IOException {
    VarLong.write(event.timeUs() - afterUs, out);
    for (int slot = 0; slot < slots.length; slot++) {
      if (slots[slot] == Carrier.POSITION) slots[slot].writeNullable(event.values()[slot], out);
    }
  }

  PastEvent readPlace(long afterUs, DataInput in) throws IOException {
    long timeUs = afterUs + VarLong.read(in);
    Object[] values = new Object[slots.length];
    for (int slot = 0; slot < slots.length; slot++) {
      if (slots[slot] == Carrier.POSITION) values[slot] = slots[slot].readNullable(in);
    }
    return new PastEvent(timeUs, 0, values);
  }
}
