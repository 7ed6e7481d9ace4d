package millrace.kernel;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.Comparator;

/** A row as patterns see it: its time, a flag for each variable, and the values that measures look at. */
record MatchRow(long timeUs, long flags, Object[] values) {
  /**
   * In which rows are taken: by time, then in the order of the pattern's variables (one that is the first of them before
   * one that is not), then by values, nulls first. Rows that are equal by this may change places unnoticed.
   */
  static Comparator<MatchRow> order(Carrier[] carriers) {
    return (one, two) -> {
      int order = Long.compare(one.timeUs, two.timeUs);
      if (order == 0) order = Long.compareUnsigned(Long.reverse(two.flags), Long.reverse(one.flags));
      for (int slot = 0; order == 0 && slot < carriers.length; slot++) {
        Object left = one.values[slot];
        Object right = two.values[slot];
        if (left == null || right == null) order = Boolean.compare(left != null, right != null);
        else order = carriers[slot].compare(left, right);
      }
      return order;
    };
  }

  void write(DataOutput out, Carrier[] carriers) throws IOException {
    out.writeLong(timeUs);
    VarLong.write(flags, out);
    for (int slot = 0; slot < carriers.length; slot++) carriers[slot].writeNullable(values[slot], out);
  }

  static MatchRow read(DataInput in, Carrier[] carriers) throws IOException {
    long timeUs = in.readLong();
    long flags = VarLong.read(in);
    Object[] values = new Object[carriers.length];
    for (int slot = 0; slot < values.length; slot++) values[slot] = carriers[slot].readNullable(in);
    return new MatchRow(timeUs, flags, values);
  }
}
