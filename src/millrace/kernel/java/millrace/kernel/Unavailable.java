package millrace.kernel;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HexFormat;
import java.util.UUID;

/**
 * What Debezium writes where the database left out a large value that an update did not change, type by type as
 * UnchangedToastedPlaceholder of Debezium 3.6 has it: a text, bytes in base64, a list of one of these or of a UUID, a
 * list of the bytes as numbers, a map (or its JSON as text) of the text to itself.
 */
final class Unavailable implements Serializable {
  private static final String HEX = "hex:";

  private final String text;
  private final String[] texts;
  private final String uuid;
  private final String[] numbers;

  Unavailable(String placeholder) {
    byte[] bytes = placeholder.startsWith(HEX)
        ? HexFormat.of().parseHex(placeholder.substring(HEX.length()))
        : placeholder.getBytes(StandardCharsets.UTF_8);
    text = new String(bytes, StandardCharsets.UTF_8);
    texts = new String[] {
      text,
      Base64.getEncoder().encodeToString(bytes),
      Base64.getUrlEncoder().encodeToString(bytes),
      "{\"" + text + "\":\"" + text + "\"}",
    };
    uuid = UUID.nameUUIDFromBytes(bytes).toString();
    numbers = new String[bytes.length];
    for (int place = 0; place < bytes.length; place++) numbers[place] = Integer.toString(bytes[place]);
  }

  /** Whether the value at which the parser stands is one of these; leaves it at the value's last token. */
  boolean at(JsonParser parser) throws IOException {
    switch (parser.currentToken()) {
      case VALUE_STRING: return isText(parser);
      case START_ARRAY: return isList(parser);
      case START_OBJECT: return isMap(parser);
      default: return false;
    }
  }

  private boolean isText(JsonParser parser) throws IOException {
    for (String one : texts) if (same(parser, one)) return true;
    return false;
  }

  private boolean isList(JsonParser parser) throws IOException {
    JsonToken token = parser.nextToken();
    boolean found = false;
    if (token == JsonToken.VALUE_STRING) {
      found = isText(parser) || same(parser, uuid);
      token = parser.nextToken();
    } else if (token == JsonToken.VALUE_NUMBER_INT) {
      int place = 0;
      while (token == JsonToken.VALUE_NUMBER_INT && place < numbers.length && same(parser, numbers[place])) {
        place++;
        token = parser.nextToken();
      }
      found = place == numbers.length;
    }
    found &= token == JsonToken.END_ARRAY;
    leave(parser, JsonToken.END_ARRAY);
    return found;
  }

  private boolean isMap(JsonParser parser) throws IOException {
    String name = parser.nextFieldName();
    boolean found = text.equals(name) && parser.nextToken() == JsonToken.VALUE_STRING && same(parser, text);
    if (found) found = parser.nextToken() == JsonToken.END_OBJECT;
    leave(parser, JsonToken.END_OBJECT);
    return found;
  }

  /** Goes on to the end of the list or map in which the parser stands, wherever in it that is. */
  private static void leave(JsonParser parser, JsonToken end) throws IOException {
    while (parser.currentToken() != end) {
      parser.skipChildren();
      if (parser.nextToken() == null) return;
    }
  }

  private static boolean same(JsonParser parser, String expected) throws IOException {
    int length = parser.getTextLength();
    if (length != expected.length()) return false;
    char[] chars = parser.getTextCharacters();
    int start = parser.getTextOffset();
    for (int place = 0; place < length; place++) {
      if (chars[start + place] != expected.charAt(place)) return false;
    }
    return true;
  }
}
