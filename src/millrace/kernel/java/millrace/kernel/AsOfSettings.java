package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;

/**
 * `keys`: how many columns the key has. `once`: an event is told when its time has passed, otherwise when it comes.
 * `inner`: only with a row. `captured`: changes are records of a captured topic, otherwise rows. Before `sinceUs` the
 * table's past is not known; `whole` and `goneUs` are as in Versions.
 */
record AsOfSettings(
    int keys, boolean once, boolean inner, boolean captured, boolean whole, long sinceUs, long graceUs,
    long goneUs, HistoryShape versions, HistoryShape events)
    implements Serializable {
  static AsOfSettings of(JsonNode json) {
    int most = json.get("mostEvents").asInt();
    int parts = json.get("mostParts").asInt();
    return new AsOfSettings(
        json.get("keys").asInt(),
        json.get("once").asBoolean(),
        json.get("inner").asBoolean(),
        json.get("captured").asBoolean(),
        json.get("whole").asBoolean(),
        json.hasNonNull("sinceUs") ? json.get("sinceUs").asLong() : Long.MIN_VALUE,
        json.get("graceUs").asLong(),
        json.get("goneUs").asLong(),
        Versions.shape(most, parts),
        KeptEvents.shape(most, parts));
  }

  /** Whether the watermark is so far past a time that nothing is taken for it any more. */
  boolean isOver(long timeUs, long watermarkUs) {
    return timeUs + graceUs < watermarkUs;
  }
}
