package millrace.kernel;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Values in order, as bytes, each with how often it is there: a tree, whose root is kept by whoever has the multiset
 * and whose other nodes one by one. A value more or less reads and writes the nodes on its way; the first value, the
 * last one and the number of different ones are known from the root.
 */
final class Multiset {
  private static final int FORM = 1;
  private static final int MOST = 32;

  private static final class Node {
    final boolean isLeaf;
    /** Of a leaf its values, otherwise the least and the greatest of each branch. */
    final List<byte[]> firsts = new ArrayList<>();
    final List<byte[]> lasts = new ArrayList<>();
    /** Of a leaf how often a value is there, otherwise the id of a branch. */
    final List<Long> numbers = new ArrayList<>();
    /** Null until somebody looks into it. */
    final List<Node> branches = new ArrayList<>();
    boolean changed;

    Node(boolean isLeaf) {
      this.isLeaf = isLeaf;
    }

    byte[] last() {
      return (isLeaf ? firsts : lasts).get(firsts.size() - 1);
    }

    void insert(int place, byte[] first, byte[] last, long number, Node branch) {
      firsts.add(place, first);
      numbers.add(place, number);
      if (isLeaf) return;
      lasts.add(place, last);
      branches.add(place, branch);
    }

    void remove(int place) {
      firsts.remove(place);
      numbers.remove(place);
      if (isLeaf) return;
      lasts.remove(place);
      branches.remove(place);
    }

    /** The place of a value; if it is not there, -1 less the place where it belongs. */
    int place(byte[] value) {
      int low = 0;
      for (int high = firsts.size() - 1; low <= high; ) {
        int middle = (low + high) >>> 1;
        int compared = Arrays.compareUnsigned(firsts.get(middle), value);
        if (compared == 0) return middle;
        if (compared < 0) low = middle + 1;
        else high = middle - 1;
      }
      return -low - 1;
    }

    /** The right half, cut off; of one that grows at its end only the last, so that the left part stays full. */
    Node cut(boolean atEnd) {
      Node right = new Node(isLeaf);
      int from = atEnd ? firsts.size() - 1 : firsts.size() / 2;
      for (int place = from; place < firsts.size(); place++) {
        int to = place - from;
        right.insert(to, firsts.get(place), isLeaf ? null : lasts.get(place), numbers.get(place),
            isLeaf ? null : branches.get(place));
      }
      while (firsts.size() > from) remove(firsts.size() - 1);
      changed = right.changed = true;
      return right;
    }
  }

  private final History.Nodes nodes;
  private Node root = new Node(true);
  private long nextId;
  private long size;

  Multiset(History.Nodes nodes) {
    this.nodes = nodes;
  }

  /** How many different values. */
  long size() {
    return size;
  }

  /** The least value; null if there is none. */
  byte[] first() {
    return size == 0 ? null : root.firsts.get(0);
  }

  /** How often the least value is there. */
  long firstCount() {
    Node node = root;
    while (!node.isLeaf) node = opened(node, 0);
    return node.numbers.get(0);
  }

  byte[] last() {
    return size == 0 ? null : root.last();
  }

  /** The first so many values, each as often as it is there. */
  List<byte[]> first(int most) {
    List<byte[]> found = new ArrayList<>();
    first(root, most, found);
    return found;
  }

  private void first(Node node, int most, List<byte[]> found) {
    for (int place = 0; place < node.firsts.size() && found.size() < most; place++) {
      if (!node.isLeaf) {
        first(opened(node, place), most, found);
        continue;
      }
      for (long each = 0; each < node.numbers.get(place) && found.size() < most; each++) found.add(node.firsts.get(place));
    }
  }

  void add(byte[] value, long diff) {
    add(root, value, diff);
    if (root.firsts.size() > MOST) {
      Node above = new Node(false);
      Node right = root.cut(isLast(root, value));
      above.insert(0, root.firsts.get(0), root.last(), nextId++, root);
      above.insert(1, right.firsts.get(0), right.last(), nextId++, right);
      root.changed = true;
      root = above;
    }
    while (!root.isLeaf && root.firsts.size() < 2) {
      if (root.firsts.isEmpty()) {
        root = new Node(true);
      } else {
        Node only = opened(root, 0);
        nodes.remove(root.numbers.get(0));
        root = only;
      }
    }
  }

  private void add(Node node, byte[] value, long diff) {
    node.changed = true;
    int place = node.place(value);
    if (node.isLeaf) {
      count(node, place, value, diff);
      return;
    }
    if (place < 0) place = Math.max(0, -place - 2);
    Node branch = opened(node, place);
    add(branch, value, diff);
    if (branch.firsts.isEmpty()) {
      nodes.remove(node.numbers.get(place));
      node.remove(place);
      return;
    }
    Node right = branch.firsts.size() > MOST ? branch.cut(isLast(branch, value)) : null;
    node.firsts.set(place, branch.firsts.get(0));
    node.lasts.set(place, branch.last());
    if (right != null) node.insert(place + 1, right.firsts.get(0), right.last(), nextId++, right);
  }

  private void count(Node leaf, int place, byte[] value, long diff) {
    if (place < 0) {
      leaf.insert(-place - 1, value, null, diff, null);
      size++;
      return;
    }
    long count = Math.addExact(leaf.numbers.get(place), diff);
    if (count != 0) {
      leaf.numbers.set(place, count);
    } else {
      leaf.remove(place);
      size--;
    }
  }

  private static boolean isLast(Node node, byte[] value) {
    return Arrays.equals(node.last(), value);
  }

  private Node opened(Node node, int place) {
    Node found = node.branches.get(place);
    if (found == null) {
      found = Stored.read(nodes.get(node.numbers.get(place)), FORM, (in, form) -> read(in));
      node.branches.set(place, found);
    }
    return found;
  }

  /** The root goes to `out`, other nodes that have changed to where they are kept. */
  void write(DataOutputStream out) throws IOException {
    VarLong.write(size, out);
    VarLong.write(nextId, out);
    keep(root);
    write(root, out);
  }

  private void keep(Node node) {
    for (int place = 0; place < node.branches.size(); place++) {
      Node branch = node.branches.get(place);
      if (branch == null || !branch.changed) continue;
      keep(branch);
      nodes.put(node.numbers.get(place), Stored.write(FORM, out -> write(branch, out)));
    }
    node.changed = false;
  }

  private static void write(Node node, DataOutputStream out) throws IOException {
    out.writeBoolean(node.isLeaf);
    out.writeByte(node.firsts.size());
    for (int place = 0; place < node.firsts.size(); place++) {
      Ranked.bytes(node.firsts.get(place), out);
      if (!node.isLeaf) Ranked.bytes(node.lasts.get(place), out);
      VarLong.write(node.numbers.get(place), out);
    }
  }

  void restore(DataInputStream in) throws IOException {
    size = VarLong.read(in);
    nextId = VarLong.read(in);
    root = read(in);
  }

  private static Node read(DataInputStream in) throws IOException {
    Node node = new Node(in.readBoolean());
    int size = in.readUnsignedByte();
    for (int place = 0; place < size; place++) {
      byte[] first = Ranked.bytes(in);
      node.insert(place, first, node.isLeaf ? null : Ranked.bytes(in), VarLong.read(in), null);
    }
    return node;
  }
}
