package millrace.kernel;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;

/** A sketch of quantiles that is kept and loaded again after every few values: it stays small, and near the truth. */
final class KllDriver {
  private static final int VALUES = 50_000;
  private static final int TOGETHER = 50;
  private static final int SIZE = 100;
  /** Three times the highest level's room, the least room of ten more, and of each value at most ten bytes. */
  private static final int MOST_BYTES = 10 * (3 * SIZE + 10 * 8) + 100;
  private static final double[] RANKS = {0, 0.1, 0.5, 0.9, 1};

  public static void main(String[] arguments) throws Exception {
    List<Long> values = new ArrayList<>();
    for (long value = 0; value < VALUES; value++) values.add(value);
    Collections.shuffle(values, new Random(7));
    Kll sketch = new Kll(Carrier.LONG, SIZE);
    for (int place = 0; place < VALUES; place++) {
      sketch.add(values.get(place));
      if (place % TOGETHER > 0) continue;
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      sketch.write(new DataOutputStream(bytes));
      if (bytes.size() > MOST_BYTES) throw new AssertionError(bytes.size() + " bytes after " + place + " values");
      sketch = Kll.read(Carrier.LONG, SIZE, new DataInputStream(new ByteArrayInputStream(bytes.toByteArray())));
    }
    Object[] found = sketch.quantiles(RANKS);
    for (int place = 0; place < RANKS.length; place++) {
      double off = Math.abs((Long) found[place] - RANKS[place] * VALUES) / VALUES;
      if (off > (RANKS[place] % 1 == 0 ? 1.0 / VALUES : 0.05)) throw new AssertionError(RANKS[place] + " is " + found[place]);
    }
    // Few are exact, and the seventh of a hundred is the seventh, though 0.07 * 100 is more than seven in doubles.
    Kll few = new Kll(Carrier.LONG, SIZE);
    for (long value = 1; value <= 100; value++) few.add(value);
    Object seventh = few.quantiles(new double[] {0.07})[0];
    if (!seventh.equals(7L)) throw new AssertionError("the seventh is " + seventh);
    System.out.println("right");
  }
}
