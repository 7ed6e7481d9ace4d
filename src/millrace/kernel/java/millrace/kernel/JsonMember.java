package millrace.kernel;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadConstraints;
import java.io.IOException;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A member of a JSON object as PostgreSQL's `->` (as it is written) and `->>` (as a text) find it: of several of one name
 * the last, null if there is none, and numbers with the digits that they are written with, which Spark's own functions do
 * not keep. `views/members.py` is the same in Python.
 */
public final class JsonMember implements Serializable {
  /** PostgreSQL has checked it, and has other limits. */
  private static final JsonFactory FACTORY = JsonFactory.builder()
      .streamReadConstraints(StreamReadConstraints.builder()
          .maxNestingDepth(Integer.MAX_VALUE).maxStringLength(Integer.MAX_VALUE)
          .maxNameLength(Integer.MAX_VALUE).maxNumberLength(Integer.MAX_VALUE).build())
      .build();

  private final String name;
  private final boolean asText;

  private JsonMember(String name, boolean asText) {
    this.name = name;
    this.asText = asText;
  }

  public static Column of(Column json, String name, boolean asText) {
    return Invoked.column(new JsonMember(name, asText), "found", DataTypes.StringType, json, DataTypes.StringType);
  }

  /** Called from Spark's generated code. */
  public UTF8String found(UTF8String json) throws IOException {
    byte[] bytes = json.getBytes();
    UTF8String found = null;
    try (JsonParser parser = FACTORY.createParser(bytes)) {
      if (parser.nextToken() != JsonToken.START_OBJECT) return null;
      while (parser.nextToken() == JsonToken.FIELD_NAME) {
        boolean wanted = name.equals(parser.currentName());
        JsonToken token = parser.nextToken();
        int begin = (int) parser.currentTokenLocation().getByteOffset();
        if (wanted && asText && !token.isStructStart()) {
          found = text(parser, token);
          continue;
        }
        parser.skipChildren();
        parser.finishToken();
        int end = (int) parser.currentLocation().getByteOffset();
        if (wanted) found = UTF8String.fromBytes(bytes, begin, end - begin);
      }
    }
    return found;
  }

  private static UTF8String text(JsonParser parser, JsonToken token) throws IOException {
    if (token == JsonToken.VALUE_NULL) return null;
    String text = parser.getText();
    byte[] encoded = text.getBytes(StandardCharsets.UTF_8);
    if (token == JsonToken.VALUE_STRING
        && (text.indexOf('\0') >= 0 || !text.equals(new String(encoded, StandardCharsets.UTF_8)))) {
      throw new ArithmeticException("the JSON text " + text.codePoints().boxed().toList()
          + " (as numbers of characters) cannot be a text of PostgreSQL");
    }
    return UTF8String.fromBytes(encoded);
  }
}
