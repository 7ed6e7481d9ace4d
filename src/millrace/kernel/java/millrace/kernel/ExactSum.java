package millrace.kernel;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;

/**
 * A sum of doubles without rounding, after Shewchuk (1997): doubles that do not overlap, the smallest first, whose sum is
 * exactly that of the values. So it does not depend on the order in which values come and sums are merged; only what is
 * told is rounded, once. Integers up to 2^53 are such values too.
 */
final class ExactSum {
  private double[] parts = new double[2];
  private int size;
  /** Of infinities and NaN, which have no parts. */
  private double unbounded;
  private long count;

  long count() {
    return count;
  }

  void add(double value) {
    count++;
    put(value);
  }

  void add(ExactSum other) {
    count += other.count;
    unbounded += other.unbounded;
    for (int place = 0; place < other.size; place++) put(other.parts[place]);
  }

  private void put(double value) {
    double carried = value;
    int kept = 0;
    for (int place = 0; place < size && Double.isFinite(carried); place++) {
      double part = parts[place];
      double sum = carried + part;
      double larger = Math.abs(carried) < Math.abs(part) ? part : carried;
      double error = (larger == part ? carried : part) - (sum - larger);
      if (error != 0 && Double.isFinite(sum)) parts[kept++] = error;
      carried = sum;
    }
    if (!Double.isFinite(carried)) {
      unbounded += carried;
      return;
    }
    size = kept;
    if (carried == 0) return;
    if (size == parts.length) parts = java.util.Arrays.copyOf(parts, size * 2);
    parts[size++] = carried;
  }

  /** Rounded to the nearest double; between two, to the even one. */
  double value() {
    if (unbounded != 0) return unbounded;
    int place = size;
    double sum = 0;
    double error = 0;
    while (place > 0 && error == 0) {
      double part = parts[--place];
      double next = sum + part;
      error = part - (next - sum);
      sum = next;
    }
    // The rest decides where the error is exactly half of the last digit: addition alone does not see it.
    if (place > 0 && error != 0 && Math.signum(error) == Math.signum(parts[place - 1])) {
      double twice = error * 2;
      if (sum + twice - sum == twice) return sum + twice;
    }
    return sum;
  }

  void write(DataOutput out) throws IOException {
    VarLong.write(count, out);
    VarLong.write(size, out);
    for (int place = 0; place < size; place++) out.writeDouble(parts[place]);
    out.writeBoolean(unbounded != 0);
    if (unbounded != 0) out.writeDouble(unbounded);
  }

  static ExactSum read(DataInput in) throws IOException {
    ExactSum sum = new ExactSum();
    sum.count = VarLong.read(in);
    sum.size = (int) VarLong.read(in);
    sum.parts = new double[Math.max(2, sum.size)];
    for (int place = 0; place < sum.size; place++) sum.parts[place] = in.readDouble();
    if (in.readBoolean()) sum.unbounded = in.readDouble();
    return sum;
  }
}
