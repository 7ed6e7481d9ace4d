package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;

/** What Python tells an operator: its settings, as JSON that we wrote ourselves. */
final class Json {
  private static final ObjectMapper MAPPER = new ObjectMapper();

  static JsonNode read(String told) {
    try {
      return MAPPER.readTree(told);
    } catch (IOException impossible) {
      throw new UncheckedIOException(impossible);
    }
  }

  private Json() {}
}
