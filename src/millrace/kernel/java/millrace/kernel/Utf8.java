package millrace.kernel;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/** Whether bytes are UTF-8. Most are ASCII, of which eight are looked at at once; Spark's own function takes each by itself. */
public final class Utf8 implements UDF1<byte[], Boolean> {
  private static final VarHandle EIGHT = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
  private static final long ABOVE_ASCII = 0x8080808080808080L;

  public static Column of(Column bytes) {
    return functions.udf(new Utf8(), DataTypes.BooleanType).withName("millrace_utf8").apply(bytes);
  }

  @Override
  public Boolean call(byte[] bytes) {
    return bytes == null ? null : ascii(bytes) || UTF8String.fromBytes(bytes).isValid();
  }

  private static boolean ascii(byte[] bytes) {
    int place = 0;
    for (; place <= bytes.length - Long.BYTES; place += Long.BYTES) {
      if (((long) EIGHT.get(bytes, place) & ABOVE_ASCII) != 0) return false;
    }
    for (; place < bytes.length; place++) {
      if (bytes[place] < 0) return false;
    }
    return true;
  }
}
