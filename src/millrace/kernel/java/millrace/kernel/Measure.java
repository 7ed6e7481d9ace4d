package millrace.kernel;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.RowFactory;

/** An aggregate of a match's rows: of those of one variable or (ANY) of all; of one of their values or (ROWS) of them. */
record Measure(Aggregate aggregate, int variable, int slot) implements Serializable {
  static final int ANY = -1;
  static final int ROWS = -1;

  /** First and last are so by the order in which rows were taken, whatever their times. */
  Object of(List<MatchRow> rows, int[] variables) {
    Object held = aggregate.empty();
    for (int place = 0; place < variables.length; place++) {
      if (variable != ANY && variables[place] != variable) continue;
      Object value = slot == ROWS ? 1L : rows.get(place).values()[slot];
      held = aggregate.take(held, RowFactory.create(value, 1L), 0, place);
    }
    return aggregate.result(held);
  }
}
