package millrace.kernel;

import java.io.Serializable;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Passes a text on in the first attempt of a task, and in no other: what the one before has written cannot be taken
 * back, and would be there twice.
 */
public final class TriedOnce implements Serializable {
  public static Column of(Column text) {
    return Invoked.changing(new TriedOnce(), "passed", DataTypes.StringType, text, DataTypes.StringType);
  }

  /** Called from Spark's generated code. */
  public UTF8String passed(UTF8String text) {
    TaskContext task = TaskContext.get();
    if (task != null && (task.attemptNumber() > 0 || task.stageAttemptNumber() > 0)) {
      throw new IllegalStateException("a task is done again, and at most once was asked for");
    }
    return text;
  }
}
