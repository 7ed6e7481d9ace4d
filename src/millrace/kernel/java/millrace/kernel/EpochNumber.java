package millrace.kernel;

import java.io.Serializable;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/** The number of the epoch that a row is of, behind a text: a row in real time leaves before anybody else knows. */
public final class EpochNumber implements Serializable {
  private static final String EPOCH = "streaming.sql.batchId";

  private transient UTF8String number;

  public static Column behind(Column text) {
    return Invoked.changing(new EpochNumber(), "told", DataTypes.StringType, text, DataTypes.StringType);
  }

  /** Called from Spark's generated code. */
  public UTF8String told(UTF8String text) {
    // A task is of one epoch.
    if (number == null) number = UTF8String.fromString(TaskContext.get().getLocalProperty(EPOCH));
    return UTF8String.concat(text, number);
  }
}
