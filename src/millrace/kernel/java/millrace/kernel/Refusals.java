package millrace.kernel;

import com.fasterxml.jackson.core.io.JsonStringEncoder;
import java.util.List;
import java.util.StringJoiner;

/** Why a record cannot be taken as a change of a row. The model has the same sentences. */
final class Refusals {
  static final String NOT_JSON = "the value is not a JSON object in UTF-8";
  static final String NO_ENVELOPE =
      "the value is not Debezium's envelope (an op with a before or an after); a topic whose values were flattened by"
          + " ExtractNewRecordState cannot be read as a table";
  static final String TRUNCATION = "op t: the table was truncated, which is not a change of one row";
  static final String MESSAGE = "op m: a message, not a change of a row";
  static final String NO_KEY = "the record has no key, so its row cannot be told from others";

  static String unknown(String op) {
    return "op " + op + " is not one of Debezium's";
  }

  static String noAfter(String op) {
    return "op " + op + " has no row in its after";
  }

  static String moved(int partition) {
    return "the key was in partition " + partition + " before, so the order of its changes is not known";
  }

  static String unavailable(List<String> columns) {
    String named = String.join(", ", columns);
    return "the database left out the unchanged value of " + named + ", and no earlier record has it";
  }

  static String strange(List<String> columns) {
    StringJoiner named = new StringJoiner(",", "[", "]");
    for (String one : columns) named.add('"' + new String(JsonStringEncoder.getInstance().quoteAsString(one)) + '"');
    return "nobody knows rows with the columns " + named;
  }

  private Refusals() {}
}
