package millrace.kernel;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/** Computes what stands on each line, settings and numbers with tabs between them, and prints the result or the error. */
public final class NumericDriver {
  public static void main(String[] arguments) throws Exception {
    Constructor<?> made = Numeric.class.getDeclaredConstructors()[0];
    made.setAccessible(true);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] parts = line.split("\t");
      Object[] numbers = Arrays.stream(parts).skip(1).map(UTF8String::fromString).toArray();
      DataType[] types = new DataType[numbers.length];
      Arrays.fill(types, DataTypes.StringType);
      Numeric numeric = (Numeric) made.newInstance(types, DataTypes.StringType, Json.read(parts[0]));
      try {
        System.out.println(numeric.text(new GenericInternalRow(numbers)));
      } catch (ArithmeticException refused) {
        System.out.println(refused.getMessage());
      }
    }
  }

  private NumericDriver() {}
}
