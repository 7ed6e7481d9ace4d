package millrace.kernel;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/**
 * A part of a history that is kept as one: events in their order (a leaf, level 0), or branches to such parts, each with
 * what the aggregates hold for it.
 */
final class HistoryNode {
  /** Held for a branch where it is too much to be kept: then the branch itself is looked into. */
  static final Object NOT_KEPT = new Object();

  final int level;
  final List<PastEvent> events = new ArrayList<>();
  final List<Branch> branches = new ArrayList<>();
  boolean changed;

  HistoryNode(int level) {
    this.level = level;
  }

  /** `node` is null until somebody looks into it, `held` after it has changed until somebody asks. */
  static final class Branch {
    final long id;
    long firstUs;
    PastEvent last;
    Object[] held;
    HistoryNode node;

    Branch(long id, HistoryNode node) {
      this.id = id;
      this.node = node;
      if (node != null) refresh();
    }

    void refresh() {
      firstUs = node.firstUs();
      last = node.last();
      held = null;
    }
  }

  boolean isLeaf() {
    return level == 0;
  }

  boolean isTooLarge(HistoryShape shape) {
    return isLeaf() ? events.size() > shape.mostEvents() : branches.size() > shape.mostBranches();
  }

  long firstUs() {
    return isLeaf() ? events.get(0).timeUs() : branches.get(0).firstUs;
  }

  /** Of an empty one null. */
  PastEvent last() {
    if (isLeaf()) return events.isEmpty() ? null : events.get(events.size() - 1);
    return branches.get(branches.size() - 1).last;
  }

  /** Behind those that are before it or equal. */
  int placeOf(PastEvent event, HistoryShape shape) {
    int low = 0;
    int high = events.size();
    while (low < high) {
      int middle = (low + high) >>> 1;
      if (shape.compare(events.get(middle), event) <= 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The first branch that ends with it or after it; the last one if none does. */
  int branchOf(PastEvent event, HistoryShape shape) {
    int place = 0;
    while (place < branches.size() - 1 && shape.compare(branches.get(place).last, event) < 0) place++;
    return place;
  }

  /** The right part, cut off. Events mostly come in order: then the left part stays full. */
  HistoryNode cut(boolean atEnd) {
    HistoryNode right = new HistoryNode(level);
    List<?> all = isLeaf() ? events : branches;
    int from = atEnd ? all.size() - 1 : all.size() / 2;
    if (isLeaf()) right.events.addAll(events.subList(from, events.size()));
    else right.branches.addAll(branches.subList(from, branches.size()));
    all.subList(from, all.size()).clear();
    changed = right.changed = true;
    return right;
  }

  /** Every branch's `held` has been asked for. */
  void write(HistoryShape shape, DataOutput out) throws IOException {
    out.writeByte(level);
    out.writeByte(isLeaf() ? events.size() : branches.size());
    long afterUs = 0;
    for (PastEvent event : events) {
      shape.write(event, afterUs, out);
      afterUs = event.timeUs();
    }
    for (Branch branch : branches) {
      VarLong.write(branch.id, out);
      VarLong.write(branch.firstUs - afterUs, out);
      shape.writePlace(branch.last, branch.firstUs, out);
      afterUs = branch.last.timeUs();
      for (int place = 0; place < branch.held.length; place++) {
        boolean kept = branch.held[place] != NOT_KEPT;
        out.writeBoolean(kept);
        if (kept) shape.measures()[place].aggregate().write(branch.held[place], out);
      }
    }
  }

  static HistoryNode read(HistoryShape shape, DataInput in) throws IOException {
    HistoryNode node = new HistoryNode(in.readByte());
    int size = in.readUnsignedByte();
    long afterUs = 0;
    for (int place = 0; place < size && node.isLeaf(); place++) {
      PastEvent event = shape.read(afterUs, in);
      node.events.add(event);
      afterUs = event.timeUs();
    }
    for (int place = 0; place < size && !node.isLeaf(); place++) {
      Branch branch = new Branch(VarLong.read(in), null);
      branch.firstUs = afterUs + VarLong.read(in);
      branch.last = shape.readPlace(branch.firstUs, in);
      afterUs = branch.last.timeUs();
      branch.held = new Object[shape.measures().length];
      for (int measure = 0; measure < branch.held.length; measure++) {
        branch.held[measure] = in.readBoolean() ? shape.measures()[measure].aggregate().read(in) : NOT_KEPT;
      }
      node.branches.add(branch);
    }
    return node;
  }
}
