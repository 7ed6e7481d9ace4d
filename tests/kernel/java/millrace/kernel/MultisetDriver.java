package millrace.kernel;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;

/** A multiset through growth and decline, kept and loaded again in between, against a sorted map. */
final class MultisetDriver {
  public static void main(String[] arguments) throws Exception {
    Random draw = new Random(7);
    for (int way = 0; way < 4; way++) {
      Map<Long, byte[]> kept = new HashMap<>();
      TreeMap<byte[], Long> truth = new TreeMap<>(Arrays::compareUnsigned);
      byte[] state = null;
      int reads = 0;
      for (int step = 0; step < 12_000; step++) {
        boolean grows = step < 5_000;
        byte[] value = value(way, step, draw);
        long diff = 1 + draw.nextInt(2);
        if (!grows && !truth.isEmpty()) {
          byte[] next = truth.ceilingKey(value);
          value = way % 2 == 0 ? truth.firstKey() : next == null ? truth.lastKey() : next;
          diff = -truth.get(value);
        }
        int[] touched = {0};
        Multiset values = new Multiset(new History.Nodes() {
          @Override public byte[] get(long id) { touched[0]++; return kept.get(id); }
          @Override public void put(long id, byte[] node) { touched[0]++; kept.put(id, node); }
          @Override public void remove(long id) { kept.remove(id); }
        });
        if (state != null) values.restore(new DataInputStream(new ByteArrayInputStream(state)));
        values.add(value, diff);
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        values.write(new DataOutputStream(bytes));
        state = bytes.toByteArray();
        truth.merge(value, diff, (one, other) -> one + other == 0 ? null : one + other);
        reads = Math.max(reads, touched[0]);
        check(values.size() == truth.size(), "size", step);
        check(Arrays.equals(values.first(), truth.isEmpty() ? null : truth.firstKey()), "first", step);
        check(Arrays.equals(values.last(), truth.isEmpty() ? null : truth.lastKey()), "last", step);
        if (step % 50 == 0) check(isFirst(values.first(step % 150), truth, step % 150), "the first ones", step);
      }
      check(truth.isEmpty() == (kept.isEmpty() && truth.isEmpty()), "nodes are left", way);
      check(reads < 12, "a value touches " + reads + " nodes", way);
    }
    System.out.println("right");
  }

  private static boolean isFirst(List<byte[]> found, TreeMap<byte[], Long> truth, int most) {
    List<byte[]> all = new ArrayList<>();
    truth.forEach((value, count) -> {
      for (long each = 0; each < count && all.size() < most; each++) all.add(value);
    });
    return Arrays.deepEquals(found.toArray(), all.toArray());
  }

  private static byte[] value(int way, int step, Random draw) {
    long number = way == 0 ? step : way == 1 ? 1L << 40 - step % 30 : draw.nextInt(way == 2 ? 50 : 1 << 30);
    return Long.toString(way == 1 ? number + draw.nextInt(5_000) : number + (1L << 41)).getBytes();
  }

  private static void check(boolean holds, String what, int at) {
    if (!holds) throw new AssertionError(what + " at " + at);
  }
}
