package millrace.kernel;

import java.io.Serializable;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.types.DataTypes;

/** Whether a row is the first that its task sees: one row of each epoch and partition is. */
public final class FirstOfTask implements Serializable {
  private transient boolean seen;

  public static Column of(Column anything) {
    return Invoked.changing(new FirstOfTask(), "isFirst", DataTypes.BooleanType, anything, DataTypes.LongType);
  }

  /** Called from Spark's generated code. */
  public boolean isFirst(long anything) {
    if (seen) return false;
    seen = true;
    return true;
  }
}
