package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;

/**
 * How windows behave. `gapUs` makes sessions (0: windows with given edges); rows are taken until `graceUs` after a
 * window's end; results are told with every epoch that changes them, or (`once`) when the window has closed. Windows
 * of whole slices (`sizeUs` is not 0) begin every `everyUs`.
 */
record WindowSettings(
    long gapUs, long graceUs, boolean once, boolean keepsRefused, long sizeUs, long everyUs) implements Serializable {
  WindowSettings(JsonNode json) {
    this(
        json.get("gapUs").asLong(),
        json.get("graceUs").asLong(),
        json.get("once").asBoolean(),
        json.get("keepsRefused").asBoolean(),
        json.get("sizeUs").asLong(),
        json.get("everyUs").asLong());
  }

  boolean sliced() {
    return sizeUs > 0;
  }

  boolean sessions() {
    return gapUs > 0;
  }
}
