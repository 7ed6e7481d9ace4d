package millrace.kernel;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.Map;
import java.util.function.Consumer;
import millrace.kernel.HistoryNode.Branch;
import org.apache.spark.sql.streaming.MapState;

/**
 * The events of one key, in the order of time, as a tree. Its root is kept by whoever has the history, all other nodes
 * one by one: what is not looked at is not read, and what has not changed is not written. Each branch has what the
 * aggregates hold for all of its events, so that a long interval is put together from few parts.
 */
final class History {
  interface Nodes {
    byte[] get(long id);

    void put(long id, byte[] node);

    void remove(long id);

    static Nodes in(MapState<Long, byte[]> map) {
      return new Nodes() {
        @Override public byte[] get(long id) { return map.getValue(id); }
        @Override public void put(long id, byte[] node) { map.updateValue(id, node); }
        @Override public void remove(long id) { map.removeKey(id); }
      };
    }

    /** Of a checkpoint that is only looked at. */
    static Nodes read(Map<Long, byte[]> map) {
      return new Nodes() {
        @Override public byte[] get(long id) { return map.get(id); }
        @Override public void put(long id, byte[] node) { throw new UnsupportedOperationException(); }
        @Override public void remove(long id) { throw new UnsupportedOperationException(); }
      };
    }
  }

  private static final int FORM = 1;

  private final HistoryShape shape;
  private final Nodes nodes;
  private HistoryNode root;
  private long nextId;

  History(HistoryShape shape, Nodes nodes) {
    this.shape = shape;
    this.nodes = nodes;
    root = new HistoryNode(0);
  }

  boolean hasChanged() {
    return root.changed;
  }

  /** The time of its latest event; null of an empty one. */
  Long lastUs() {
    PastEvent last = root.last();
    return last == null ? null : last.timeUs();
  }

  void add(PastEvent event) {
    Branch right = put(root, event);
    if (right == null) return;
    HistoryNode above = new HistoryNode(root.level + 1);
    above.changed = true;
    above.branches.add(new Branch(nextId++, root));
    above.branches.add(right);
    root = above;
  }

  /** What was cut off to the right, if the node had become too large. */
  private Branch put(HistoryNode node, PastEvent event) {
    node.changed = true;
    boolean atEnd;
    if (node.isLeaf()) {
      int place = node.placeOf(event, shape);
      node.events.add(place, event);
      atEnd = place == node.events.size() - 1;
    } else {
      int place = node.branchOf(event, shape);
      Branch branch = node.branches.get(place);
      Branch right = put(opened(branch), event);
      branch.refresh();
      if (right != null) node.branches.add(++place, right);
      atEnd = place == node.branches.size() - 1;
    }
    return node.isTooLarge(shape) ? new Branch(nextId++, node.cut(atEnd)) : null;
  }

  /** What a measure holds for the events after one time, up to and with another. */
  Object ask(int measure, long afterUs, long untilUs) {
    return ask(root, measure, shape.measures()[measure].aggregate().empty(), afterUs, untilUs);
  }

  private Object ask(HistoryNode node, int measure, Object before, long afterUs, long untilUs) {
    Aggregate aggregate = shape.measures()[measure].aggregate();
    Object held = before;
    int slot = shape.measures()[measure].slot();
    for (PastEvent event : node.events) {
      if (event.timeUs() <= afterUs || event.timeUs() > untilUs || event.values()[slot] == null) continue;
      held = aggregate.add(held, event.values()[slot], event.timeUs());
    }
    for (Branch branch : node.branches) {
      if (branch.last.timeUs() <= afterUs) continue;
      if (branch.firstUs > untilUs) break;
      boolean whole = branch.firstUs > afterUs && branch.last.timeUs() <= untilUs;
      Object part = whole ? held(branch)[measure] : HistoryNode.NOT_KEPT;
      if (part == HistoryNode.NOT_KEPT) held = ask(opened(branch), measure, held, afterUs, untilUs);
      else held = aggregate.merge(held, part);
    }
    return held;
  }

  private Object[] held(Branch branch) {
    if (branch.held == null) {
      branch.held = new Object[shape.measures().length];
      for (int measure = 0; measure < branch.held.length; measure++) branch.held[measure] = added(branch.node, measure);
    }
    return branch.held;
  }

  private Object added(HistoryNode node, int measure) {
    Aggregate aggregate = shape.measures()[measure].aggregate();
    for (Branch branch : node.branches) if (held(branch)[measure] == HistoryNode.NOT_KEPT) return HistoryNode.NOT_KEPT;
    Object held = ask(node, measure, aggregate.empty(), Long.MIN_VALUE, Long.MAX_VALUE);
    return aggregate.isSmall(held) ? held : HistoryNode.NOT_KEPT;
  }

  /** The events from one time on, before another. */
  void walk(long fromUs, long beforeUs, Consumer<PastEvent> visit) {
    walk(root, fromUs, beforeUs, visit);
  }

  private void walk(HistoryNode node, long fromUs, long beforeUs, Consumer<PastEvent> visit) {
    for (PastEvent event : node.events) if (event.timeUs() >= fromUs && event.timeUs() < beforeUs) visit.accept(event);
    for (Branch branch : node.branches) {
      if (branch.last.timeUs() < fromUs || branch.firstUs >= beforeUs) continue;
      walk(opened(branch), fromUs, beforeUs, visit);
    }
  }

  /** The first event from a time on; null if there is none. */
  PastEvent firstFrom(long fromUs) {
    HistoryNode node = root;
    while (!node.isLeaf()) {
      Branch found = null;
      for (Branch branch : node.branches) {
        found = branch;
        if (branch.last.timeUs() >= fromUs) break;
      }
      node = opened(found);
    }
    for (PastEvent event : node.events) if (event.timeUs() >= fromUs) return event;
    return null;
  }

  /** The last event up to a time; null if there is none. */
  PastEvent lastUpTo(long untilUs) {
    HistoryNode node = root;
    while (!node.isLeaf()) {
      Branch found = node.branches.get(0);
      for (Branch branch : node.branches) if (branch.firstUs <= untilUs) found = branch;
      node = opened(found);
    }
    PastEvent last = null;
    for (PastEvent event : node.events) if (event.timeUs() <= untilUs) last = event;
    return last;
  }

  /** Puts an event in the place of the only one at its time. */
  void replace(PastEvent event) {
    replace(root, event);
  }

  private void replace(HistoryNode node, PastEvent event) {
    node.events.replaceAll(each -> each.timeUs() == event.timeUs() ? event : each);
    for (Branch branch : node.branches) {
      if (branch.firstUs > event.timeUs() || branch.last.timeUs() < event.timeUs()) continue;
      replace(opened(branch), event);
      branch.refresh();
    }
    node.changed = true;
  }

  /** Events up to this time are not needed any more. Those that share a leaf with others may stay for a while. */
  void forget(long untilUs) {
    forget(root, untilUs);
    while (!root.isLeaf() && root.branches.size() < 2) {
      if (root.branches.isEmpty()) {
        root = new HistoryNode(0);
      } else {
        Branch only = root.branches.get(0);
        root = opened(only);
        nodes.remove(only.id);
      }
      root.changed = true;
    }
  }

  private void forget(HistoryNode node, long untilUs) {
    int old = 0;
    while (old < node.events.size() && node.events.get(old).timeUs() <= untilUs) old++;
    node.events.subList(0, old).clear();
    node.changed |= old > 0;
    while (!node.branches.isEmpty() && node.branches.get(0).last.timeUs() <= untilUs) {
      remove(node.branches.remove(0), node.level - 1);
      node.changed = true;
    }
    if (node.level < 2 || node.branches.isEmpty() || node.branches.get(0).firstUs > untilUs) return;
    Branch first = node.branches.get(0);
    forget(opened(first), untilUs);
    if (!first.node.changed) return;
    first.refresh();
    node.changed = true;
  }

  private void remove(Branch branch, int level) {
    if (level > 0) for (Branch each : opened(branch).branches) remove(each, level - 1);
    nodes.remove(branch.id);
  }

  private HistoryNode opened(Branch branch) {
    if (branch.node == null) {
      branch.node = Stored.read(nodes.get(branch.id), FORM, (in, form) -> HistoryNode.read(shape, in));
    }
    return branch.node;
  }

  /** The root goes to `out`, other nodes that have changed to where they are kept. */
  void write(DataOutput out) throws IOException {
    VarLong.write(nextId, out);
    keep(root);
    root.write(shape, out);
  }

  private void keep(HistoryNode node) {
    for (Branch branch : node.branches) {
      held(branch);
      if (branch.node == null || !branch.node.changed) continue;
      keep(branch.node);
      nodes.put(branch.id, Stored.write(FORM, out -> branch.node.write(shape, out)));
      branch.node.changed = false;
    }
    node.changed = false;
  }

  void read(DataInput in) throws IOException {
    nextId = VarLong.read(in);
    root = HistoryNode.read(shape, in);
  }
}
