package millrace.kernel;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;

/** Events of one key in the order of time, each whole, until they are let go. */
final class KeptEvents {
  interface Visit {
    void of(long timeUs, byte[] event);
  }

  private final History history;
  private final History.Nodes rows;
  private long nextRow;
  // Events before this time were let go, whatever the history still lists.
  private long fromUs = Long.MIN_VALUE;

  KeptEvents(HistoryShape shape, History.Nodes nodes, History.Nodes rows) {
    history = new History(shape, nodes);
    this.rows = rows;
  }

  static HistoryShape shape(int mostEvents, int mostParts) {
    return new HistoryShape(new Carrier[0], new HistoryShape.Measure[0], true, mostEvents, mostParts);
  }

  boolean isEmpty() {
    return history.lastUs() == null;
  }

  void add(long timeUs, byte[] event) {
    rows.put(nextRow, event);
    history.add(new PastEvent(timeUs, nextRow++, new Object[0]));
  }

  /** The time of the first event from this time on; null if there is none. */
  Long firstUs(long sinceUs) {
    PastEvent first = history.firstFrom(Math.max(sinceUs, fromUs));
    return first == null ? null : first.timeUs();
  }

  /** The events from one time on, before another. */
  void walk(long sinceUs, long beforeUs, Visit visit) {
    history.walk(Math.max(sinceUs, fromUs), beforeUs, each -> visit.of(each.timeUs(), rows.get(each.row())));
  }

  /** Lets go the events before this time. */
  void forget(long beforeUs) {
    if (beforeUs <= fromUs) return;
    history.walk(fromUs, beforeUs, each -> rows.remove(each.row()));
    fromUs = beforeUs;
    history.forget(history.firstFrom(beforeUs) == null ? Long.MAX_VALUE : beforeUs - 1);
  }

  void write(DataOutput out) throws IOException {
    out.writeBoolean(!isEmpty());
    if (isEmpty()) return;
    VarLong.write(nextRow, out);
    out.writeLong(fromUs);
    history.write(out);
  }

  void read(DataInput in) throws IOException {
    if (!in.readBoolean()) return;
    nextRow = VarLong.read(in);
    fromUs = in.readLong();
    history.read(in);
  }
}
